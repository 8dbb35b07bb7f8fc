"""Random histories of tables that share, nest, move and come back, against a model of who owns each file.

Two databases of one catalog, a second configured catalog, two that are not configured, and Delta tables, all over the
same few folders. After each step the verdict on every object, and what the orphan search finds in every table, are the
model's (`ownership_model.py`).
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.config import config_from_mapping
from lakehouse_maintenance.evidence import Evidence, Look
from lakehouse_maintenance.evidence.ownership import ownership
from lakehouse_maintenance.execution.deleting import Deletion
from lakehouse_maintenance.iceberg.manifests import MemoryCache
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.model.orphans import OrphanResult
from lakehouse_maintenance.planning.orphans import OrphanRequest
from lakehouse_maintenance.state import open_state
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance_tests.delta_logs import HEADER, add, lines, remove
from lakehouse_maintenance_tests.engine.foreign import add_entry, with_ids
from lakehouse_maintenance_tests.stateful.ownership_model import DAY, Log, MetadataFile, World, is_metadata, real

SCHEMA = with_ids(pa.schema([("id", pa.int64())]))
LIMITS = {"removed_share": 1.0, "removed_files": 100_000, "first_run_files": 100_000}
AGE = timedelta(days=2)

NAMES = ("main.a.t", "main.b.t", "main.a.u", "side.x.t", "other.a.t", "twin.a.t", "main.b.v")
"""`other` keeps its tables in main's SQL database; `twin` in side's, where it is called `main`. Neither of them is
configured."""

SHOWN = {"twin.a.t": "main.a.t in the database of catalog side"}
"""Where the product has to tell two tables of one name apart."""

PLACES = (
    None,
    None,
    "apart",
    "wh/a/t",
    "wh/a/t/nested",
    "wh/a/t_2",
    "wh/b/t/data/deep",
    "way/b/t",
    "wh/b",
    "delta/d",
    "delta/d/inner",
)
"""None: where the catalog puts it. `way` is a link to `wh`."""

WRITE_PATHS = (None, None, None, "wh/a/t/data", "elsewhere/of-nobody", "wh/b/t/_hidden")
ROOTS = ("delta/d", "wh/a/t", "wh/a/t/data/d", "wh/b", "wh/b/t/nested/d", "apart/d")
STRAYS = ("data", "data/p=1", "nested/deep", "_hidden", ".tmp", "metadata", "")
STRAY_NAMES = ("stray.parquet", "a b%20c.parquet", "ü'\"<b>|`.parquet", "_SUCCESS", "x\ny.parquet", "a+b=c:d.parquet")
ROOT_SPELLINGS = ("file://", "file:", "")

number = st.integers(0, 1_000)


@dataclass
class OneLook(Evidence):
    """Looks once, however many objects are asked about."""

    seen: Look | None = None

    def look(self) -> Look:
        if self.seen is None:
            self.seen = super().look()
        return self.seen


class Tables(RuleBasedStateMachine):
    """`world`: the model. `rows`: ids that each snapshot read when it was made; `held`: those of each data file."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="evidence-")))
        self.store = self.folder / "store"
        (self.store / "wh").mkdir(parents=True)
        (self.store / "way").symlink_to(self.store / "wh")
        self.world = World(str(self.store), strangers=frozenset({"other.a.t", "twin.a.t"}))
        self.numbers = itertools.count()
        self.ages = itertools.count(int(time.time() - 100 * DAY), 7)
        self.rows: dict[int, list[int]] = {}
        self.held: dict[str, int] = {}
        self.kept_as_they_are: set[str] = set()
        self.versions: dict[str, int] = {}
        self.undamaged: dict[str, bytes] = {}
        self.io = PyArrowFileIO()

    @initialize(
        n=number,
        place=st.sampled_from(PLACES),
        write_path=st.sampled_from(WRITE_PATHS),
        clone=st.none() | st.booleans(),
    )
    def open(self, n: int, place: str | None, write_path: str | None, clone: bool | None) -> None:
        """`clone`: whether a Delta table that names files of the first table is listed; None: there is none."""
        self.writers = {
            "main": self._catalog("main", "main", "a", "b"),
            "side": self._catalog("side", "side", "x"),
            "other": self._catalog("other", "main", "a"),
            "twin": self._catalog("main", "side", "a"),
        }
        self.ours = self._lakehouse("state")
        self.create(0, None, None, 2)
        self.create(n, place, write_path, 1)
        for folder in ("data", "data/_hidden"):
            self.stray(0, folder, "stray.parquet", "old")
        if clone is not None:
            self.create_delta("delta/d", clone, 1, n)

    def teardown(self) -> None:
        for writer in getattr(self, "writers", {}).values():
            writer.close()
        if hasattr(self, "ours"):
            self.ours.close()
        shutil.rmtree(self.folder)

    # What others do.

    @rule(n=number, place=st.sampled_from(PLACES), write_path=st.sampled_from(WRITE_PATHS), files=st.integers(0, 2))
    def create(self, n: int, place: str | None, write_path: str | None, files: int) -> None:
        name = self._free_name(n)
        if name is None:
            return
        options: dict[str, Any] = {"properties": {"write.metadata.previous-versions-max": "2"}}
        if place is not None:
            options["location"] = f"file://{self.store}/{place}"
        if write_path is not None:
            # What hides a file is told by its folder's spelling.
            way = "way" if place is not None and place.startswith("way/") and "_hidden" in write_path else "wh"
            spelled = write_path.replace("wh/", f"{way}/")
            options["properties"]["write.data.path"] = f"file://{self.store}/{spelled}"
        self._writer(name).create_table(self._identifier(name), SCHEMA, **options)
        self._moved(name)
        for _ in range(files):
            self._append(name)
        self._read_new_metadata()

    @rule(n=number, times=st.integers(1, 2))
    def append(self, n: int, times: int) -> None:
        name = self._table_name(n)
        for _ in range(times if name else 0):
            self._append(name)
        self._read_new_metadata()

    @rule(n=number)
    def delete_rows(self, n: int) -> None:
        name = self._table_name(n)
        if name is None:
            return
        table = self._load(name)
        found = self._ids(table)
        if found:
            table.delete(f"id = {found[n % len(found)]}")
        self._moved(name)

    @rule(n=number)
    def expire(self, n: int) -> None:
        """The metadata forgets a snapshot; its files stay."""
        name = self._table_name(n)
        if name is None:
            return
        table = self._load(name)
        kept = {ref.snapshot_id for ref in table.metadata.refs.values()}
        old = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id not in kept]
        if old:
            table.maintenance.expire_snapshots().by_id(old[n % len(old)]).commit()
        self._moved(name)

    @rule(n=number, branch=st.booleans())
    def refer(self, n: int, branch: bool) -> None:
        name = self._table_name(n)
        head = None if name is None else self._load(name).current_snapshot()
        if head is None:
            return
        manage = self._load(name).manage_snapshots()
        label = f"ref{next(self.numbers)}"
        (manage.create_branch if branch else manage.create_tag)(head.snapshot_id, label).commit()
        self._moved(name)

    @rule(n=number)
    def rename(self, n: int) -> None:
        names = [
            name
            for name, pointer in self.world.pointers.items()
            if name.startswith("main.") and pointer not in self.world.damaged
        ]
        free = [name for name in NAMES if name.startswith("main.") and name not in self.world.pointers]
        if names and free:
            old, new = names[n % len(names)], free[n % len(free)]
            self.writers["main"].rename_table(self._identifier(old), self._identifier(new))
            self.world.pointers[new] = self.world.pointers.pop(old)

    @rule(n=number)
    def drop(self, n: int) -> None:
        name = _pick(list(self.world.pointers), n)
        if name is not None:
            self._writer(name).drop_table(self._identifier(name))
            del self.world.pointers[name]

    @rule(n=number, m=number)
    def register(self, n: int, m: int) -> None:
        """An earlier state, under a name that is free."""
        name = self._free_name(n)
        whole = [path for path in self.world.metadata if self._is_whole(path)]
        path = _pick(whole, m)
        if name is not None and path is not None:
            self._writer(name).register_table(self._identifier(name), f"file://{path}")
            self.world.pointers[name] = path

    @rule(n=number, m=number, spelling=st.sampled_from(ROOT_SPELLINGS))
    def add_file(self, n: int, m: int, spelling: str) -> None:
        """A file that lies anywhere, another table's included."""
        name = self._table_name(n)
        there = [path for path in sorted(self.held) if os.path.exists(path)]
        path = _pick(there, m)
        if name is not None and path is not None:
            self._add(name, path, spelling)

    @rule(
        n=number,
        folder=st.sampled_from(STRAYS),
        name=st.sampled_from(STRAY_NAMES),
        age=st.sampled_from(["old", "old", "old", "young", "future", "1970"]),
    )
    def stray(self, n: int, folder: str, name: str, age: str) -> None:
        """A writer died."""
        homes = sorted({home for one in self.world.visible() for home in one.folders}) or [str(self.store / "wh/a/t")]
        path = str(Path(homes[n % len(homes)], folder, name))
        if os.path.exists(path):
            return
        self._parquet(path)
        seconds = {"young": time.time() - DAY, "future": time.time() + DAY, "1970": 5.0}.get(age)
        if seconds is not None:
            os.utime(path, (seconds, seconds))
            self.kept_as_they_are.add(path)

    @rule(n=number, enabled=st.booleans())
    def forbid_deleting(self, n: int, enabled: bool) -> None:
        name = self._table_name(n)
        if name is not None:
            with self._load(name).transaction() as transaction:
                transaction.set_properties({"gc.enabled": str(enabled).lower()})
            self._moved(name)

    @rule(n=number, manifest=st.booleans())
    def damage(self, n: int, manifest: bool) -> None:
        """A table's current metadata, or a manifest of it, cannot be read for a while."""
        name = self._table_name(n)
        if name is None or self.world.damaged:
            return
        pointer = self.world.pointers[name]
        needed = sorted(self.world.metadata[pointer].to_read)
        path = needed[n % len(needed)] if manifest and needed else pointer
        content = Path(path).read_bytes()
        self.undamaged[path] = content
        Path(path).write_bytes(content[: len(content) // 2])
        self.world.damaged.add(path)

    @rule(n=number)
    def damage_stray(self, n: int) -> None:
        """Something that looks like metadata."""
        if self.world.damaged:
            return
        folder = self.store / (ROOTS[n % len(ROOTS)]) / "metadata"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{next(self.numbers):05d}-x.metadata.json"
        path.write_bytes(b"{}")
        self.world.damaged.add(str(path))

    @rule()
    def repair(self) -> None:
        for path in self.world.damaged:
            if path in self.undamaged:
                if os.path.exists(path):
                    Path(path).write_bytes(self.undamaged[path])
            else:
                with suppress(FileNotFoundError):
                    os.unlink(path)
        self.world.damaged.clear()
        for root, log in list(self.world.logs.items()):
            if not log.is_readable:
                self._log_file(root).write_text(lines(*HEADER))
                self.world.logs[root] = Log(log.names)

    @rule(root=st.sampled_from(ROOTS), is_listed=st.booleans(), files=st.integers(0, 2), reaches=st.none() | number)
    def create_delta(self, root: str, is_listed: bool, files: int, reaches: int | None) -> None:
        path = str(self.store / root)
        if path in self.world.logs:
            return
        (Path(path) / "_delta_log").mkdir(parents=True, exist_ok=True)
        self.versions[path] = -1
        self.world.logs[path] = Log(frozenset())
        self._commit_delta(path, *HEADER)
        for _ in range(files):
            self._append_delta(path)
        if reaches is not None:
            self._name_elsewhere(path, reaches)
        if is_listed:
            self.world.listed[f"lake.{root.replace('/', '-')}"] = path
            self.ours.close()
            self.ours = self._lakehouse("state")

    @rule(n=number, m=number, what=st.sampled_from(["append", "remove", "elsewhere"]))
    def commit_delta(self, n: int, m: int, what: str) -> None:
        """`elsewhere`: a file of somebody else's."""
        root = _pick([one for one, log in self.world.logs.items() if log.is_readable], n)
        if root is None:
            return
        if what == "append":
            self._append_delta(root)
        if what == "elsewhere":
            self._name_elsewhere(root, m)
        if what == "remove":
            own = [one for one in sorted(self.world.logs[root].names) if one.startswith(f"{root}/part-")]
            if own:
                self._commit_delta(root, remove(os.path.basename(own[m % len(own)])))

    @rule(n=number)
    def damage_delta(self, n: int) -> None:
        root = _pick([one for one, log in self.world.logs.items() if log.is_readable], n)
        if root is not None and all(log.is_readable for log in self.world.logs.values()):
            self._log_file(root).write_text('{"add":')
            self.world.logs[root] = Log(self.world.logs[root].names, is_readable=False)

    # What we do.

    @rule(n=number, m=number, meanwhile=st.sampled_from(["nothing", "nothing", "add", "create", "damage"]))
    def remove_orphans(self, n: int, m: int, meanwhile: str) -> None:
        """`meanwhile`: what somebody does after the search, right before the deletion."""
        name = _pick([one for one in self.world.pointers if one in self._configured()], n)
        if name is None:
            return
        self._age()
        found = self.world.orphans(name, self._before())
        before = set(self.world.files())
        others = [one for one in self.world.pointers if one != name and self._is_writable(one)]
        kept: set[str] = set()
        real_removal = Deletion.remove

        def removal(deletion: Deletion, *args: Any, **options: Any) -> Any:
            adopted = sorted(path for path in found or () if path in self.held)
            if meanwhile == "add" and others and adopted:
                kept.add(adopted[m % len(adopted)])
                self._add(others[m % len(others)], adopted[m % len(adopted)], "file:")
            elif meanwhile == "create" and (free := self._free_name(m)) is not None:
                place = self._load(name).location()
                self._writer(free).create_table(self._identifier(free), SCHEMA, location=f"{place}/comes-in-between")
                self._moved(free)
                kept.update(found or ())
            elif meanwhile == "damage" and not self.world.damaged:
                pointer = self.world.pointers[name]
                self.undamaged[pointer] = Path(pointer).read_bytes()
                Path(pointer).write_bytes(b"{")
                self.world.damaged.add(pointer)
                kept.update(found or ())
            return real_removal(deletion, *args, **options)

        with patch.object(Deletion, "remove", removal):
            result = self._search(self.ours, name, delete=True)
        gone = before - set(self.world.files())
        expected = set() if found is None else found - kept
        if self.world.damaged or found is None:
            assert gone in (expected, set()), (name, result, gone ^ expected)
        else:
            assert gone == expected, (name, result, gone ^ expected)
        assert result.deleted_files == len(gone), result
        self._every_row_is_there()

    # What must hold.

    @invariant()
    def the_verdict_on_every_object_is_the_models(self) -> None:
        self._age()
        evidence = OneLook(self.ours.catalogs, self.ours._evidence().delta, MemoryCache())
        storage = Storage({})
        shown = {shown: name for name, shown in SHOWN.items()}
        for path in sorted(self.world.files()):
            found = ownership(evidence, storage, Location.parse(f"file://{path}"))
            assert found.owned == self.world.verdict(path), (path, found)
            if found.owned:
                by = {shown.get(one.table, one.table).removeprefix("file://") for one in found.by}
                assert by == self.world.owner_names(path), (path, found)

    @invariant()
    def the_search_finds_the_models_orphans(self) -> None:
        self._age()
        before = self._before()
        trouble = bool(self.world.damaged)
        # What was read once is remembered under its pointer: the search may know a table that cannot be read now.
        strict = self._lakehouse(f"state-{next(self.numbers)}") if trouble else self.ours
        for name in [one for one in self.world.pointers if one in self._configured()]:
            expected = self.world.orphans(name, before)
            result = self._search(strict, name)
            if expected is None:
                assert result.status in (Status.BLOCKED, Status.FAILED), (name, result)
            else:
                assert result.status is Status.DONE, (name, result, expected)
                assert {real(file.path) for file in result.files} == expected, (name, result)
            if trouble:
                result = self._search(self.ours, name)
                assert not {real(file.path) for file in result.files} & self._named_now(), (name, result)
        if strict is not self.ours:
            strict.close()

    # Helpers.

    def _catalog(self, name: str, database: str, *namespaces: str) -> SqlCatalog:
        catalog = SqlCatalog(name, uri=f"sqlite:///{self.folder}/{database}.db", warehouse=f"file://{self.store}/wh")
        for namespace in namespaces:
            catalog.create_namespace_if_not_exists(namespace)
        return catalog

    def _lakehouse(self, state: str) -> Lakehouse:
        catalogs = {
            name: {"type": "sql", "uri": f"sqlite:///{self.folder}/{name}.db", "warehouse": f"file://{self.store}/wh"}
            for name in ("main", "side")
        }
        tables = {name.partition(".")[2]: root for name, root in self.world.listed.items()}
        config = {
            "catalogs": catalogs,
            "state": {"url": str(self.folder / state)},
            "limits": LIMITS,
            **({"delta": {"lake": {"tables": tables}}} if tables else {}),
        }
        loaded = config_from_mapping(config, base=self.folder)
        return Lakehouse(loaded, open_state(loaded.state.url))

    def _search(self, ours: Lakehouse, name: str, *, delete: bool = False) -> OrphanResult:
        (result,) = ours.iter_orphans([TableName.parse(name)], OrphanRequest(older_than=AGE), delete=delete)
        return result

    def _before(self) -> float:
        return time.time() - AGE.total_seconds()

    def _configured(self) -> set[str]:
        return set(NAMES) - self.world.strangers

    def _writer(self, name: str) -> SqlCatalog:
        return self.writers[name.partition(".")[0]]

    def _identifier(self, name: str) -> str:
        return name.partition(".")[2]

    def _load(self, name: str) -> Table:
        return self._writer(name).load_table(self._identifier(name))

    def _free_name(self, n: int) -> str | None:
        return _pick([name for name in NAMES if name not in self.world.pointers], n)

    def _is_writable(self, name: str) -> bool:
        return self.world.is_readable(self.world.pointers[name]) and self._is_whole(self.world.pointers[name])

    def _is_whole(self, metadata_file: str) -> bool:
        """Every file that it needs is there, its history excepted."""
        if not self.world.is_readable(metadata_file):
            return False
        return all(
            os.path.exists(path) or is_metadata(path) or path.endswith("version-hint.text")
            for path in self.world.metadata[metadata_file].names
        )

    def _table_name(self, n: int) -> str | None:
        return _pick([name for name in self.world.pointers if self._is_writable(name)], n)

    def _append(self, name: str) -> None:
        table = self._load(name)
        folder = table.properties.get("write.data.path", f"{table.location()}/data")
        self._add(name, self._parquet(f"{real(folder)}/{next(self.numbers)}.parquet"), "file://")

    def _add(self, name: str, path: str, spelling: str) -> None:
        add_entry(self._load(name), spelling + path, records=1, size=os.path.getsize(path))
        self._moved(name)

    def _parquet(self, path: str) -> str:
        """A data file of one row."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        row = next(self.numbers)
        pq.write_table(pa.table([[row]], SCHEMA), path, store_schema=False)
        if "\n" not in path:  # which PyIceberg cannot open
            self.held[real(path)] = row
        return real(path)

    def _moved(self, name: str) -> None:
        """The table has new metadata: the model learns what it says, from PyIceberg."""
        table = self._load(name)
        self.world.pointers[name] = real(table.metadata_location)
        self._read_new_metadata()
        for snapshot in table.metadata.snapshots:
            if snapshot.snapshot_id not in self.rows:
                self.rows[snapshot.snapshot_id] = self._ids(table, snapshot.snapshot_id)

    def _read_new_metadata(self) -> None:
        for path in self.world.files():
            if is_metadata(path) and path not in self.world.metadata and path not in self.world.damaged:
                self.world.metadata[path] = self._read(path)

    def _read(self, path: str) -> MetadataFile:
        metadata = FromInputFile.table_metadata(self.io.new_input(f"file://{path}"))
        write_path = metadata.properties.get("write.data.path")
        folders = dict.fromkeys(map(real, [metadata.location, *([write_path] if write_path else [])]))
        to_read: set[str] = set()
        names = {path, f"{real(metadata.location)}/metadata/version-hint.text"}
        names |= {real(entry.metadata_file) for entry in metadata.metadata_log}
        for snapshot in metadata.snapshots:
            to_read.add(real(snapshot.manifest_list))
            for manifest in snapshot.manifests(self.io):
                to_read.add(real(manifest.manifest_path))
                entries = manifest.fetch_manifest_entry(self.io, discard_deleted=True)
                names |= {real(entry.data_file.file_path) for entry in entries}
        keeps_all = metadata.properties.get("gc.enabled", "true") != "true"
        return MetadataFile(
            str(metadata.table_uuid), tuple(folders), frozenset(names | to_read), frozenset(to_read), keeps_all
        )

    def _ids(self, table: Table, snapshot_id: int | None = None) -> list[int]:
        return sorted(table.scan(snapshot_id=snapshot_id).to_arrow()["id"].to_pylist())

    def _every_row_is_there(self) -> None:
        for name in self.world.pointers:
            if self._is_writable(name):
                table = self._load(name)
                for snapshot in table.metadata.snapshots:
                    assert self._ids(table, snapshot.snapshot_id) == self.rows[snapshot.snapshot_id], name

    def _named_now(self) -> frozenset[str]:
        """By any table that a catalog shows, readable or not, and by any listed Delta table."""
        pointers = self.world.pointers.values()
        logs = [self.world.logs[root] for root in self.world.listed.values()]
        return frozenset().union(*(self.world.metadata[one].names for one in pointers), *(one.names for one in logs))

    def _age(self) -> None:
        """All that was written is old, each file by an age of its own; but for those that are meant to be young."""
        for path, status in self.world.files().items():
            if path not in self.kept_as_they_are and status.st_mtime > time.time() - 50 * DAY:
                seconds = next(self.ages)
                os.utime(path, (seconds, seconds))

    def _log_file(self, root: str) -> Path:
        return Path(root, "_delta_log", f"{0:020d}.json")

    def _commit_delta(self, root: str, *actions: dict[str, Any]) -> None:
        self.versions[root] += 1
        Path(root, "_delta_log", f"{self.versions[root]:020d}.json").write_text(lines(*actions))

    def _append_delta(self, root: str) -> None:
        path = self._parquet(f"{root}/part-{next(self.numbers)}.parquet")
        self._commit_delta(root, add(os.path.basename(path)))
        self._delta_names(root, path)

    def _name_elsewhere(self, root: str, m: int) -> None:
        """As a shallow clone does: by absolute paths."""
        path = _pick([one for one in sorted(self.held) if os.path.exists(one)], m)
        if path is not None:
            self._commit_delta(root, add(f"file://{_encoded(path)}"))
            self._delta_names(root, path)

    def _delta_names(self, root: str, path: str) -> None:
        self.world.logs[root] = Log(self.world.logs[root].names | {path})


def _encoded(path: str) -> str:
    from urllib.parse import quote

    return quote(path)


def _pick(items: Sequence[str], n: int) -> str | None:
    return items[n % len(items)] if items else None


_is_long = settings().max_examples > 100
# Hundreds of histories, each of some seconds, are one test.
pytestmark = pytest.mark.timeout(3 * 3600 if _is_long else 300)
TestTables = Tables.TestCase
TestTables.settings = settings(
    settings(),
    max_examples=300 if _is_long else 3,
    stateful_step_count=12,
    deadline=None,
    derandomize=not _is_long,
    database=None if not _is_long else settings().database,
    suppress_health_check=list(HealthCheck),
)
