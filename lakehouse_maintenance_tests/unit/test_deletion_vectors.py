"""The blob of a deletion vector: what is read of it, and every way in which it can be damaged."""

from __future__ import annotations

import struct
import zlib

import pytest
from pyroaring import BitMap, BitMap64

from lakehouse_maintenance.engines.embedded_iceberg.vectors import decode_vector
from lakehouse_maintenance.model.errors import TableUnreadableError
from lakehouse_maintenance.model.files import Content, LiveFile

MAGIC = b"\xd1\xd3\x39\x64"
ROWS = [0, 3, 70_000, 5_000_000_000]


def framed(body: bytes, crc: int | None = None) -> bytes:
    return struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body) if crc is None else crc)


def bitmaps(rows: list[int]) -> bytes:
    """As Java writes them: an entry for every key up to the highest, empty ones too."""
    keys = range(max(rows) // (1 << 32) + 1) if rows else range(0)
    parts = [struct.pack("<q", len(keys))]
    for key in keys:
        found = BitMap(row - (key << 32) for row in rows if row >> 32 == key)
        parts += [struct.pack("<I", key), found.serialize()]
    return b"".join(parts)


def entry(records: int = len(ROWS)) -> LiveFile:
    content = Content.POSITION_DELETES
    return LiveFile("s3://b/v.puffin", content, "PUFFIN", 0, "[]", records, 0, 2, 2, "s3://b/data.parquet", 4)


def test_rows_as_java_writes_them() -> None:
    assert list(decode_vector(framed(MAGIC + bitmaps(ROWS)), entry())) == ROWS


def test_runs_and_an_empty_vector() -> None:
    assert list(decode_vector(framed(MAGIC + bitmaps([])), entry(0))) == []
    runs = BitMap64(range(100_000))
    runs.run_optimize()
    assert decode_vector(framed(MAGIC + runs.serialize()), entry(100_000)) == runs


WHOLE = framed(MAGIC + bitmaps(ROWS))


@pytest.mark.parametrize(
    ("blob", "records", "why"),
    [
        (b"", 4, "length"),
        (WHOLE[:10], 4, "length"),
        (WHOLE[:-1], 4, "length"),
        (WHOLE + b"\0", 4, "length"),
        (framed(b"\xd1\xd3\x39\x65" + bitmaps(ROWS)), 4, "starts with"),
        (framed(MAGIC + bitmaps(ROWS), crc=1), 4, "checksum"),
        (WHOLE[:20] + bytes([WHOLE[20] ^ 1]) + WHOLE[21:], 4, "checksum"),
        (framed(MAGIC + bitmaps(ROWS)[:-3]), 4, "bitmap"),
        (framed(MAGIC + struct.pack("<q", 7)), 0, "bitmap"),
        (framed(MAGIC), 0, "bitmap"),
        (WHOLE, 3, "4 rows"),
        (WHOLE, 5, "4 rows"),
        (framed(MAGIC + BitMap64([1 << 63]).serialize()), 1, "negative"),
    ],
)
def test_a_damaged_vector_is_refused(blob: bytes, records: int, why: str) -> None:
    with pytest.raises(TableUnreadableError, match=why) as error:
        decode_vector(blob, entry(records))
    assert "s3://b/v.puffin" in str(error.value)
