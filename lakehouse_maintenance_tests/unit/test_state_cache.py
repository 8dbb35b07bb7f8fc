"""The disposable cache: what is in it is right, and nothing that happens to it is an error."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from lakehouse_maintenance.state import SqliteBlobCache, cache, open_state


def test_remembers_and_creates_at_the_first_put(tmp_path: Path) -> None:
    path = tmp_path / "state" / "cache" / "manifests.db"
    store = SqliteBlobCache(path)
    assert store.get_many(["a"]) == {}
    store.put_many({})
    assert not (tmp_path / "state").exists()
    items = {f"s3://b/m{number}.avro": bytes([number % 251]) * 10 for number in range(1201)}
    store.put_many(items)
    store.put_many({"empty": b"", "s3://b/m1.avro": b"new"})
    assert SqliteBlobCache(path).get_many(iter([*items, "absent", "empty"])) == {
        **items,
        "empty": b"",
        "s3://b/m1.avro": b"new",
    }


def test_state_has_one_in_its_folder(tmp_path: Path) -> None:
    state = open_state(str(tmp_path))
    state.cache.put_many({"k": b"v"})
    assert (tmp_path / "cache" / "manifests.db").exists()
    assert state.cache.get_many(["k"]) == {"k": b"v"}
    # A folder with nothing but the cache is still a fresh one.
    assert state.get("k") is None
    assert state.put("k", b"v", None) is not None


@pytest.mark.parametrize("damage", [b"garbage" * 1000, None])
def test_a_damaged_file_is_replaced(tmp_path: Path, damage: bytes | None) -> None:
    path = tmp_path / "manifests.db"
    store = SqliteBlobCache(path)
    store.put_many({"a": b"1" * 50_000, "b": b"2"})
    # None: the file loses its tail.
    path.write_bytes(path.read_bytes()[:8192] if damage is None else damage)
    assert store.get_many(["a"]) in ({}, {"a": b"1" * 50_000})
    store.put_many({"c": b"3"})
    store.put_many({"c": b"3"})
    assert store.get_many(["c"]) == {"c": b"3"}


def test_a_changed_value_is_not_given_out(tmp_path: Path) -> None:
    path = tmp_path / "manifests.db"
    store = SqliteBlobCache(path)
    store.put_many({"a": b"right", "b": b"fine"})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE blobs SET value = x'00' WHERE key = 'a'")
    assert store.get_many(["a", "b"]) == {"b": b"fine"}


def test_a_file_of_another_release_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "manifests.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    store = SqliteBlobCache(path)
    store.put_many({"a": b"1"})
    assert store.get_many(["a"]) == {"a": b"1"}


def test_a_locked_file_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_BUSY_SECONDS", 0.02)
    path = tmp_path / "manifests.db"
    store = SqliteBlobCache(path)
    store.put_many({"a": b"1"})
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        store.put_many({"b": b"2"})
        assert store.get_many(["a"]) in ({}, {"a": b"1"})
        connection.execute("ROLLBACK")
    assert store.get_many(["a", "b"]) == {"a": b"1"}


@pytest.mark.parametrize("name", ["folder", "file/below/manifests.db"])
def test_a_place_that_cannot_be_used_is_passed_over(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    store = SqliteBlobCache(tmp_path / name)
    store.put_many({"a": b"1"})
    assert store.get_many(["a"]) == {}
    assert (tmp_path / "folder").is_dir()


def test_keys_that_are_no_text_are_passed_over(tmp_path: Path) -> None:
    store = SqliteBlobCache(tmp_path / "manifests.db")
    store.put_many({"a": b"1"})
    store.put_many({"\ud800": b"2"})
    assert store.get_many(["\ud800"]) == {}
    assert store.get_many(["a"]) == {"a": b"1"}


def test_size_is_bounded_and_the_least_used_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1_000_000.0]
    monkeypatch.setattr(cache.time, "time", lambda: clock[0])
    path = tmp_path / "manifests.db"
    store = SqliteBlobCache(path, max_bytes=100_000)
    store.put_many({"too large": b"x" * 100_001})
    for number in range(10):
        clock[0] += 10_000
        store.put_many({f"k{number}": b"x" * 10_000})
    clock[0] += 10_000
    assert list(store.get_many(["k0"])) == ["k0"]
    clock[0] += 10_000
    store.put_many({"k10": b"x" * 10_000})
    left = store.get_many(["too large", *(f"k{number}" for number in range(11))])
    assert set(left) == {"k0", "k10", *(f"k{number}" for number in range(3, 10))}
    for number in range(100):
        store.put_many({f"n{number}": b"x" * 10_000})
    assert path.stat().st_size < 300_000


def test_threads_share_it(tmp_path: Path) -> None:
    store = SqliteBlobCache(tmp_path / "manifests.db")

    def work(name: int) -> None:
        for number in range(10):
            store.put_many({f"{name}/{number}": b"v"})
            assert set(store.get_many([f"{name}/{number}"]).values()) <= {b"v"}

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keys = [f"{name}/{number}" for name in range(4) for number in range(10)]
    assert set(store.get_many(keys)) <= set(keys)
