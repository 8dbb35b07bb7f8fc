"""The inventory of a database: one step, every table, one failure beside the others."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from pathlib import Path

import dagster as dg
import pytest

from lakehouse_maintenance.model.health import Due, TableHealth
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.orchestration.building import build_definitions
from lakehouse_maintenance.orchestration.databases import Database
from lakehouse_maintenance.orchestration.drawing import Bar, bar_chart
from lakehouse_maintenance.orchestration.naming import ALL_TABLES_MEASURED, STATE_KEY
from lakehouse_maintenance.orchestration.partitions import register
from lakehouse_maintenance.orchestration.summing import MOST_ROWS, DatabaseHealth
from lakehouse_maintenance_tests.orchestration.lake import Lake, facts

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
INVENTORY = dg.AssetKey(["lakehouse", "main", "db", "inventory"])
PNG = re.compile(r"!\[[^\]]*\]\(data:image/png;base64,([A-Za-z0-9+/=]+)\)")


def inventory(lake: Lake, database: str = "db") -> dg.ExecuteInProcessResult:
    """Materializes the inventory of a database that the configuration names."""
    lake.config.write_text(lake.config.read_text().replace('["*"]', f'["{database}"]'))
    definitions = build_definitions(lake.config)
    (asset,) = [made for made in definitions.assets or () if isinstance(made, dg.AssetsDefinition) and is_one(made)]
    return dg.materialize(
        [asset], instance=lake.instance, resources=definitions.resources, run_config=QUIET, raise_on_error=False
    )


def is_one(made: dg.AssetsDefinition) -> bool:
    return any(key.path[-1] == "inventory" for key in made.keys)


def told(result: dg.ExecuteInProcessResult) -> dict[str, object]:
    """Metadata of the run's one materialization."""
    (event,) = [event for event in result.all_events if event.is_step_materialization]
    return facts(event.step_materialization_data.materialization)


def observed(result: dg.ExecuteInProcessResult) -> list[str | None]:
    """Partitions of the state that the run told observations of."""
    events = [event for event in result.all_events if event.is_asset_observation]
    assert all(event.asset_key == STATE_KEY for event in events)
    return [event.partition for event in events]


def size_of(png: bytes) -> tuple[int, int]:
    """Width and height, after checking every chunk's sum and that the points are all there."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, points, size = 8, b"", (0, 0)
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + data),)
        if kind == b"IHDR":
            size = struct.unpack(">II", data[:8])
        points += data if kind == b"IDAT" else b""
        at += 12 + length
    assert len(zlib.decompress(points)) == (size[0] + 1) * size[1]
    return size


@pytest.mark.requirement("DG-03")
def test_every_table_is_measured_and_one_failure_stands_beside_the_others(lake: Lake) -> None:
    sick, broken, well = (lake.table_with_small_files(name) for name in ("sick", "broken", "well"))
    lake.catalog.create_table(("db", "empty"), lake.catalog.load_table(well.identifier).schema())
    lake.truncate_metadata(broken)
    let_some_expire(lake, sick)

    result = inventory(lake)

    assert result.success
    (check,) = result.get_asset_check_evaluations()
    assert (check.check_name, check.passed, check.severity) == (
        ALL_TABLES_MEASURED,
        False,
        dg.AssetCheckSeverity.WARN,
    )
    assert str(broken) in str(check.metadata["lakehouse_maintenance/failures"].value)
    found = told(result)
    assert (found["tables"], found["tables_failed"], found["tables_due"]) == (4, 1, 2)
    for number in ("data_files", "small_files", "bytes", "reclaimable_bytes", "score_min", "score_mean", "snapshots"):
        assert isinstance(found[number], int | float), number
    assert found["data_files"] == found["small_files"] == 64
    assert isinstance(found["reclaimable_bytes"], float)
    assert found["reclaimable_bytes"] > 0

    report = str(found["inventory"])
    rows = [line for line in report.split("\n") if line.startswith("|") and "main.db." in line]
    assert [row.split("|")[1].strip() for row in rows if " main.db.broken |" in row] == ["error"]
    assert sum(str(name) in report for name in (sick, broken, well)) == 3
    charts = [base64.b64decode(data) for data in PNG.findall(report)]
    assert [size_of(chart)[0] for chart in charts] == [640, 640], "file sizes, and reclaimable bytes by table"


def let_some_expire(lake: Lake, name: TableName) -> None:
    """All but the newest snapshot may go at once, and one is replaced, so that bytes could be reclaimed."""
    import pyarrow as pa

    table = lake.catalog.load_table(name.identifier)
    table.overwrite(pa.table({"id": pa.array(range(16), pa.int64()), "kind": [f"k{n}" for n in range(16)]}))
    table.append(pa.table({"id": pa.array(range(16), pa.int64()), "kind": [f"k{n}" for n in range(16)]}))
    text = lake.config.read_text()
    lake.config.write_text(
        text + "    expire_snapshots: {older_than: 0s, retain_last: 1, allow_short_retention: true}\n"
    )


def test_a_table_is_observed_when_its_snapshot_changed_and_only_then(lake: Lake) -> None:
    import pyarrow as pa

    one, other = lake.table_with_small_files("one"), lake.table_with_small_files("other")
    register(lake.instance, [one])

    assert observed(inventory(lake)) == [one.partition_key], "only tables with a partition"
    register(lake.instance, [other])
    assert observed(inventory(lake)) == [other.partition_key]
    again = inventory(lake)
    assert observed(again) == []

    table = lake.catalog.load_table(one.identifier)
    with table.transaction() as transaction:
        transaction.set_properties(colour="blue")
    assert observed(inventory(lake)) == [], "another property is no other snapshot"
    table.append(pa.table({"id": pa.array([99], pa.int64()), "kind": ["k1"]}))
    changed = inventory(lake)
    assert observed(changed) == [one.partition_key]
    assert version(again) != version(changed)


def version(result: dg.ExecuteInProcessResult) -> str:
    (event,) = [event for event in result.all_events if event.is_step_materialization]
    tags = event.step_materialization_data.materialization.tags
    assert tags is not None
    return tags["dagster/data_version"]


def test_a_database_that_cannot_be_listed_fails_and_names_it(lake: Lake) -> None:
    lake.table_with_small_files()

    result = inventory(lake, "no_such")

    assert not result.success
    (step,) = [event for event in result.all_events if event.is_step_failure]
    data = step.step_failure_data.user_failure_data
    assert data is not None
    assert "no_such" in (data.description or "")


def test_names_are_static_and_need_no_catalog(tmp_path: Path) -> None:
    config = tmp_path / "lakehouse.yaml"
    config.write_text(
        'catalogs: {main: {type: rest, uri: "http://127.0.0.1:9"}, whole: {type: rest, uri: "http://127.0.0.1:9"}}\n'
        'databases: {main: [sales, a.b, "`a.b`", "we/ird é", sales], whole: ["*"]}\n'
    )

    graph = build_definitions(config).resolve_asset_graph()

    found = {key.to_user_string(): graph.get(key) for key in graph.get_all_asset_keys() if key.path[-1] == "inventory"}
    plain = {"lakehouse/main/sales/inventory", "lakehouse/main/a.b/inventory"}
    assert plain < set(found)
    odd = sorted(set(found) - plain)
    assert len(odd) == 2
    assert re.fullmatch(r"lakehouse/main/a_b-[0-9a-f]{8}/inventory", odd[0])
    assert re.fullmatch(r"lakehouse/main/we_ird-[0-9a-f]{8}/inventory", odd[1])
    assert found["lakehouse/main/sales/inventory"].group_name == "main__sales"
    assert found["lakehouse/main/a.b/inventory"].group_name == "main__a__b"
    groups = {node.group_name for node in found.values()}
    assert len(groups) == len(found)
    assert all(re.fullmatch("[A-Za-z0-9_]+", group or "") for group in groups)
    for node in found.values():
        assert node.kinds == {"iceberg"}
        assert node.description
        assert node.partitions_def is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Database("a__b", ("c",)), Database("a", ("b__c",))),
        (Database("a", ("b", "c")), Database("a", ("b.c",))),
        (Database("a", ("b_",)), Database("a", ("b",))),
        (Database("a", ("é",)), Database("a", ("è",))),
    ],
)
def test_different_databases_have_different_groups_and_keys(one: Database, other: Database) -> None:
    assert one.group != other.group
    assert one.key("x") != other.key("x")


def test_a_variable_that_names_a_database_has_to_be_set_at_load(tmp_path: Path) -> None:
    config = tmp_path / "lakehouse.yaml"
    config.write_text(
        'catalogs: {main: {type: rest, uri: "http://127.0.0.1:9", token: "${T}"}}\ndatabases: {main: ["${DATABASE}"]}\n'
    )

    with pytest.raises(dg.DagsterInvalidDefinitionError, match="DATABASE"):
        build_definitions(config)


def test_the_report_is_bounded_and_worst_comes_first() -> None:
    found = DatabaseHealth("main.db")
    due = (Due("rewrite_data_files", "many"),)
    for number in range(MOST_ROWS + 50):
        found.add(TableHealth(f"main.db.t{number:03}", score=number % 101, due=due, histogram={"<1MB": 1}))
    found.add(TableHealth("main.db.zz", score=0, error="<b>gone</b> " + "x" * 5000))

    report = found.report()

    assert len(found._worst) == MOST_ROWS, "memory does not grow with the number of tables"
    rows = report.split("**Tables, worst first**")[1].split("| --- |")[-1].strip().split("\n")
    tables = [row for row in rows if "main.db." in row]
    assert len(tables) == MOST_ROWS
    assert "main.db.zz" in tables[0]
    assert "<b>" not in report
    scores = [int(row.split("|")[1]) for row in tables[1:]]
    assert scores == sorted(scores)
    assert "51 healthier tables are not shown" in report
    assert len(report) < 200_000


def test_an_empty_database_and_odd_labels_are_drawn() -> None:
    assert "**main.db**" in DatabaseHealth("main.db").report()
    assert size_of(bar_chart([])) == (640, 40)
    assert size_of(bar_chart([Bar("ü" * 100, 1.0, "?" * 100), Bar("", 0.0, "")]))[0] == 640
