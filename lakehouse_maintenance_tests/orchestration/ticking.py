"""Ticks of the product's sensors in this process, and many cheap tables."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import dagster as dg

from lakehouse_maintenance.orchestration.building import build_definitions
from lakehouse_maintenance_tests.orchestration.lake import Lake


def tick(lake: Lake, sensor: str, cursor: str | None = None) -> dg.SensorResult:
    """One evaluation, as the daemon would make it; partitions that it asks for are added and removed."""
    definitions = build_definitions(lake.config)
    repository = definitions.get_repository_def()
    with dg.build_sensor_context(
        instance=lake.instance,
        cursor=cursor,
        repository_def=repository,
        sensor_name=sensor,
        resources=definitions.resources,
    ) as context:
        result = repository.get_sensor_def(sensor)(context)
    assert isinstance(result, dg.SensorResult)
    for request in result.dynamic_partitions_requests or ():
        if isinstance(request, dg.AddDynamicPartitionsRequest):
            lake.instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
        else:
            for key in request.partition_keys:
                lake.instance.delete_dynamic_partition(request.partitions_def_name, key)
    return result


def message(result: dg.SensorResult) -> str:
    """The tick's message; empty where it starts runs."""
    return "" if result.skip_reason is None else result.skip_reason.skip_message or ""


def requested(result: dg.SensorResult) -> dict[str, str]:
    """Partition → run key."""
    return {str(request.partition_key): str(request.run_key) for request in result.run_requests or ()}


def run(lake: Lake, result: dg.SensorResult) -> list[dg.ExecuteInProcessResult]:
    """Executes what a tick asked for, as the daemon would start it: with its run key and tags."""
    definitions = build_definitions(lake.config)
    job = definitions.resolve_job_def("maintain_tables")
    return [
        job.execute_in_process(
            instance=lake.instance,
            partition_key=request.partition_key,
            tags={**request.tags, "dagster/run_key": str(request.run_key)},
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            raise_on_error=False,
        )
        for request in result.run_requests or ()
    ]


def point(lake: Lake, pointers: dict[str, str], database: str = "db") -> None:
    """Writes catalog entries straight into the catalog's table: table → metadata file."""
    with closing(sqlite3.connect(lake.folder / "main.db")) as connection, connection:
        connection.executemany(
            "INSERT OR REPLACE INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, "
            "previous_metadata_location, iceberg_type) VALUES ('main', ?, ?, ?, NULL, 'TABLE')",
            [(database, table, pointer) for table, pointer in pointers.items()],
        )


def copies(lake: Lake, location: str, tables: Iterable[str]) -> dict[str, str]:
    """A metadata file of its own for each table, all of the same content."""
    source = Path(location.removeprefix("file://"))
    found = {}
    for table in tables:
        copy = source.with_name(f"{table}.metadata.json")
        copy.write_bytes(source.read_bytes())
        found[table] = f"file://{copy}"
    return found


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Counts questions to SQL catalogs and reads of objects while it lasts."""
    from lakehouse_maintenance.catalogs import sql
    from lakehouse_maintenance.storage import Storage

    found: Counter[str] = Counter()
    real_rows, real_read, real_list = sql.SqlCatalog._rows, Storage.read, Storage.list

    def rows(self: sql.SqlCatalog, *args: object, **kwargs: object) -> object:
        found["catalog"] += 1
        return real_rows(self, *args, **kwargs)  # type: ignore[arg-type]

    def read(self: Storage, *args: object, **kwargs: object) -> bytes:
        found["storage"] += 1
        return real_read(self, *args, **kwargs)  # type: ignore[arg-type]

    def listing(self: Storage, *args: object, **kwargs: object) -> object:
        found["storage"] += 1
        return real_list(self, *args, **kwargs)  # type: ignore[arg-type]

    sql.SqlCatalog._rows, Storage.read, Storage.list = rows, read, listing  # type: ignore[assignment,method-assign]
    try:
        yield found
    finally:
        sql.SqlCatalog._rows, Storage.read, Storage.list = real_rows, real_read, real_list  # type: ignore[method-assign]
