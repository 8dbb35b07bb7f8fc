"""Odd keys through the whole round (EN-07): listed, compared, deleted, moved to quarantine, restored byte by byte.

Each orphan lies beside a live file whose key differs from its own by such a character alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyiceberg.table import Table

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.orphans import OrphanResult
from lakehouse_maintenance.removal import EntryState, read_entry
from lakehouse_maintenance_tests.engine.foreign import add_entries
from lakehouse_maintenance_tests.engine.stores import Lake

PAIRS = [
    *(("a b", "a+b"), ("c+d", "c d"), ("e%20f", "e%21f"), ("g%2Bh", "g%2Dh"), ("i=j", "i:j"), ("k:l", "k=l")),
    *(
        ("p=x/m n", "p=x/m%25n"),
        ("\u00fc", "u\u0308"),
        ("o\u0308", "\u00f6"),
        ("日本", "日木"),
        ("q%", "q"),
        ("r", "r "),
    ),
    *((" s", "s"), ("t'u", 't"u'), ("v#w?x", "v"), ("y&z;", "y&amp;z;"), ("%2E", "%2D"), ("é.parquet", "e.parquet")),
]
"""Orphan, live file: neither may be meant by the other's name, decoded once or not."""

SLASHES = [("a//b", "a/c"), ("/lead", "lead2"), ("x///y z", "x/y+z"), ("d//e%20f", "d/e f2"), ("back\\slash", "back")]
"""Which no file system holds as names of their own, but for the last."""

ALIKE = [
    *(("01//a", "01/a"), ("02/b", "02//b"), ("03/c", "/03/c"), ("04 d", "04%20d"), ("05%20e", "05 e")),
    *(("06%2Ff", "06/f"), ("07%3Dg", "07=g"), ("08=h", "08%3Dh"), ("09//i%20j", "09/i j"), ("10%C3%BC", "10ü")),
    *(("11%20k", "11%2520k"), ("12%2520l", "12%20l")),
]
"""Nobody's and live: the live one's name may mean either, so both stay."""


class Round:
    """In the table's folders `deleted/` and `aside/` the same pairs; in `alike/` what has to stay."""

    def __init__(self, lake: Lake, *, slashes: bool) -> None:
        self.lake = lake
        self.table: Table = lake.table()
        pairs = [*PAIRS, *SLASHES] if slashes else [*PAIRS, SLASHES[-1]]
        alike = ALIKE if slashes else [(one, live) for one, live in ALIKE if "//" not in one + live and live[0] != "/"]
        self.orphans = {folder: self._fill(folder, pairs) for folder in ("deleted", "aside")}
        self._fill("alike", alike)
        self.markers: set[str] = set()
        if slashes:
            # A key that ends in a slash stands for a folder, whatever is in it.
            names = ("tail/", "deeper/tail/", "double//")
            self.markers = {lake.put(f"{self.at(folder)}/{name}") for folder in self.orphans for name in names}
        self.before = self.contents()

    def at(self, folder: str) -> str:
        return f"{self.table.location()}/{folder}"

    def _fill(self, folder: str, pairs: list[tuple[str, str]]) -> set[str]:
        found: set[str] = set()
        live_files: dict[str, int] = {}
        for orphan, live in pairs:
            found.add(self.lake.put(f"{self.at(folder)}/{orphan}", f"{folder} {orphan}".encode()))
            content = f"{folder} live {live}".encode()
            live_files[self.lake.put(f"{self.at(folder)}/{live}", content)] = len(content)
        add_entries(self.table, live_files)
        self.table.refresh()
        return found

    def contents(self) -> Mapping[str, bytes]:
        """Exact path → bytes, by the store's own word."""
        return {path: self._read(path) for path in self.lake.objects() if not path.startswith(self.at("metadata"))}

    def _read(self, path: str) -> bytes:
        if self.lake.is_local:
            return self.lake.read(path)
        bucket, _, key = path.removeprefix("s3://").partition("/")
        content: bytes = self.lake.client.get_object(Bucket=bucket, Key=key)["Body"].read()
        return content


def _assert_done(result: OrphanResult, files: int) -> None:
    assert (result.status, result.deleted_files) == (Status.DONE, files), result
    assert (result.failed, result.unknown) == ((), ())


def _whole_round(made: Round) -> None:
    lake, ours = made.lake, made.lake.open()
    everything = made.orphans["deleted"] | made.orphans["aside"]
    # Listed and compared.
    found = lake.orphans(ours, delete=False)
    assert {file.path for file in found.files} == everything
    assert {file.path: file.size for file in found.files} == {path: len(made.before[path]) for path in everything}
    assert made.contents() == made.before
    # Some deleted, each by its exact name.
    _assert_done(lake.orphans(ours, location=made.at("deleted")), len(made.orphans["deleted"]))
    left = {path: content for path, content in made.before.items() if path not in made.orphans["deleted"]}
    assert made.contents() == left
    # The others moved aside, under the same names.
    moved = lake.orphans(ours, removal="quarantine")
    _assert_done(moved, len(made.orphans["aside"]))
    assert moved.quarantine is not None
    entry = read_entry(ours.state, moved.quarantine)
    inside = {
        path.replace(made.table.location(), entry.quarantined_path, 1) if path in made.orphans["aside"] else path: one
        for path, one in left.items()
    }
    assert made.contents() == inside
    assert not lake.orphans(ours, delete=False).orphan_files
    # And back, byte by byte.
    restored = ours.restore(entry.id)
    assert (restored.status, restored.why, restored.notes) == (Status.DONE, None, ())
    assert made.contents() == left
    assert read_entry(ours.state, entry.id).state == EntryState.RESTORED
    assert {file.path for file in lake.orphans(ours, delete=False).files} == made.orphans["aside"]


@pytest.mark.requirement("EN-07")
def test_every_odd_key(exact_lake: Lake) -> None:
    made = Round(exact_lake, slashes=True)
    assert len(made.markers) == 6
    _whole_round(made)


@pytest.mark.requirement("EN-07")
def test_what_a_file_system_holds(local_lake: Lake) -> None:
    _whole_round(Round(local_lake, slashes=False))
