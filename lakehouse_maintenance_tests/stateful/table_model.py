"""One table of random history: what its writers do, and what each of its snapshots and branches must read since then.

The model is told by the writers alone: it holds, for each snapshot, the rows by field id. A snapshot that we made holds
its parent's. Rows are told apart by `id`, which no writer uses twice.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.expressions import EqualTo
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform
from pyiceberg.types import DoubleType, IntegerType, LongType, StringType

from lakehouse_maintenance.catalogs.format_v3 import teach
from lakehouse_maintenance_tests.engine.test_v3_upgraded import edited, to_v3
from lakehouse_maintenance_tests.stateful.naive_reader import Reading, files_of, local, read
from lakehouse_maintenance_tests.stateful.row_writer import NewFile, RowWriter

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

NAME = "db.t"
SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("x", pa.float64()), ("n", pa.int32())])
ID, P, N = 1, 2, 4

Rows = dict[int, dict[int, Any]]
"""id → field id → value, nulls left out."""

Change = tuple[str, int]
"""What a writer does, and a seed for its choices."""


class TableModel:
    """`rows`: what each snapshot holds; `refs`: where branches and tags are; `strays`: files that nobody names."""

    def __init__(self, catalog: SqlCatalog, folder: Path, version: int, partitioned: bool) -> None:
        teach(catalog)
        self.catalog, self.folder, self.version = catalog, folder, version
        self.writer = RowWriter(catalog, NAME)
        self.numbers = itertools.count()
        self.rows: dict[int | None, Rows] = {None: {}}
        self.refs: dict[str, int] = {}
        self.staged: dict[int, tuple[list[NewFile], Rows]] = {}
        self.strays: dict[str, tuple[list[NewFile], Rows]] = {}
        self.dropped: list[str] = []
        self.seen: dict[int, Reading] = {}
        self.stats: dict[str, tuple[int, int]] = {}
        self.written: set[str] = set()
        catalog.create_namespace("db")
        catalog.create_table(NAME, SCHEMA, properties={"format-version": str(min(version, 2))})
        if version == 3:
            edited(catalog, NAME, to_v3)
        if partitioned:
            with self.table.update_spec() as update:
                update.add_identity("p")

    # What is there.

    @property
    def table(self) -> Table:
        return self.catalog.load_table(NAME)

    def raw(self) -> dict[str, Any]:
        """The current metadata file."""
        found: dict[str, Any] = json.loads(Path(local(self.table.metadata_location)).read_bytes())
        return found

    def disk(self) -> dict[str, tuple[int, int]]:
        """Every file of the table with its size and time."""
        found = {}
        for folder, _, names in os.walk(self.folder / "warehouse"):
            for path in (os.path.join(folder, name) for name in names):
                status = os.stat(path)
                found[path] = (status.st_size, status.st_mtime_ns)
        return found

    def unexplained(self) -> set[str]:
        """Files that the table does not name and nobody put there on purpose."""
        raw = self.raw()
        named = {local(self.table.metadata_location), *self.strays}
        named |= {local(entry["metadata-file"]) for entry in raw.get("metadata-log", ())}
        for snapshot in raw.get("snapshots", ()):
            named |= files_of(raw, snapshot["snapshot-id"])[1]
        return set(self.disk()) - named

    # What must hold.

    def learn(self) -> list[int]:
        """Takes note of snapshots that we made: each holds what its parent does, on the branch where that was the head.
        Returns them."""
        raw = self.raw()
        found = [one for one in raw.get("snapshots", ()) if one["snapshot-id"] not in self.rows]
        for snapshot in found:
            assert snapshot["summary"]["operation"] == "replace", snapshot
            assert "lakehouse-maintenance.run-id" in snapshot["summary"], snapshot
            self.rows[snapshot["snapshot-id"]] = self.rows[snapshot["parent-snapshot-id"]]
        ours = {one["snapshot-id"]: one["parent-snapshot-id"] for one in found}
        refs = _refs(raw)
        assert refs.keys() == self.refs.keys(), "no ref comes or goes"
        for name, head in refs.items():
            at = head
            while at != self.refs[name]:
                assert at in ours, f"{name} moved to a snapshot that is not ours"
                at = ours[at]
        self.refs = refs
        return list(ours)

    def check(self) -> None:
        """Every kept snapshot and ref reads what it must; none of their files is missing or changed."""
        self.learn()
        raw, disk = self.raw(), self.disk()
        schemas = {one["schema-id"]: [f["id"] for f in one["fields"]] for one in raw["schemas"]}
        numbers = [number for one in raw.get("snapshots", ()) if (number := one.get("sequence-number", 0))]
        assert len(set(numbers)) == len(numbers), "those of version 1 are 0"
        for snapshot in raw.get("snapshots", ()):
            number = snapshot["snapshot-id"]
            if number not in self.seen:
                self.seen[number] = reading = read(raw, number)
                self._same(reading, number, schemas[snapshot["schema-id"]])
                self._keeps_lineage(reading, snapshot, raw)
            missing = {path for path in self.seen[number].files if path not in disk}
            assert not missing, (number, missing)
            for path in self.seen[number].files:
                assert self.stats.setdefault(path, disk[path]) == disk[path], f"{path} changed"
        for number in set(self.refs.values()):
            self._same(self.seen[number], number, schemas[raw["current-schema-id"]])

    def check_with_pyiceberg(self) -> None:
        """Main, read by PyIceberg; equality deletes it refuses."""
        table = self.table
        head = table.current_snapshot()
        if head is None or self.seen[head.snapshot_id].has_equality_deletes:
            return
        names = {one.name: one.field_id for one in table.schema().fields}
        found = [{names[k]: v for k, v in row.items() if v is not None} for row in table.scan().to_arrow().to_pylist()]
        wanted = _projected(self.rows[head.snapshot_id], set(names.values()))
        assert sorted(found, key=_id) == sorted(wanted, key=_id)

    def _same(self, reading: Reading, snapshot: int, fields: list[int]) -> None:
        found = _projected_rows([row.values for row in reading.rows], set(fields))
        assert sorted(found, key=_id) == sorted(_projected(self.rows[snapshot], set(fields)), key=_id), snapshot

    def _keeps_lineage(self, reading: Reading, snapshot: dict[str, Any], raw: dict[str, Any]) -> None:
        """Row ids are unique, and below the next; a rewrite leaves them to their rows."""
        given = [row.row_id for row in reading.rows if row.row_id is not None]
        assert len(set(given)) == len(given)
        assert not given or max(given) < raw["next-row-id"]
        before = self.seen.get(snapshot.get("parent-snapshot-id"))
        if before is None or snapshot["summary"]["operation"] != "replace":
            return
        if raw["format-version"] == 3:
            assert reading.position_files <= before.position_files, "version 3 takes no new ones"
        lines = {row.values[ID]: (row.row_id, row.last_updated) for row in before.rows if row.row_id is not None}
        after = {row.values[ID]: (row.row_id, row.last_updated) for row in reading.rows if row.values[ID] in lines}
        assert after == lines

    # What writers do.

    def change(self, change: Change) -> None:
        """One writer's commit, or nothing where it has no object."""
        kind, seed = change
        self.learn()
        there = set(self.disk())
        rows = CHANGES[kind](self, random.Random(seed))
        raw = self.raw()
        new = [one["snapshot-id"] for one in raw.get("snapshots", ()) if one["snapshot-id"] not in self.rows]
        for number in new[:-1]:
            # PyIceberg makes two of some deletes; the first is nobody's head.
            self.rows[number] = {row.values[ID]: row.values for row in read(raw, number).rows}
        if new:
            assert rows is not None, kind
            self.rows[new[-1]] = rows
        self.refs = _refs(raw)
        self.written |= set(self.disk()) - there

    def _head(self, branch: str = "main") -> tuple[Rows, Reading]:
        number = self.refs.get(branch)
        return self.rows[number], Reading() if number is None else read(self.raw(), number)

    def _branch(self, choice: random.Random) -> str:
        return choice.choice(["main", "main", *(["b"] if "b" in self.refs else [])])

    def _new_rows(self, choice: random.Random, count: int) -> Rows:
        rows: Rows = {}
        fields = self.table.schema().fields
        for number in itertools.islice(self.numbers, count):
            row: dict[int, Any] = {}
            for one in fields:
                value: Any = {
                    "string": choice.choice(["a", "b", None]),
                    "double": choice.choice([number / 2, None]),
                    "int": choice.randrange(4),
                    "long": choice.choice([1 << 40, number, None]),
                }[str(one.field_type)]
                if one.field_id == ID:
                    value = number
                if value is not None:
                    row[one.field_id] = value
            rows[number] = row
        return rows

    def append(self, choice: random.Random) -> Rows:
        branch = self._branch(choice)
        rows = self._new_rows(choice, choice.randrange(1, 6))
        table = self.table
        if self.version < 3 and (self.version == 1 or choice.random() < 0.5):
            schema = table.schema().as_arrow()
            ids = [one.field_id for one in table.schema().fields]
            columns = [pa.array([row.get(i) for row in rows.values()], schema.field(n).type) for n, i in enumerate(ids)]
            table.append(pa.table(columns, schema=schema), branch=branch)
        else:
            files = self.writer.data(table, list(rows.values()))
            self.writer.commit(table, files, branch=branch, operation=Operation.APPEND)
        return self.rows[self.refs.get(branch)] | rows

    def stage(self, choice: random.Random) -> Rows | None:
        """As `write.wap.enabled` does: a snapshot that no branch is at."""
        if self.version == 1:
            return None
        rows = self._new_rows(choice, 3)
        table = self.table
        files = self.writer.data(table, list(rows.values()))
        self.staged[self.writer.commit(table, files, is_staged=True, operation=Operation.APPEND)] = files, rows
        return self.rows[self.refs.get("main")] | rows

    def publish(self, choice: random.Random) -> Rows | None:
        """Cherry-picks: the very files of a staged snapshot, added once more on the head."""
        kept = {one["snapshot-id"] for one in self.raw().get("snapshots", ())}
        there = sorted(kept & self.staged.keys())
        if not there:
            return None
        files, rows = self.staged.pop(choice.choice(there))
        self.writer.commit(self.table, files, operation=Operation.APPEND)
        return self.rows[self.refs.get("main")] | rows

    def overwrite(self, choice: random.Random) -> Rows | None:
        """Copy on write: files without some of their rows."""
        rows, reading = self._head()
        if not rows:
            return None
        victim = choice.choice(sorted(rows))
        table = self.table
        if self.version < 3 and not reading.has_equality_deletes:
            table.delete(EqualTo("id", victim))
        else:
            row = next(row for row in reading.rows if row.values[ID] == victim)
            left = [one.values for one in reading.rows if one.path == row.path and one.position != row.position]
            vectors = [one.identity for one in reading.entries if one.referenced == row.path and one.offset is not None]
            added = self.writer.data(table, left) if left else []
            self.writer.commit(table, added, {(row.path, None), *vectors})
        return {number: row for number, row in rows.items() if number != victim}

    def delete_positions(self, choice: random.Random) -> Rows | None:
        """Per file or per partition; vectors in version 3; at times all rows of a file."""
        branch = self._branch(choice)
        rows, reading = self._head(branch)
        if self.version == 1 or not rows:
            return None
        found = choice.sample(reading.rows, min(len(reading.rows), choice.randrange(1, 4)))
        if choice.random() < 0.3:
            found = [row for row in reading.rows if row.path == found[0].path]
        partitions = {row.path: row.partition for row in found}
        taken: dict[str, set[int]] = {}
        for row in found:
            taken.setdefault(row.path, set()).add(row.position)
        table = self.table
        removed: set[tuple[str, int | None]] = set()
        if self.version == 3:
            vectors = {p: (partitions[p], taken[p] | reading.positions.get(p, set())) for p in taken}
            added = self.writer.vectors(table, vectors)
            removed = {e.identity for e in reading.entries if e.referenced in taken and e.offset is not None}
        else:
            groups: dict[Any, dict[str, set[int]]] = {}
            per_file = choice.random() < 0.5
            for path, positions in taken.items():
                groups.setdefault(path if per_file else partitions[path], {})[path] = positions
            added = [self.writer.positions(table, partitions[next(iter(one))], one) for one in groups.values()]
        self.writer.commit(table, added, removed, branch=branch)
        gone = {row.values[ID] for row in found}
        return {number: row for number, row in rows.items() if number not in gone}

    def delete_keys(self, choice: random.Random) -> Rows | None:
        branch = self._branch(choice)
        rows, reading = self._head(branch)
        if self.version == 1 or not rows:
            return None
        table = self.table
        current = [one.field_id for one in table.schema().fields]
        columns = choice.choice([[ID], choice.sample(current, min(2, len(current)))])
        target = choice.choice(reading.rows)
        keys = [choice.choice(reading.rows).values for _ in range(2)] + [target.values]
        spec = table.specs()[target.partition[0]]
        wanted = {tuple(key.get(i) for i in columns) for key in keys}
        gone = {
            row.values[ID]
            for row in reading.rows
            if (not spec.fields or row.partition == target.partition)
            and tuple(row.values.get(i) for i in columns) in wanted
        }
        self.writer.commit(table, [self.writer.keys(table, target.partition, columns, keys)], branch=branch)
        return {number: row for number, row in rows.items() if number not in gone}

    def evolve_schema(self, choice: random.Random) -> None:
        table = self.table
        sources = {one.source_id for spec in table.specs().values() for one in spec.fields}
        free = [one for one in table.schema().fields if one.field_id not in {ID, *sources}]
        kinds = ["add", "add again", *(["rename", "rename", "drop", "drop and add", "promote"] if free else [])]
        kind = choice.choice(kinds)
        name = f"c{next(self.numbers)}"
        with table.update_schema(allow_incompatible_changes=True) as update:
            if kind == "add":
                update.add_column(name, choice.choice([LongType(), StringType(), DoubleType(), IntegerType()]))
            elif kind == "add again" and self.dropped:
                update.add_column(self.dropped.pop(), StringType())
            elif kind == "rename":
                update.rename_column(choice.choice(free).name, name)
            elif kind == "drop":
                self.dropped.append(choice.choice(free).name)
                update.delete_column(self.dropped[-1])
            elif kind == "drop and add":
                gone = choice.choice(free)
                update.delete_column(gone.name)
                update.add_column(gone.name, LongType())
            elif kind == "promote":
                for one in free:
                    if str(one.field_type) == "int":
                        update.update_column(one.name, LongType())

    def evolve_partition(self, choice: random.Random) -> None:
        """Buckets in version 3 alone: PyIceberg writes none without its Rust core."""
        table = self.table
        live = [one for one in table.spec().fields if not isinstance(one.transform, VoidTransform)]
        sources = {one.source_id for one in live}
        with table.update_spec() as update:
            if live and choice.random() < 0.5:
                update.remove_field(choice.choice(live).name)
                return
            source = choice.choice([ID, P, N]) if self.version == 3 else choice.choice([P, N])
            name = table.schema().find_column_name(source)
            if name is None or source in sources:
                return
            kind = BucketTransform(2) if source == ID else IdentityTransform()
            update.add_field(name, kind, f"k{next(self.numbers)}")

    def make_refs(self, choice: random.Random) -> None:
        """Tags and branches come and go."""
        table = self.table
        if not table.metadata.snapshots:
            return
        at = choice.choice([*table.metadata.snapshots[-2:], table.current_snapshot() or table.metadata.snapshots[-1]])
        tags = [name for name in self.refs if name.startswith("tag")]
        manage = table.manage_snapshots()
        if "b" not in self.refs:
            manage.create_branch(at.snapshot_id, "b").commit()
        elif tags and choice.random() < 0.4:
            manage.remove_tag(choice.choice(tags)).commit()
        elif choice.random() < 0.2:
            manage.remove_branch("b").commit()
        else:
            manage.create_tag(at.snapshot_id, f"tag{next(self.numbers)}").commit()

    def roll_back(self, choice: random.Random) -> None:
        """To any snapshot of main's history that is kept."""
        table = self.table
        kept = {one.snapshot_id: one.parent_snapshot_id for one in table.metadata.snapshots}
        at, history = self.refs.get("main"), []
        while at in kept:
            at = kept[at]
            if at in kept:
                history.append(at)
        if history:
            table.manage_snapshots().set_current_snapshot(choice.choice(history[:3])).commit()

    def set_property(self, choice: random.Random) -> None:
        with self.table.transaction() as transaction:
            name, value = choice.choice([("comment", "c"), ("commit.manifest.target-size-bytes", "4000")])
            transaction.set_properties({name: f"{value}{next(self.numbers)}" if name == "comment" else value})

    def stray(self, choice: random.Random) -> None:
        """A data file that was never committed, of a writer that was killed."""
        rows = self._new_rows(choice, 1)
        files = self.writer.data(self.table, list(rows.values()))
        self.strays[local(files[0].record["file_path"])] = files, rows

    def adopt(self, choice: random.Random) -> Rows | None:
        """Somebody adds such a file to the table after all."""
        there = [path for path in sorted(self.strays) if os.path.exists(path)]
        if self.version == 1 or not there:
            return None
        files, rows = self.strays.pop(choice.choice(there))
        self.writer.commit(self.table, files, operation=Operation.APPEND)
        return self.rows[self.refs.get("main")] | rows

    def upgrade(self, choice: random.Random) -> None:
        if self.version == 2:
            edited(self.catalog, NAME, to_v3)
        elif self.version == 1:
            with self.table.transaction() as transaction:
                transaction.upgrade_table_version(2)
        self.version = min(self.version + 1, 3)


CHANGES: dict[str, Callable[[TableModel, random.Random], Rows | None]] = {
    "append": TableModel.append,
    "stage": TableModel.stage,
    "publish": TableModel.publish,
    "overwrite": TableModel.overwrite,
    "delete positions": TableModel.delete_positions,
    "delete keys": TableModel.delete_keys,
    "evolve the schema": TableModel.evolve_schema,
    "evolve the partition": TableModel.evolve_partition,
    "tag or branch": TableModel.make_refs,
    "roll back": TableModel.roll_back,
    "set a property": TableModel.set_property,
    "leave a stray": TableModel.stray,
    "adopt a stray": TableModel.adopt,
    "upgrade": TableModel.upgrade,
}


def _refs(raw: dict[str, Any]) -> dict[str, int]:
    return {name: one["snapshot-id"] for name, one in raw.get("refs", {}).items()}


def _id(row: dict[int, Any]) -> int:
    return int(row[ID])


def _projected(rows: Rows, fields: set[int]) -> list[dict[int, Any]]:
    return _projected_rows(list(rows.values()), fields)


def _projected_rows(rows: list[dict[int, Any]], fields: set[int]) -> list[dict[int, Any]]:
    return [{name: value for name, value in row.items() if name in fields} for row in rows]
