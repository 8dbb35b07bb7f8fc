"""Data files as other writers leave them, put into a table as they are, and compaction watched by two readers."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.outcomes import ActionOutcome, TableOutcome
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.bounds import check_statistics
from lakehouse_maintenance_tests.engine.tables import lakehouse
from lakehouse_maintenance_tests.readers import read_duckdb, read_pyiceberg
from lakehouse_maintenance_tests.services.catalogs import make_sql_catalog

if TYPE_CHECKING:
    from pyiceberg.table import Table


def with_ids(schema: pa.Schema, first: int = 1) -> pa.Schema:
    """The schema with the field ids that a new table gives to flat columns: counted from 1."""
    return pa.schema(
        [field.with_metadata({b"PARQUET:field_id": str(first + index).encode()}) for index, field in enumerate(schema)]
    )


def put_file(table: Table, path: str, rows: pa.Table, **options: Any) -> int:
    """Writes a Parquet file as it is told to; returns its size."""
    sink = io.BytesIO()
    pq.write_table(rows, sink, store_schema=False, **options)
    with table.io.new_output(path).create(overwrite=True) as out:
        out.write(sink.getvalue())
    return len(sink.getvalue())


def add_file(table: Table, path: str, rows: pa.Table, *, partition: Sequence[Any] = (), **options: Any) -> None:
    """One commit with one file, without statistics. `partition`: internal values (days since 1970, …)."""
    size = put_file(table, path, rows, **options)
    add_entry(table, path, records=rows.num_rows, size=size, partition=partition)


def add_entry(table: Table, path: str, *, records: int, size: int, partition: Sequence[Any] = ()) -> None:
    """As `add_file`, for a file that is there."""
    _append(table, [_data_file(table, path, records, size, partition)])


def add_entries(table: Table, files: Mapping[str, int]) -> None:
    """One commit with many files of an unpartitioned table that are there: path → size. Each of one row."""
    _append(table, [_data_file(table, path, 1, size, ()) for path, size in files.items()])


def _data_file(table: Table, path: str, records: int, size: int, partition: Sequence[Any]) -> DataFile:
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=records,
        file_size_in_bytes=size,
        sort_order_id=None,
        spec_id=table.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
    )


def _append(table: Table, files: Sequence[DataFile]) -> None:
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for file in files:
            append.append_data_file(file)


class Watched:
    """A catalog with one table `db.t`, and a compaction of it after which both readers must see the same rows."""

    def __init__(self, folder: Path, **catalog: str) -> None:
        self.folder = folder
        self.catalog, self.properties = make_sql_catalog(folder, **catalog)
        self.catalog.create_namespace_if_not_exists("db")

    def create(self, schema: Any, **settings: Any) -> Table:
        return self.catalog.create_table("db.t", schema, **settings)

    @property
    def table(self) -> Table:
        return self.catalog.load_table("db.t")

    def manifests(self) -> list[Any]:
        snapshot = self.table.current_snapshot()
        assert snapshot is not None
        return snapshot.manifests(self.table.io)

    def duckdb(self) -> list[str]:
        return read_duckdb(self.table.metadata_location, self.properties)

    def maintain(self) -> TableOutcome:
        """Rewrites all."""
        asked = Request(actions=(Action.REWRITE_DATA_FILES,), options={"rewrite-all": "true"})
        return lakehouse(self.folder, self.properties).maintain((), asked).tables[0]

    def compact(
        self,
        *,
        pyiceberg: bool = True,
        duckdb: bool = True,
        same: bool = True,
        statistics: bool = True,
        bounded: bool = True,
    ) -> ActionOutcome:
        """Rewrites all; both readers see the same before and after (`same`: and as each other)."""
        readers = {
            **({"pyiceberg": lambda: read_pyiceberg(self.table)} if pyiceberg else {}),
            **({"duckdb": self.duckdb} if duckdb else {}),
        }
        before = {name: read() for name, read in readers.items()}
        outcome = self.maintain()
        assert outcome.status is Status.DONE, outcome
        action = outcome.actions[0]
        assert action.verified, action.checks
        assert {name: read() for name, read in readers.items()} == before
        if same and len(before) == 2:
            assert before["pyiceberg"] == before["duckdb"]
        if statistics:
            check_statistics(self.table, bounded=bounded)
        return action
