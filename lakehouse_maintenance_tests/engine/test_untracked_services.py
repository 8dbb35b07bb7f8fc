"""Statuses on each kind of catalog: SQL on SQLite and PostgreSQL, services that answer, and services that do not."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.folders import FolderRun
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance_tests.engine.stores import SCHEMA
from lakehouse_maintenance_tests.engine.tables import lakehouse
from lakehouse_maintenance_tests.engine.untracked import of, only, statuses
from lakehouse_maintenance_tests.services.catalogs import AnyCatalog
from lakehouse_maintenance_tests.services.faults import Answer, Request, fault_proxy


class Service:
    """A catalog service behind a proxy that a test can let fail, with three databases of one table each; `db` has a
    dropped table's folder beside its own."""

    def __init__(self, on: AnyCatalog, folder: Path, endpoint: str) -> None:
        for name in ("db", "x", "y"):
            on.writer.create_namespace(name)
            table = on.writer.create_table(f"{name}.t", SCHEMA)
        place = Location.parse(table.location())
        self.warehouse = place.with_key("/".join(place.segments[:-2])).text
        self.folder = folder
        self.properties = on.behind(endpoint) | {"lakehouse-maintenance.warehouse": self.warehouse}

    def run(self, *databases: str, **fields: Any) -> FolderRun:
        file = self.folder / "application.json"
        file.write_text(json.dumps({"catalog": "main", "databases": databases, "older_than_hours": 0, **fields}))
        return lakehouse(self.folder, self.properties).untracked_folders(file)


ONE_SERVICE = pytest.mark.parametrize("rest_catalog", ["rest"], indirect=True)


@ONE_SERVICE
@pytest.mark.requirement("UF-14", "UF-20")
def test_a_service_that_does_not_tell_where_a_database_lies(
    rest_catalog: AnyCatalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """That database fails, the others are blocked, and each is looked at; the log says what was read."""
    address = urlsplit(rest_catalog.properties["uri"])
    with fault_proxy(f"{address.scheme}://{address.netloc}") as proxy:
        service = Service(rest_catalog, tmp_path, proxy.endpoint)
        with caplog.at_level(logging.INFO):
            assert statuses(service.run("db", "x", "y")) == dict.fromkeys(("db", "x", "y"), ("SUCCESS", None))
        (line,) = [record.getMessage() for record in caplog.records if "databases of" in record.getMessage()]
        assert line.startswith(("3 databases of 1 catalogs", "4 databases of 1 catalogs"))
        assert line.endswith(" s")

        def refuse(request: Request) -> Answer | None:
            is_x = request.method == "GET" and request.target.endswith("/namespaces/x")
            return Answer(403, b"{}") if is_x else None

        proxy.rule = refuse
        run = service.run("db", "x", "y", dry_run=False, delete_enabled=True)
        assert statuses(run) == {
            "db": ("BLOCKED", "other_database_storage_unknown"),
            "x": ("FAILED", "unexpected_error"),
            "y": ("BLOCKED", "other_database_storage_unknown"),
        }
        assert not run.ok
        # A catalog whose warehouse is not known either is asked for nothing less.
        del service.properties["lakehouse-maintenance.warehouse"]
        assert statuses(service.run("x")) == {"x": ("FAILED", "unexpected_error")}


@ONE_SERVICE
@pytest.mark.requirement("UF-14")
def test_a_service_that_does_not_list(rest_catalog: AnyCatalog, tmp_path: Path) -> None:
    address = urlsplit(rest_catalog.properties["uri"])
    with fault_proxy(f"{address.scheme}://{address.netloc}") as proxy:
        service = Service(rest_catalog, tmp_path, proxy.endpoint)

        def fail(request: Request) -> Answer | None:
            path = request.target.partition("?")[0]
            return Answer(500, b"{}") if request.method == "GET" and path.endswith("/namespaces") else None

        proxy.rule = fail
        run = service.run("db", "nowhere", dry_run=False, delete_enabled=True)
        assert statuses(run) == {
            "db": ("BLOCKED", "other_database_storage_unknown"),
            "nowhere": ("SKIPPED", "database_not_found"),
        }
        assert of(run, "db").row.candidate_folder_count == 0, "its own tables are not known"

        proxy.rule = lambda request: Answer(500, b"{}") if "/namespaces/x/tables" in request.target else None
        assert statuses(service.run("db", "x")) == {
            "db": ("BLOCKED", "other_database_storage_unknown"),
            "x": ("FAILED", "unexpected_error"),
        }


@ONE_SERVICE
@pytest.mark.requirement("UF-26", "UF-32")
def test_a_service_that_signs_remotely(
    rest_catalog: AnyCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine's own identity would be let in, and is not taken."""
    keys = {key: text for key, text in rest_catalog.properties.items() if "key" in key}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys["s3.access-key-id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys["s3.secret-access-key"])
    address = urlsplit(rest_catalog.properties["uri"])
    with fault_proxy(f"{address.scheme}://{address.netloc}") as proxy:
        service = Service(rest_catalog, tmp_path, proxy.endpoint)
        service.properties = {key: text for key, text in service.properties.items() if key not in keys}
        service.properties["s3.remote-signing-enabled"] = "true"
        run = service.run("db")
    assert statuses(run) == {"db": ("FAILED", "unexpected_error")}
    assert "signs each request remotely" in str(only(run).row.error_message)


# --- SUCCESS, on each catalog


@pytest.mark.requirement("UF-09", "UF-29")
def test_each_catalog(any_catalog: AnyCatalog, tmp_path: Path) -> None:
    """SQL on SQLite and PostgreSQL, two services: what is found, what is not there, and what is empty."""
    writer = any_catalog.writer
    for name in ("db", "empty"):
        writer.create_namespace(name)
    live = Location.parse(writer.create_table("db.live", SCHEMA).location())
    ours = lakehouse(tmp_path, any_catalog.properties)
    home, warehouse = (live.with_key("/".join(live.segments[:-up])) for up in (1, 2))
    left = home.child("left", "data.parquet")
    has_left = any_catalog.kind != "rest"  # SeaweedFS takes no objects but a table's into its buckets
    if has_left:
        put(ours, left)

    def run(ours: Lakehouse, *databases: str, **fields: Any) -> FolderRun:
        file = tmp_path / "application.json"
        file.write_text(json.dumps({"catalog": "main", "databases": databases, "older_than_hours": 0, **fields}))
        return ours.untracked_folders(file)

    if any_catalog.is_rest:  # these services do not tell
        assert statuses(run(ours, "db", "empty", "nowhere")) == {
            "db": ("SKIPPED", "catalog_warehouse_unknown"),
            "empty": ("SKIPPED", "catalog_warehouse_unknown"),
            "nowhere": ("SKIPPED", "database_not_found"),
        }
    ours = lakehouse(tmp_path, any_catalog.properties | {"lakehouse-maintenance.warehouse": warehouse.text})
    found = run(ours, "db", "empty", "nowhere", "DB")
    assert statuses(found) == {
        "db": ("SUCCESS", None),
        "empty": ("SKIPPED", "no_active_tables_in_database"),
        "nowhere": ("SKIPPED", "database_not_found"),
        "DB": ("SKIPPED", "database_not_found"),
    }
    result = of(found, "db")
    gone = (home.child("left").text,) if has_left else ()
    assert result.row.candidate_folders == gone
    assert result.row.discovered_database_location == home.text
    assert result.row.diagnostic_details["database_location_inferred"] is not any_catalog.is_rest
    deleted = of(run(ours, "db", dry_run=False, delete_enabled=True), "db")
    assert (deleted.row.status, deleted.row.deleted_folders) == ("SUCCESS", gone)
    assert not has_left or ours.catalogs["main"].storage().stat(left) is None
    rows = writer.load_table("iomete_system_db.cleanup_untracked_table_folder_runs").scan().to_arrow().to_pylist()
    assert len(rows) == (8 if any_catalog.is_rest else 5)


def put(ours: Lakehouse, where: Location) -> None:
    """By the catalog's own FileIO."""
    from pyiceberg.io import load_file_io

    with load_file_io(ours.catalogs["main"].properties).new_output(where.text).create() as out:
        out.write(b"nobody's")


@pytest.mark.needs_iceberg_rest
@pytest.mark.parametrize("rest_catalog", ["iceberg-rest"], indirect=True)
@pytest.mark.requirement("UF-09", "UF-15")
def test_views_are_no_tables(rest_catalog: AnyCatalog, tmp_path: Path) -> None:
    """A database of views alone has no active tables; beside a table, a view leaves nothing unresolved."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField
    from pyiceberg.view.metadata import SQLViewRepresentation, ViewVersion

    for name in ("views", "both"):
        rest_catalog.writer.create_namespace(name)
        version = ViewVersion(
            version_id=1,
            schema_id=1,
            timestamp_ms=1_700_000_000_000,
            summary={},
            representations=[SQLViewRepresentation(type="sql", sql="SELECT 1 AS id", dialect="spark")],
            default_namespace=[name],
        )
        schema = Schema(NestedField(1, "id", LongType(), required=False))
        rest_catalog.writer.create_view(f"{name}.v", schema, version)  # type: ignore[attr-defined]
    place = Location.parse(rest_catalog.writer.create_table("both.t", SCHEMA).location())
    warehouse = place.with_key("/".join(place.segments[:-2])).text
    ours = lakehouse(tmp_path, rest_catalog.properties | {"lakehouse-maintenance.warehouse": warehouse})
    file = tmp_path / "application.json"
    file.write_text(json.dumps({"catalog": "main", "databases": ["views", "both"], "older_than_hours": 0}))
    run = ours.untracked_folders(file)
    assert statuses(run) == {"views": ("SKIPPED", "no_active_tables_in_database"), "both": ("SUCCESS", None)}
    assert of(run, "both").row.unresolved_table_count == 0
