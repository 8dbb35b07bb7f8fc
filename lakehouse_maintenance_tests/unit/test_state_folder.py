"""Values in a folder: compare-and-swap, names, layout version, faults."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lakehouse_maintenance.model.errors import ConfigurationError, LakehouseError, StorageError
from lakehouse_maintenance.state import State, open_state
from lakehouse_maintenance.state import folder as folder_module
from lakehouse_maintenance.state.folder import FolderStore
from lakehouse_maintenance.state.naming import file_name, key_of

KEYS = st.text(st.characters(exclude_categories=()), max_size=300)


def test_reading_creates_nothing(tmp_path: Path) -> None:
    state = open_state(str(tmp_path / "missing" / "state"))
    assert state.get("k") is None
    assert state.leases.current("c.d.t") is None
    assert state.leases.all() == []
    assert state.journal.events(last=5) == []
    assert state.journal.open_intents("c.d.t") == []
    assert state.cache.get_many(["k"]) == {}
    state.check_writable()
    assert list(tmp_path.iterdir()) == []


def test_first_write_creates_the_layout(tmp_path: Path) -> None:
    state = open_state(f"file://{tmp_path}/a/state")
    assert state.location == f"{tmp_path}/a/state"
    assert state.put("k", b"v", None) is not None
    assert (tmp_path / "a" / "state" / "version").read_text() == "1\n"


def test_compare_and_swap(tmp_path: Path) -> None:
    state = open_state(str(tmp_path))
    first = state.put("k", b"one", None)
    assert first is not None
    assert state.put("k", b"two", None) is None
    assert state.put("k", b"two", "no such version") is None
    assert state.get("k") == (b"one", first)
    second = state.put("k", b"line\nline\0", first)
    assert second not in (None, first)
    assert open_state(str(tmp_path)).get("k") == (b"line\nline\0", second)
    third = state.put("k", b"one", second)
    assert state.put("k", b"late", first) is None, "the same bytes again are not the same version"
    assert state.get("k") == (b"one", third)


def test_compare_and_swap_between_threads(tmp_path: Path) -> None:
    """Lost updates would show in the sum."""

    def add(times: int) -> None:
        state = open_state(str(tmp_path))
        while times:
            stored = state.get("n")
            value, version = (b"0", None) if stored is None else stored
            if state.put("n", str(int(value) + 1).encode(), version) is not None:
                times -= 1

    threads = [threading.Thread(target=add, args=(15,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = open_state(str(tmp_path)).get("n")
    assert stored is not None
    assert stored[0] == b"60"


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(KEYS, st.binary(max_size=20), st.booleans()), max_size=8))
@example([("", b"a", True), (".", b"b", True), ("..", b"c", True), ("a/b", b"d", True), ("A", b"", True)])
@example([("x" * 500, b"a", True), ("x" * 499 + "y", b"b", True), ("\ud800", b"c", True), ("\0\n", b"d", True)])
def test_any_key_behaves_as_in_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[str, bytes, bool]]
) -> None:
    store = FolderStore(tmp_path_factory.mktemp("state"))
    model: dict[str, tuple[bytes, str]] = {}
    for key, value, is_current in writes:
        expected = model[key][1] if key in model else None
        version = store.put(key, value, expected if is_current else "stale")
        assert (version is not None) is is_current
        if version is not None:
            model[key] = (value, version)
    assert set(store.keys("")) == set(model)
    for key, stored in model.items():
        assert store.get(key) == stored
        prefix = key[: len(key) // 2]
        assert set(store.keys(prefix)) == {other for other in model if other.startswith(prefix)}


@given(KEYS, KEYS)
def test_names_are_safe_and_tell_keys_apart(one: str, other: str) -> None:
    name = file_name(one)
    assert 0 < len(name.encode("ascii")) <= 255
    assert "/" not in name
    assert not name.startswith(".")
    assert name == name.lower()
    assert (name == file_name(other)) is (one == other)
    assert key_of(name) in (one, None)


def test_version_from_the_future_is_refused(tmp_path: Path) -> None:
    state = open_state(str(tmp_path))
    version = state.put("k", b"v", None)
    (tmp_path / "version").write_text("2\n")
    with pytest.raises(ConfigurationError, match="layout version 2") as caught:
        open_state(str(tmp_path))
    assert caught.value.field == "state.url"
    # A state that was open when the folder was upgraded stops as well.
    with pytest.raises(ConfigurationError):
        state.get("k")
    with pytest.raises(ConfigurationError):
        state.put("k", b"w", version)
    (tmp_path / "version").write_text("1\n")
    assert state.get("k") == (b"v", version)


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
        ("s3://bucket/state", "s3: URL"),
        ("postgresql://user:secret@host/db", "postgresql: URL"),
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
    monkeypatch.setattr(folder_module, "LOCK_SECONDS", 0.02)
    descriptor = os.open(tmp_path / "lock", os.O_RDWR)
    try:
        with folder_module.file_lock(descriptor, tmp_path / "lock"), pytest.raises(StorageError, match="locked"):
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
