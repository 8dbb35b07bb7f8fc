"""Tables of format version 3 that Spark writes, and what it says of their rows' lineage."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.iceberg.lossless import lost_paths
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.tables import lakehouse
from lakehouse_maintenance_tests.services.s3 import S3Server
from lakehouse_maintenance_tests.services.spark.session import Spark

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

MERGE_ON_READ = ", ".join(f"'write.{what}.mode' = 'merge-on-read'" for what in ("delete", "update", "merge"))
V3 = f"'format-version' = '3', {MERGE_ON_READ}"

Line = tuple[int | None, int | None, str]
"""`_row_id`, `_last_updated_sequence_number`, and the row."""


@dataclass(frozen=True, slots=True)
class SparkLake:
    """One catalog, `main`, as Spark, PyIceberg and we see it; tables are in the database `db`."""

    spark: Spark
    writer: Catalog
    ours: Lakehouse

    def sql(self, query: str) -> list[Any]:
        """`{}` in a query is where the database's tables are: `{}.t`."""
        return self.spark.sql(query.replace("{}", "main.db")).collect()

    def create(self, name: str, columns: str = "id BIGINT, v STRING", partition: str = "", form: str = V3) -> None:
        """An empty table."""
        self.sql(f"CREATE TABLE {{}}.{name} ({columns}) USING iceberg {partition} TBLPROPERTIES ({form})")

    def append(self, name: str, first: int, count: int, value: str = "concat('v', id)") -> None:
        """Rows first … first+count-1, in one commit."""
        self.sql(f"INSERT INTO {{}}.{name} SELECT id, {value} FROM range({first}, {first + count}, 1, 1)")

    def lines(self, name: str, at: str = "") -> dict[int, Line]:
        """Rows by `id`, which has to be unique, as has every row id."""
        query = f"SELECT *, _row_id AS r, _last_updated_sequence_number AS s FROM main.db.{name} {at}"
        rows = [row.asDict(recursive=True) for row in self.spark.sql(query).collect()]
        found = {row["id"]: (row.pop("r"), row.pop("s"), json.dumps(row, default=str)) for row in rows}
        assert len(found) == len(rows)
        given = [line[0] for line in found.values() if line[0] is not None]
        assert len(set(given)) == len(given), "row ids are unique"
        return found

    def table(self, name: str) -> Table:
        """As PyIceberg sees it."""
        return self.writer.load_table(f"db.{name}")

    def raw(self, name: str) -> dict[str, Any]:
        """The current metadata document."""
        table = self.table(name)
        with table.io.new_input(table.metadata_location).open() as stream:
            found: dict[str, Any] = json.loads(stream.read())
        return found

    def compact(self, name: str, **options: str) -> TableOutcome:
        """Rewrites every data file, unless options say otherwise."""
        given = {key.replace("_", "-"): text for key, text in (options or {"rewrite_all": "true"}).items()}
        asked = Request(actions=(Action.REWRITE_DATA_FILES,), options=given)
        return self.ours.maintain([f"main.db.{name}"], asked).tables[0]

    def compacted(self, name: str, **options: str) -> None:
        """As above, and checks that rows and lineage are as before, and what the metadata says of row ids."""
        before, old = self.lines(name), self.raw(name)
        outcome = self.compact(name, **options)
        assert outcome.status is Status.DONE, outcome
        assert outcome.actions[0].verified, outcome.actions[0].checks
        assert self.lines(name) == before
        check_numbering(old, self.raw(name))


def check_numbering(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Row Lineage: each snapshot since begins where ids were free, and the next free id lies behind all it took."""
    known = {snapshot["snapshot-id"] for snapshot in before["snapshots"]}
    free = before["next-row-id"]
    for snapshot in sorted(after["snapshots"], key=lambda one: one["sequence-number"]):
        if snapshot["snapshot-id"] not in known:
            assert snapshot["first-row-id"] == free
            free += snapshot["added-rows"]
    assert after["next-row-id"] == free
    numbers = [snapshot["sequence-number"] for snapshot in after["snapshots"]]
    assert len(set(numbers)) == len(numbers)
    assert lost_paths({key: one for key, one in before.items() if key in STAYING}, after) == []
    kept = {snapshot["snapshot-id"]: snapshot for snapshot in after["snapshots"]}
    for snapshot in before["snapshots"]:
        if snapshot["snapshot-id"] in kept:
            # PyIceberg takes out the parent of a snapshot whose parent has expired; Java leaves it.
            assert set(lost_paths(snapshot, kept[snapshot["snapshot-id"]])) <= {"parent-snapshot-id"}


STAYING = ("format-version", "table-uuid", "location", "schemas", "partition-specs", "sort-orders", "properties")


def spark_lake(spark: Spark, folder: Path, writer: Catalog, properties: dict[str, str]) -> SparkLake:
    """On a SQLite catalog in the folder."""
    spark.attach("main", folder / "main.db", properties["warehouse"])
    spark.sql("CREATE NAMESPACE IF NOT EXISTS main.db")
    return SparkLake(spark, writer, lakehouse(folder, properties))


def rest_lake(spark: Spark, folder: Path, writer: Catalog, properties: dict[str, str], s3: S3Server) -> SparkLake:
    """On Iceberg's REST catalog, with tables in S3."""
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": properties["uri"],
        ".cache-enabled": "false",
        ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        ".s3.endpoint": s3.endpoint,
        ".s3.path-style-access": "true",
        ".s3.access-key-id": s3.access_key,
        ".s3.secret-access-key": s3.secret_key,
        ".client.region": s3.region,
    }
    for key, value in settings.items():
        spark.session.conf.set(f"spark.sql.catalog.main{key}", value)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS main.db")
    return SparkLake(spark, writer, lakehouse(folder, properties))
