"""A state in a folder: its files, its lock, faults of the file system; and URLs that name no state."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from lakehouse_maintenance.model.errors import ConfigurationError, LakehouseError, StorageError
from lakehouse_maintenance.state import State, files, open_state
from lakehouse_maintenance.state.folder import FolderStore


def test_first_write_creates_the_layout(tmp_path: Path) -> None:
    state = open_state(f"file://{tmp_path}/a/state")
    assert state.location == f"{tmp_path}/a/state"
    assert state.put("k", b"v", None) is not None
    assert (tmp_path / "a" / "state" / "version").read_text() == "2\n"


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "9" * 5000])
def test_garbage_for_a_version_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "version").write_text(text)
    with pytest.raises(ConfigurationError, match="version"):
        open_state(str(tmp_path))


@pytest.mark.parametrize(
    "content", [b"", b"\0\0\0\0", b'{"key": "k"', b"[]\nv", b'{"key": "other", "version": "1"}\nv']
)
def test_damaged_value_is_named(tmp_path: Path, content: bytes) -> None:
    state = open_state(str(tmp_path))
    state.put("k", b"v", None)
    (tmp_path / "values" / "k").write_bytes(content)
    with pytest.raises(StorageError, match="values/k cannot be read"):
        state.get("k")
    with pytest.raises(StorageError, match="values/k cannot be read"):
        state.put("k", b"w", None)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://user:secret@host/db", "mysql: URL"),
        ("s3:///path", "names no bucket"),
        ("s3://user:secret@bucket//path", "empty"),
        ("s3://bucket/a/../b", "segment"),
        ("postgresql://user:secret@host:port/db", "no URL of a PostgreSQL database"),
        ("postgresql://user:secret@host/db?schema=", "no schema's name"),
        ("postgresql://user:secret@host/db?schema=a&schema=b", "no schema's name"),
        ("file://host/state", "names a host"),
        ("  ", "empty"),
        ("a\0b", "NUL"),
    ],
)
def test_other_urls_are_refused(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        open_state(url)
    assert caught.value.field == "state.url"
    assert "secret" not in str(caught.value.as_json())


@pytest.mark.parametrize("where", ["file", "file/below"])
def test_folder_that_is_a_file_is_refused(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigurationError, match="state folder") as caught:
        open_state(str(tmp_path / where))
    assert caught.value.field == "state.url"


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.EACCES, ConfigurationError), (errno.EROFS, ConfigurationError), (errno.ENOSPC, StorageError)],
)
def test_refused_write_names_the_setting_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[LakehouseError]
) -> None:
    state = open_state(str(tmp_path))
    version = state.put("k", b"v", None)

    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as fault:
        fault.setattr(os, "write", refuse)
        with pytest.raises(kind) as caught:
            state.put("k", b"w", version)
    assert caught.value.field == "state.url"
    assert state.get("k") == (b"v", version)
    assert state.put("k", b"w", version) is not None


def test_lock_that_never_comes_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = open_state(str(tmp_path))
    state.put("k", b"v", None)
    monkeypatch.setattr(files, "LOCK_SECONDS", 0.02)
    descriptor = os.open(tmp_path / "lock", os.O_RDWR)
    try:
        with files.file_lock(descriptor, tmp_path / "lock"), pytest.raises(StorageError, match="locked"):
            state.put("k", b"w", None)
    finally:
        os.close(descriptor)
    assert state.put("k", b"w", None) is None


def test_crash_before_the_version_is_made_good(tmp_path: Path) -> None:
    (tmp_path / "values").mkdir()
    (tmp_path / ".new").write_text("torn")
    state = State(FolderStore(tmp_path))
    assert state.put("k", b"v", None) is not None
    assert (tmp_path / "version").exists()
