"""The demo lakehouse, built small: what it promises holds, and it touches no folder of anybody else."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from rich.console import Console

from lakehouse_maintenance.demo import run_demo
from lakehouse_maintenance.demo.folder import MARKER
from lakehouse_maintenance.demo.report import draw
from lakehouse_maintenance.demo.result import DemoResult
from lakehouse_maintenance.demo.rows import fingerprint, refs_of
from lakehouse_maintenance.demo.tables import TABLES, Workshop
from lakehouse_maintenance.execution.observe import observe
from lakehouse_maintenance.execution.progress import Silent
from lakehouse_maintenance.iceberg.references import references
from lakehouse_maintenance.lakehouse import Lakehouse
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.references import ReferenceKind

SCALE = 0.1


@dataclass
class Demo:
    """Two runs on one folder. `snapshots`: of every table, by name, after each run."""

    folder: Path
    first: DemoResult
    second: DemoResult
    snapshots: list[dict[str, int | None]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def catalog(self) -> SqlCatalog:
        return _catalog(self.folder)


def _catalog(folder: Path) -> SqlCatalog:
    return SqlCatalog("demo", uri=f"sqlite:///{folder / 'catalog.db'}")


def _snapshots(folder: Path) -> dict[str, int | None]:
    catalog = _catalog(folder)
    identifiers = [name for namespace in catalog.list_namespaces() for name in catalog.list_tables(namespace)]
    tables = {".".join(name): catalog.load_table(name) for name in identifiers}
    return {name: table.metadata.current_snapshot_id for name, table in tables.items()}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    folder = tmp_path_factory.mktemp("demo") / "my lakehouse"
    said: list[str] = []
    first = run_demo(folder, say=said.append, progress=Silent(), scale=SCALE)
    snapshots = [_snapshots(folder)]
    second = run_demo(folder, say=said.append, progress=Silent())
    return Demo(folder, first, second, [*snapshots, _snapshots(folder)], said)


def _by_table(result: DemoResult, which: str) -> dict[str, dict]:
    return {table["table"]: table for table in result.as_json()[which]["tables"]}


def _reasons(result: DemoResult, table: str) -> str:
    return "\n".join(left.reason for left in result.left_alone if left.table == f"demo.{table}")


def test_eleven_tables_in_three_databases_get_well(demo: Demo) -> None:
    assert demo.first.ok
    assert demo.first.rows_equal
    assert len(demo.first.after) == 11
    assert {table.table.split(".")[1] for table in demo.first.after} == {"analytics", "sales", "ops"}
    maintained = {table.table for table in demo.first.maintained}
    assert maintained == {
        "demo.analytics.events",
        "demo.sales.orders",
        "demo.sales.orders_audit",
        "demo.sales.customers",
        "demo.sales.inventory",
        "demo.sales.revenue",
        "demo.ops.metrics",
    }


def test_the_events_table_keeps_fewer_than_five_percent_of_its_files(demo: Demo) -> None:
    before = _by_table(demo.first, "before")["demo.analytics.events"]
    after = _by_table(demo.first, "after")["demo.analytics.events"]
    assert before["data_files"] == 250
    assert before["snapshots"] == 50
    assert after["data_files"] < 0.05 * before["data_files"]
    assert after["records"] == before["records"]


def test_position_deletes_are_applied_and_gone(demo: Demo) -> None:
    before, after = (_by_table(demo.first, which)["demo.sales.orders"] for which in ("before", "after"))
    assert before["position_delete_files"] == 24
    assert after["delete_files"] == 0
    assert after["records"] == before["records"] - before["deleted_rows"]


def test_expired_snapshots_free_the_files_that_they_alone_reached(demo: Demo) -> None:
    (revenue,) = (table for table in demo.first.maintained if table.table == "demo.sales.revenue")
    before, after = (_by_table(demo.first, which)["demo.sales.revenue"] for which in ("before", "after"))
    assert revenue.expired_snapshots == before["snapshots"] - after["snapshots"] == 26
    # Of each snapshot three data files, two manifests (of added and of removed files) and the manifest list; the first
    # has removed nothing.
    assert revenue.deleted_files == 26 * 6 - 1
    assert revenue.deleted_bytes > 5_000_000
    assert after["reclaimable_bytes"] == 0
    assert before["records"] == after["records"]


def test_what_is_left_on_disk_is_what_the_tables_need(demo: Demo) -> None:
    lakehouse = Lakehouse.open(demo.folder / "lakehouse.yaml")
    needed: set[str] = set()
    for name in lakehouse.tables():
        observed = observe(lakehouse.catalogs[name.catalog], name)
        found = references(observed.metadata, observed.reader)
        needed |= {one.path.removeprefix("file://") for one in found if one.kind is not ReferenceKind.VERSION_HINT}
    on_disk = {str(path) for path in (demo.folder / "warehouse").rglob("*") if path.is_file()}
    assert on_disk == needed


def test_the_healthy_table_stands_where_it_stood(demo: Demo) -> None:
    before, after = (_by_table(demo.first, which)["demo.analytics.sessions"] for which in ("before", "after"))
    assert before["score"] == 100
    assert before["small_files"] == 0
    assert before["snapshot_id"] == after["snapshot_id"] == demo.snapshots[1]["analytics.sessions"]


def test_what_is_left_alone_says_why(demo: Demo) -> None:
    assert "not due: small_files 9 < 20" in _reasons(demo.first, "analytics.page_views")
    assert "lakehouse-maintenance.enabled=false" in _reasons(demo.first, "ops.archive")


@pytest.mark.requirement("IM-06")
def test_many_manifests_become_one(demo: Demo) -> None:
    before, after = (_by_table(demo.first, which)["demo.ops.metrics"] for which in ("before", "after"))
    assert "manifests 120 ≥ 100" in [one["reason"] for one in before["due"]]
    assert (before["manifests"], after["manifests"]) == (120, 1)
    assert before["data_files"] == after["data_files"]


def test_the_table_that_another_run_holds_is_blocked_both_times(demo: Demo) -> None:
    for result in (demo.first, demo.second):
        reason = _reasons(result, "ops.device_state")
        assert reason.startswith("blocked: ")
        assert "run nightly-backfill" in reason
    due = _by_table(demo.second, "after")["demo.ops.device_state"]["due"]
    assert [one["action"] for one in due] == ["rewrite_data_files"]


def test_a_second_run_changes_nothing(demo: Demo) -> None:
    assert demo.second.ok
    assert not demo.second.built
    assert demo.second.maintained == ()
    assert demo.snapshots[0] == demo.snapshots[1]
    assert any("was built at" in line for line in demo.said)


def test_branches_and_tags_are_there_and_were_compared(demo: Demo) -> None:
    table = demo.catalog().load_table("sales.orders_audit")
    assert set(table.metadata.refs) == {"main", "month-end", "audited", "correction"}
    seen = refs_of(table)
    assert len({one.digest for one in seen.values()}) == 4


def test_history_has_real_ages_and_runs_forwards(demo: Demo) -> None:
    metadata = demo.catalog().load_table("sales.orders").metadata
    times = [snapshot.timestamp_ms for snapshot in metadata.snapshots]
    built = datetime.now(UTC)
    assert times == sorted(times)
    oldest = built - datetime.fromtimestamp(times[0] / 1000, UTC)
    assert timedelta(days=9) <= oldest < timedelta(days=10)
    # Other readers refuse a metadata log that goes back in time.
    logged = [entry.timestamp_ms for entry in metadata.metadata_log]
    assert logged == sorted(logged)
    files = sorted(demo.folder.glob("warehouse/analytics/events/data/*/*.parquet"), key=lambda f: f.stat().st_mtime)
    assert built.timestamp() - files[0].stat().st_mtime > 86400 * 6.9


def test_dagster_keeps_the_runs_and_sends_no_telemetry(demo: Demo) -> None:
    import dagster as dg

    assert "enabled: false" in (demo.folder / ".dagster" / "dagster.yaml").read_text()
    with dg.DagsterInstance.from_config(str(demo.folder / ".dagster")) as instance:
        assert instance.get_runs_count() == 22
        assert not instance.telemetry_enabled


def test_the_result_is_json_and_can_be_drawn(demo: Demo) -> None:
    data = json.loads(json.dumps(demo.first.as_json()))
    assert data["config"] == str(demo.folder / "lakehouse.yaml")
    out = io.StringIO()
    draw(data, Console(file=out, width=120, markup=False, highlight=False))
    text = out.getvalue()
    # One file a day is left: how many days seven times 24 hours touch depends on the time of day.
    left = _by_table(demo.first, "after")["demo.analytics.events"]["data_files"]
    assert f"250 → {left}" in text
    assert "Storage freed" in text
    assert "26 snapshots" in text
    assert "nightly-backfill" in text
    again = io.StringIO()
    draw(json.loads(json.dumps(demo.second.as_json())), Console(file=again, width=120, markup=False, highlight=False))
    assert "Nothing to do" in again.getvalue()


def test_a_folder_with_other_things_in_it_is_refused_and_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty, and holds no demo"):
        run_demo(tmp_path, say=print, progress=Silent())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InputError, match="not a folder"):
        run_demo(file, say=print, progress=Silent())


def test_a_half_built_demo_is_refused(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text('{"format": 1, "complete": false}')
    with pytest.raises(InputError, match="interrupted"):
        run_demo(tmp_path, say=print, progress=Silent())


def test_a_moved_demo_is_refused_since_its_tables_hold_absolute_paths(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text('{"format": 1, "complete": true, "folder": "/elsewhere", "data_files": {}}')
    with pytest.raises(InputError, match="built in /elsewhere"):
        run_demo(tmp_path, say=print, progress=Silent())


@pytest.mark.parametrize("name", ["a#b", "a?b", "a%20b"])
def test_a_path_that_locations_cannot_hold_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="its path holds"):
        run_demo(tmp_path / name, say=print, progress=Silent())
    assert not (tmp_path / name).exists()


def test_an_engine_that_this_release_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="engine spark"):
        run_demo(tmp_path / "demo", engine="spark", say=print, progress=Silent())
    assert not (tmp_path / "demo").exists()


def test_importing_the_demo_is_cheap() -> None:
    heavy = "{'pyarrow', 'pyiceberg', 'dagster', 'numpy', 'rich'}"
    code = f"import sys, lakehouse_maintenance.demo; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"


def test_the_same_clock_gives_the_same_rows(tmp_path: Path) -> None:
    now = datetime(2026, 3, 14, 15, tzinfo=UTC)
    seen = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        catalog = SqlCatalog("demo", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=f"file://{folder}")
        catalog.create_namespace("sales")
        TABLES["sales.orders"](Workshop(catalog, folder, now, SCALE))
        seen.append(refs_of(catalog.load_table("sales.orders")))
    assert seen[0] == seen[1]
    assert seen[0]["main"].rows == 30_000 - 3_600


def _fingerprint(**columns: list) -> object:
    return fingerprint(pa.table(columns).to_batches())


def test_a_fingerprint_is_of_the_rows_and_not_of_their_order() -> None:
    one = _fingerprint(a=[1, 2, 3], b=["x", "y", None])
    assert _fingerprint(a=[3, 1, 2], b=[None, "x", "y"]) == one
    assert _fingerprint(a=[3, 1, 2], b=["x", None, "y"]) != one


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"a": [1, 1, 2]}, {"a": [1, 2, 2]}),
        ({"a": [1, 2]}, {"a": [1, 2, 2, 2]}),
        ({"a": [0, None]}, {"a": [0, 0]}),
        ({"a": ["", None]}, {"a": ["", ""]}),
        ({"a": [0.0, 1.5]}, {"a": [-0.0, 1.5]}),
        ({"a": [1], "b": [2]}, {"a": [2], "b": [1]}),
        ({"a": [1], "b": [2]}, {"a": [1], "c": [2]}),
    ],
)
def test_other_rows_give_another_fingerprint(first: dict, second: dict) -> None:
    assert _fingerprint(**first) != _fingerprint(**second)
