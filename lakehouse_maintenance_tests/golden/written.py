"""What the golden warehouse holds: every table, what it is there for, and the view."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakehouse_maintenance_tests.golden import statements
from lakehouse_maintenance_tests.services.spark.session import Spark

ALL_READERS = ("pyiceberg", "duckdb", "spark")


@dataclass(frozen=True, slots=True)
class GoldenTable:
    """`namespace` and `table` as PyIceberg's identifier has them; `readers`: those that read all of its snapshots."""

    namespace: tuple[str, ...]
    table: str
    description: str
    features: tuple[str, ...]
    write: Callable[[Spark, str], None]
    readers: tuple[str, ...] = ALL_READERS

    @property
    def spark_name(self) -> str:
        """The full name in Spark's quoting."""
        return ".".join(f"`{part}`" for part in ("golden", *self.namespace, self.table))


TABLES = (
    GoldenTable(
        ("db",),
        "v1_events",
        "Format v1, many small files by day and kind; nested, decimal, binary, NaN, a column of nulls only.",
        ("v1", "partition: days, identity", "partition value with a space", "null partition value", "nested types"),
        statements.v1_events,
    ),
    GoldenTable(
        ("db",),
        "v1_respec",
        "Format v1 whose partition field was dropped: it stays as a void transform; a copy-on-write delete.",
        ("v1", "partition evolution", "void transform", "copy-on-write delete"),
        statements.v1_respec,
    ),
    GoldenTable(
        ("db",),
        "v2_mor",
        "Merge-on-read: DELETE, UPDATE and MERGE with position deletes per partition and per file.",
        ("v2", "position deletes", "delete granularity: partition, file", "partition: bucket"),
        statements.v2_mor,
    ),
    GoldenTable(
        ("db",),
        "v2_evolved",
        "Columns added, dropped, renamed, moved, promoted, nested ones too, one dropped and added again; four specs.",
        ("v2", "schema evolution", "partition evolution", "position deletes", "nested types", "gzipped metadata"),
        statements.v2_evolved,
    ),
    GoldenTable(
        ("db",),
        "v2_branches",
        "Branch with own commits and retention, tag, rolled back snapshot, staged and published (WAP) snapshots.",
        ("v2", "branch", "tag", "ref retention", "rolled back snapshot", "staged snapshot", "cherry-picked snapshot"),
        statements.v2_branches,
    ),
    GoldenTable(
        ("db",),
        "v2_types",
        "Every type Spark can write to v2, nulls on each nested level, extremes, empties.",
        ("v2", "all types", "nested types", "extreme values"),
        statements.v2_types,
        readers=("duckdb", "spark"),
    ),
    GoldenTable(
        ("db",),
        "v2_required",
        "NOT NULL columns and NOT NULL fields of a nullable struct; partition values null, with a space, with a slash.",
        ("v2", "required fields", "partition: identity", "null partition value", "partition value with a space"),
        statements.v2_required,
    ),
    GoldenTable(
        ("db",),
        "v3_dv",
        "Format v3: deletion vectors and row lineage.",
        ("v3", "deletion vectors", "row lineage", "partition: identity"),
        statements.v3_dv,
    ),
    GoldenTable(
        ("db",),
        "v2_equality",
        "One equality delete; a deleted key was inserted again later.",
        ("v2", "equality deletes"),
        statements.v2_equality,
        readers=("duckdb", "spark"),
    ),
    GoldenTable(
        ("db",),
        "v2_statistics",
        "Two Puffin statistics files and a partition statistics file; a sort order.",
        ("v2", "statistics files", "partition statistics", "sort order"),
        statements.v2_statistics,
    ),
    GoldenTable(
        ("db",),
        "v2_formats",
        "Data files in Parquet, Avro and ORC.",
        ("v2", "data files: parquet, avro, orc"),
        statements.v2_formats,
        readers=("spark",),
    ),
    GoldenTable(
        ("sales",),
        "orders",
        "Gzipped metadata files; its location is a string prefix of orders_2's.",
        ("v2", "gzipped metadata", "partition: months"),
        statements.orders,
    ),
    GoldenTable(
        ("sales",),
        "orders_2",
        "The neighbour whose name begins like orders; its data lies outside of its location.",
        ("v2", "write.data.path"),
        statements.orders_2,
    ),
    GoldenTable(
        ("sales", "eu"),
        "order items",
        "In a nested namespace, with a space in its name and its location; data below hashed folders.",
        ("v2", "nested namespace", "name with a space", "object storage layout"),
        statements.order_items,
    ),
)

VIEW = ("db", "recent_events")
VIEW_QUERY = "SELECT id, ts, kind FROM golden.db.v1_events WHERE ts >= TIMESTAMP '2024-03-04 00:00:00'"
