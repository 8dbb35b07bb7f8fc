"""Our Avro decoder against fastavro's, an independent one."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from lakehouse_maintenance.iceberg.avro import read_container, write_container
from lakehouse_maintenance.iceberg.decoding import Decoder
from lakehouse_maintenance.iceberg.fields import STATISTICS, entry_schema

EVERYTHING: dict[str, Any] = {
    "type": "record",
    "name": "everything",
    "fields": [
        {"name": "nothing", "type": "null"},
        {"name": "flag", "type": "boolean"},
        {"name": "number", "type": "int"},
        {"name": "large", "type": "long"},
        {"name": "single", "type": "float"},
        {"name": "twice", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "text", "type": "string"},
        {"name": "fixed", "type": {"type": "fixed", "name": "four", "size": 4}},
        {"name": "again", "type": "four"},
        {"name": "symbol", "type": {"type": "enum", "name": "colour", "symbols": ["red", "blue"]}},
        {"name": "optional", "type": ["null", "long"]},
        {"name": "reversed", "type": ["string", "null"]},
        {"name": "several", "type": ["null", "long", "string"]},
        {"name": "list", "type": {"type": "array", "items": ["null", "int"]}},
        {"name": "map", "type": {"type": "map", "values": "long"}},
        {"name": "inner", "type": {"type": "record", "name": "inner", "fields": [{"name": "a", "type": "int"}]}},
    ],
}

VALUES: list[dict[str, Any]] = [
    {
        "nothing": None,
        "flag": True,
        "number": -(2**31),
        "large": 2**63 - 1,
        "single": 0.5,
        "twice": float("-inf"),
        "raw": b"\x00\xff" * 100,
        "text": "naïve 🧊",
        "fixed": b"1234",
        "again": b"5678",
        "symbol": "blue",
        "optional": None,
        "reversed": "x",
        "several": "text",
        "list": [None, 1, -1] * 50,
        "map": {"a": 1, "b": -(2**63)},
        "inner": {"a": 63},
    },
    {
        "nothing": None,
        "flag": False,
        "number": 64,
        "large": -65,
        "single": -0.0,
        "twice": 1e300,
        "raw": b"",
        "text": "",
        "fixed": b"\x00\x01\x02\x03",
        "again": b"\xff\xff\xff\xff",
        "symbol": "red",
        "optional": 8191,
        "reversed": None,
        "several": 8192,
        "list": [],
        "map": {},
        "inner": {"a": -64},
    },
]


@pytest.mark.parametrize("value", VALUES)
def test_every_type_reads_as_fastavro_reads_it(value: dict[str, Any]) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(EVERYTHING), value)

    found, end = Decoder({}, frozenset()).reader(EVERYTHING)(out.getvalue(), 0)

    assert end == len(out.getvalue())
    assert repr(found) == repr(fastavro.schemaless_reader(io.BytesIO(out.getvalue()), EVERYTHING, None))


def test_blocks_of_negative_counts_carry_their_size() -> None:
    # -2 items in 2 bytes: 1, 2; then the end.
    data = bytes([3, 4, 2, 4, 0])

    assert Decoder({}, frozenset()).reader({"type": "array", "items": "int"})(data, 0) == ([1, 2], 5)


def entries(count: int, columns: int = 200) -> list[dict[str, Any]]:
    return [
        {
            "status": 1,
            "snapshot_id": 2**62 + number,
            "sequence_number": number,
            "file_sequence_number": None,
            "data_file": {
                "content": 0,
                "file_path": f"s3://lake/t/data/{number}.parquet",
                "file_format": "PARQUET",
                "partition": {"day": 20_000 + number, "lower_bounds": "a partition field may be named so"},
                "record_count": 1000 * number,
                "file_size_in_bytes": 2**40,
                "column_sizes": [{"key": key, "value": 300 * key} for key in range(columns)],
                "value_counts": [],
                "null_value_counts": None,
                "lower_bounds": [{"key": key, "value": b"\x80" * key} for key in range(columns)],
                "upper_bounds": [{"key": 2**31 - 1, "value": b""}],
                "split_offsets": [4, 2**33],
            },
        }
        for number in range(count)
    ]


PARTITION = {
    "type": "record",
    "name": "r102",
    "fields": [
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "field-id": 1000},
        {"name": "lower_bounds", "type": ["null", "string"], "field-id": 1001},
    ],
}


def test_skipped_fields_are_the_only_difference() -> None:
    data = write_container(entries(25), entry_schema(2, PARTITION), {})

    everything = read_container(data).records
    without = read_container(data, STATISTICS).records

    for entry in everything:
        assert entry["data_file"]["column_sizes"][199] == {"key": 199, "value": 59_700}
        for name in STATISTICS:
            del entry["data_file"][name]
    assert without == everything
    assert without[3]["data_file"]["partition"] == {
        "day": 20_003,
        "lower_bounds": "a partition field may be named so",
    }


@pytest.mark.parametrize("skip", [frozenset(), STATISTICS], ids=["all", "projected"])
def test_a_container_cut_anywhere_but_between_blocks_is_an_error(skip: frozenset[str]) -> None:
    data = write_container(entries(1, columns=10), entry_schema(2, PARTITION), {}, codec="null")
    header = data.index(data[-16:]) + 16

    for end in range(len(data)):
        if end != header:
            with pytest.raises(ValueError):
                read_container(data[:end], skip)


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_damage_inside_a_block_never_gives_fewer_entries_silently(codec: str) -> None:
    data = write_container(entries(3, columns=10), entry_schema(2, PARTITION), {}, codec=codec)
    start = data.index(data[-16:]) + 16
    count = data[start]

    with pytest.raises(ValueError):
        read_container(data[:start] + bytes([count - 2]) + data[start + 1 :], STATISTICS)


@pytest.mark.parametrize("codec", ["zstandard", "snappy"])
def test_manifests_in_other_codecs_of_iceberg_are_read(codec: str) -> None:
    plain = write_container(entries(4, columns=10), entry_schema(2, PARTITION), {}, codec="null")
    sync = plain[-16:]
    start = plain.index(sync) + 16
    raw = plain[start:-16]
    _, at = _number(raw, 0)
    _, at = _number(raw, at)
    body = raw[at:]
    if codec == "zstandard":
        packed = pa.compress(body, codec="zstd", asbytes=True)
    else:
        packed = pa.compress(body, codec="snappy", asbytes=True) + b"\x00" * 4
    out = io.BytesIO()
    header = plain[:start].replace(b"\x14avro.codec\x08null", b"\x14avro.codec" + _spelled(codec))
    out.write(header + _zigzag(4) + _zigzag(len(packed)) + packed + sync)

    assert read_container(out.getvalue()).records == read_container(plain).records


def test_an_unknown_codec_is_named() -> None:
    plain = write_container(entries(1), entry_schema(2, PARTITION), {}, codec="null")
    other = plain.replace(b"\x14avro.codec\x08null", b"\x14avro.codec" + _spelled("lz77"))

    with pytest.raises(ValueError, match="lz77"):
        read_container(other)


def _zigzag(number: int) -> bytes:
    number <<= 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _spelled(text: str) -> bytes:
    return _zigzag(len(text)) + text.encode()


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value >> 1, at
