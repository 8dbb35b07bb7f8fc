"""All that health knows of one table, as lines for people; what each number means is told in `docs/health.md`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from lakehouse_maintenance.cli.text import files_and_bytes, size


def advice_line(table: str, one: Mapping[str, Any]) -> str:
    """The property, its value now and the better one, and why."""
    current = "unset" if one["current"] is None else one["current"]
    return f"{table}: {one['property']}: {current} → {one['value']}: {one['reason']}"


def health_details(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and value of each line, of a table's JSON object; what is not known is left out."""
    sizes = ", ".join(f"{label} {files:,}" for label, files in table["histogram"].items() if files)
    yield "file sizes", sizes or "no files"
    yield "small files", f"{table['small_files']:,} ({table['small_files_percent']} %)"
    if table["delete_files"]:
        yield "deletes", _deletes(table)
    skew = f"skew {table['partition_skew_percent']} %"
    median, largest = table["median_partition_files"], table["largest_partition_files"]
    yield (
        "partitions",
        f"{table['partitions']:,}, {median:,} files in the median one, {largest:,} in the largest ({skew})",
    )
    manifests = files_and_bytes(table["manifests"], table["manifest_bytes"])
    yield "manifests", f"{manifests}, about {table['manifests_after']:,} after rewrite_manifests"
    yield "manifests opened", _opened(table, "manifests")
    yield "files opened", _opened(table, "files")
    if table["overlapping_files"] is not None:
        depth = f"a key is looked for in {table['overlap_depth_percent'] / 100:.1f} files on average"
        yield "out of order", f"{table['overlapping_files']:,} files; {depth}"
    if table["oldest_snapshot_ms"] is not None:
        yield "oldest snapshot", f"{_time(table['oldest_snapshot_ms'])}{_age(table, 'oldest_snapshot_ms')}"
        yield "newest snapshot", f"{_time(table['newest_snapshot_ms'])}{_age(table, 'newest_snapshot_ms')}"
    known = "" if table["metadata_bytes"] is None else f" ({size(table['metadata_bytes'])})"
    yield "metadata files", f"{table['metadata_files']:,}{known}"
    if table["orphan_files"] is None:
        yield "orphan files", "never counted: see orphans"
    else:
        found = files_and_bytes(table["orphan_files"], table["orphan_bytes"])
        yield "orphan files", f"{found}, as counted {_time(table['orphans_counted_ms'])}"
    if table["features"]:
        yield "not to be rewritten", f"the embedded engine cannot keep: {', '.join(table['features'])}"
    for action, at in table["last_maintenance"].items():
        yield "last run", f"{action}, {_time(at)}"


def _deletes(table: Mapping[str, Any]) -> str:
    kinds = [
        f"{table[key]:,} {label}"
        for key, label in (
            ("position_delete_files", "position"),
            ("deletion_vectors", "vectors"),
            ("equality_delete_files", "equality"),
            ("dangling_delete_files", "dangling"),
        )
    ]
    rows = f"{table['deleted_rows']:,} rows ({table['deleted_rows_percent']} %)"
    return f"{files_and_bytes(table['delete_files'], table['delete_bytes'])}: {', '.join(kinds)}; {rows}"


def _opened(table: Mapping[str, Any], what: str) -> str:
    """By a query on one partition."""
    median, worst, median_after, worst_after = (
        f"{table[f'opened_{what}_{which}']:,}" for which in ("median", "worst", "median_after", "worst_after")
    )
    now = f"{median} in the median partition, {worst} in the worst"
    return f"{now}; after maintenance about {median_after} and {worst_after}"


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


def _age(table: Mapping[str, Any], name: str) -> str:
    days = (table["measured_at_ms"] - table[name]) // (24 * 3_600_000)
    return f" ({days:,} days ago)" if days > 0 else ""
