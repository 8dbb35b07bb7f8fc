"""Deletion vectors: the Puffin blob `deletion-vector-v1` (Puffin spec; Java: BitmapPositionDeleteIndex).

    length of magic and bitmap   4 bytes, big-endian
    magic                        D1 D3 39 64
    bitmap                       number of 32-bit bitmaps (8 bytes, little-endian), then key and bitmap of each
    CRC-32 of magic and bitmap   4 bytes, big-endian

Everything that can be checked is: a wrong bit here is a row too many or too few, without a word.
"""

from __future__ import annotations

import struct
import zlib

from pyroaring import BitMap64

from lakehouse_maintenance.engines.embedded_iceberg.opening import Opener
from lakehouse_maintenance.model.errors import TableUnreadableError
from lakehouse_maintenance.model.files import Content, LiveFile

_MAGIC = b"\xd1\xd3\x39\x64"
_FRAME = 8
"""Length before, checksum after."""
_MOST = 1 << 63


def is_vector(delete: LiveFile) -> bool:
    """Whether the delete is a deletion vector (Java: ContentFileUtil.isDV)."""
    return delete.content is Content.POSITION_DELETES and delete.file_format == "PUFFIN"


def read_vector(delete: LiveFile, opener: Opener) -> BitMap64:
    """The rows that a vector deletes; reads its blob alone, not the Puffin file around it."""
    if delete.content_offset is None or delete.content_offset < 0 or delete.referenced_data_file is None:
        raise _damaged(delete, "its manifest entry lacks content_offset or referenced_data_file")
    return decode_vector(opener.read(delete, delete.content_offset, delete.size), delete)


def decode_vector(blob: bytes, delete: LiveFile) -> BitMap64:
    """The rows in a blob. Raises TableUnreadableError for a wrong length, magic, checksum, bitmap or cardinality."""
    if len(blob) < _FRAME + len(_MAGIC) or struct.unpack(">i", blob[:4])[0] != len(blob) - _FRAME:
        raise _damaged(delete, f"its length is not that of its {len(blob)} bytes")
    body = blob[4:-4]
    if body[:4] != _MAGIC:
        raise _damaged(delete, f"it starts with {body[:4].hex()}")
    if zlib.crc32(body) != struct.unpack(">I", blob[-4:])[0]:
        raise _damaged(delete, "its checksum is wrong")
    try:
        rows = BitMap64.deserialize(body[4:])
    except (ValueError, IndexError, OverflowError) as error:
        raise _damaged(delete, f"its bitmap cannot be read: {error}") from error
    if len(rows) != delete.records:
        raise _damaged(delete, f"it has {len(rows)} rows, its manifest entry says {delete.records}")
    if rows and rows.max() >= _MOST:
        raise _damaged(delete, "it has a negative position")
    return rows


def _damaged(delete: LiveFile, what: str) -> TableUnreadableError:
    return TableUnreadableError(
        f"the deletion vector at {delete.content_offset} in {delete.path} is damaged: {what}",
        field=delete.path,
        hint="nothing was changed",
    )
