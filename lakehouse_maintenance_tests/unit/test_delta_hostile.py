"""Broken and hostile Delta logs: a clear error that names the file, and nothing concluded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance.delta import commits
from lakehouse_maintenance.model.errors import TableUnreadableError
from lakehouse_maintenance_tests.delta_logs import HEADER, METADATA, LogWriter, add, lines, remove, vector
from lakehouse_maintenance_tests.golden_delta.fixture import table_folder

FIRST = f"{0:020d}.json"


@pytest.fixture
def writer(tmp_path: Path) -> LogWriter:
    return LogWriter(tmp_path / "t")


def refused(writer: LogWriter, why: str, file: str = FIRST) -> None:
    """Neither a snapshot nor references, and both errors name the file."""
    for read in (lambda: list(writer.open().snapshot().files()), lambda: list(writer.open().references())):
        with pytest.raises(TableUnreadableError, match=why) as caught:
            read()
        assert file in caught.value.message
        assert caught.value.field == writer.location.text
        assert "nothing" in (caught.value.hint or "")


BROKEN_LINES = [
    ('{"add":{"path":"a","partitionValues":{},"si', "line 3"),
    ("null", "an object was expected"),
    ("[]", "an object was expected"),
    ('"add"', "an object was expected"),
    ('{"add": 7}', "an object was expected"),
    ('{"add": []}', "an object was expected"),
    ('{"add":{"size":1,"modificationTime":1}}', "path is no text"),
    ('{"add":{"path":5,"size":1,"modificationTime":1}}', "path is no text"),
    ('{"add":{"path":"a","modificationTime":1}}', "size is missing"),
    ('{"add":{"path":"a","size":-1,"modificationTime":1}}', "size is no number"),
    ('{"add":{"path":"a","size":"1","modificationTime":1}}', "size is no number"),
    ('{"add":{"path":"a","size":true,"modificationTime":1}}', "size is no number"),
    ('{"add":{"path":"a","size":1e3,"modificationTime":1}}', "size is no number"),
    ('{"add":{"path":"a","size":1}}', "modificationTime is missing"),
    ('{"add":{"path":"a","size":1,"modificationTime":1,"partitionValues":{"p":1}}}', "no text"),
    ('{"add":{"path":"a","size":1,"modificationTime":1,"deletionVector":"x"}}', "an object was expected"),
    ('{"add":{"path":"a","size":1,"modificationTime":1,"deletionVector":{}}}', "storageType is no text"),
    ('{"remove":{}}', "path is no text"),
    ('{"cdc":{"path":""}}', "it is empty"),
    ('{"protocol":{"minReaderVersion":1}}', "minWriterVersion is missing"),
    ('{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":"x"}}', "no list of texts"),
    ('{"metaData":{"id":"x","schemaString":1}}', "schemaString is no text"),
    ("[" * 100_000, "nested too deeply"),
    ('{"add":{"path":"a","size":' + "9" * 5_000 + ',"modificationTime":1}}', "line 3"),
    ('{"add":{"path":"a\\u0000","size":1,"modificationTime":1}}', "NUL"),
    ('{"add":{"path":"a%00","size":1,"modificationTime":1}}', "NUL"),
    ('{"add":{"path":"../b","size":1,"modificationTime":1}}', r"'\.\.' segment"),
    ('{"add":{"path":"x/%2e%2e/%2e%2e/b","size":1,"modificationTime":1}}', r"'\.\.' segment"),
    ('{"add":{"path":"file:/data/../b","size":1,"modificationTime":1}}', r"'\.\.' segment"),
    ('{"remove":{"path":"a\\ud800"}}', "surrogate"),
]


@pytest.mark.parametrize(("line", "why"), BROKEN_LINES, ids=[why + str(n) for n, (_, why) in enumerate(BROKEN_LINES)])
def test_a_line_that_is_no_action(writer: LogWriter, line: str, why: str) -> None:
    writer.put(FIRST, lines(*HEADER) + line + "\n" + lines(add("b")))
    refused(writer, why)


@pytest.mark.parametrize("content", [b"", lines(*HEADER).encode() + b'{"commitInfo":"\xff"}\n'])
def test_a_commit_that_is_no_text(writer: LogWriter, content: bytes) -> None:
    writer.put(FIRST, content)
    refused(writer, "it is empty|codec")


def test_unknown_actions_and_fields_are_no_fault(writer: LogWriter) -> None:
    writer.commit(*HEADER, {"commitInfo": 5}, {"newAction": []}, add("a", newField=[1]), {"txn": None})
    assert [file.path for file in writer.open().snapshot().active()] == ["a"]


def test_every_truncation_of_a_commit(writer: LogWriter) -> None:
    """Cut inside of a line, the commit is refused; cut between two lines, it is another commit."""
    content = lines(*HEADER, add("a"), remove("b", vector("ab^-aqEH.-t@S}K{vb[*k^"))).encode()
    ends = {number + 1 for number, byte in enumerate(content) if byte == 0x0A}
    for length in range(len(lines(*HEADER)), len(content), 3):
        if length in ends or length + 1 in ends:
            continue
        writer.put(FIRST, content[:length])
        with pytest.raises(TableUnreadableError, match=FIRST):
            list(writer.open().references())


def test_a_huge_line(writer: LogWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "WHOLE_BELOW", 1000)
    monkeypatch.setattr(commits, "PIECE", 500)
    monkeypatch.setattr(commits, "LONGEST_LINE", 5000)
    writer.commit(*HEADER, add("a", tags={"x": "y" * 10_000}))
    refused(writer, "a line of more than 5000 bytes")


def test_a_file_of_another_size_than_listed(writer: LogWriter) -> None:
    path = writer.commit(*HEADER, add("a"))
    log = writer.open()
    path.write_text(lines(*HEADER))
    with pytest.raises(TableUnreadableError, match="changed while"):
        log.snapshot()
    (path,) = writer.checkpoint(0, *HEADER, add("a"))
    log = writer.open()
    writer.checkpoint(0, *HEADER, add("a"), add("b"))
    with pytest.raises(TableUnreadableError, match="changed while"):
        log.snapshot()


BROKEN_ROWS: list[tuple[dict[str, Any], str]] = [
    (add("../x"), r"'\.\.' segment"),
    (add("a\0b"), "NUL"),
    (add("a", vector("short")), "too short"),
    (add("a", vector("x", "z")), "unknown"),
    ({"add": {"path": None, "size": 1, "modificationTime": 1}}, "path"),
    ({"add": {"path": "a", "size": None, "modificationTime": 1}}, "size"),
    ({"add": {"path": "a", "size": -5, "modificationTime": 1}}, "size"),
    ({"remove": {"path": None, "deletionTimestamp": 1}}, "path"),
    (remove("%FF"), "UTF-8"),
]


@pytest.mark.parametrize(("row", "why"), BROKEN_ROWS)
def test_a_checkpoint_row_that_is_no_action(writer: LogWriter, row: dict[str, Any], why: str) -> None:
    writer.checkpoint(3, *HEADER, add("a"), row)
    refused(writer, why, f"{3:020d}.checkpoint.parquet")


def test_checkpoints_with_other_columns(writer: LogWriter) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    header = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}, "metaData": METADATA["metaData"]}
    header["metaData"] = {key: header["metaData"][key] for key in ("id", "schemaString", "partitionColumns")}
    name = f"{0:020d}.checkpoint.parquet"
    for column in (
        {"add": ["a", "b"]},
        {"add": [None, {"size": 1}]},
        {"add": [None, {"path": 7, "size": 1, "modificationTime": 1}]},
        {"add": [None, {"path": "a", "size": "1", "modificationTime": 1}]},
        {"add": [None, {"path": "a", "size": 1, "modificationTime": 1, "partitionValues": "x"}]},
        {},
    ):
        table = pa.table({"protocol": [header["protocol"], None], "metaData": [header["metaData"], None], **column})
        pq.write_table(table, writer.log / name)
        refused(writer, "struct|path|text|number|map|no add", name)


@pytest.mark.parametrize("table", ["vectors", "v2_parquet"])
def test_every_truncation_of_a_golden_checkpoint(table: str, writer: LogWriter) -> None:
    (source, *_) = sorted((table_folder(table) / "_delta_log").glob("*.checkpoint*.parquet"))
    content = source.read_bytes()
    for length in [*range(0, len(content), 1999), len(content) - 1]:
        writer.put(source.name, content[:length])
        with pytest.raises(TableUnreadableError, match=source.name.replace(".", r"\.")):
            list(writer.open().snapshot().files())


@pytest.mark.parametrize("table", ["vectors", "v2_parquet"])
def test_flipped_bits_of_a_golden_checkpoint(table: str, writer: LogWriter) -> None:
    """Nothing but an error, or the very same files where the bit is of no account.

    Checksums cover Spark's pages, and unknown names of columns are looked at twice.
    """
    for sidecar in (table_folder(table) / "_delta_log" / "_sidecars").glob("*"):
        writer.put(f"_sidecars/{sidecar.name}", sidecar.read_bytes())
    (source,) = (table_folder(table) / "_delta_log").glob("*.checkpoint*.parquet")
    content = source.read_bytes()
    writer.put(source.name, content)
    right = sorted(map(repr, writer.open().snapshot().files()))
    refused_bits = 0
    for position in range(0, len(content), 211):
        flipped = content[position] ^ (1 << position % 8)
        writer.put(source.name, content[:position] + bytes([flipped]) + content[position + 1 :])
        try:
            found = sorted(map(repr, writer.open().snapshot().files()))
        except TableUnreadableError:
            refused_bits += 1
        else:
            assert found == right, position
    assert refused_bits > 5


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("add", "ade"),
        ("remove", "semove"),
        ("sidecar", "sidecas"),
        ("deletionVector", "deletionVectos"),
        ("deletionTimestamp", "deletionTimestamq"),
        ("offset", "offseu"),
        ("protocol", "protocom"),
    ],
)
def test_the_name_of_a_column_with_a_flipped_bit(writer: LogWriter, old: str, new: str) -> None:
    """A name that decides must not vanish silently: what it held would look unowned."""
    (path,) = writer.checkpoint(0, *HEADER, add("a"))
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    # Thrift writes a text as its length and its bytes.
    renamed = content[footer:].replace(bytes([len(old)]) + old.encode(), bytes([len(new)]) + new.encode())
    assert renamed != content[footer:]
    path.write_bytes(content[:footer] + renamed)
    refused(writer, f"{new}|no add column|no protocol action", path.name)


def test_the_error_is_fit_for_people(writer: LogWriter) -> None:
    writer.put(FIRST, lines(*HEADER) + json.dumps({"add": {"path": "../" + "x" * 100_000}}))
    with pytest.raises(TableUnreadableError) as caught:
        writer.open().snapshot()
    assert len(caught.value.message) < 1000
