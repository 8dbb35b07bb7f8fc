"""Health and references of Spark's tables, against what PyIceberg finds in the same metadata by itself."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, IsNull
from pyiceberg.expressions.visitors import manifest_evaluator
from pyiceberg.transforms import VoidTransform

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.config import config_from_mapping
from lakehouse_maintenance.execution.observe import health_of, observe
from lakehouse_maintenance.iceberg.references import references
from lakehouse_maintenance.model.health import SIZE_BUCKETS
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.references import ReferenceKind
from lakehouse_maintenance.state import open_state
from lakehouse_maintenance_tests.engine.conformance import TABLES, open_golden, settings, table_name
from lakehouse_maintenance_tests.golden.fixture import GoldenLakehouse, objects

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table

_NO_GOLDEN_TABLE_HAS_ONE = 0


def _ours(golden: GoldenLakehouse, folder: Path) -> tuple[Lakehouse, Any]:
    return open_golden(golden, folder), golden.catalog()


@pytest.mark.requirement("IM-14")
def test_health_is_what_the_metadata_holds(golden: GoldenLakehouse, tmp_path: Path) -> None:
    ours, catalog = _ours(golden, tmp_path)
    measured = {health.table: health for health in ours.health()}
    assert set(measured) == {str(table_name(name)) for name in TABLES}
    for name, recorded in TABLES.items():
        health = measured[str(table_name(name))]
        table = catalog.load_table(recorded.identifier)
        found = _counted(table)
        assert {key: getattr(health, key) for key in found} == found, name
        assert health.error is None
        assert health.format_version == recorded.format_version
        assert {
            "data": health.data_files,
            "position_deletes": health.position_delete_files,
            "deletion_vectors": health.deletion_vectors,
            "equality_deletes": health.equality_delete_files,
            "manifests": health.manifests,
        } == recorded.files


def _counted(table: Table) -> dict[str, Any]:
    files = table.inspect.files().to_pylist()
    data = [file for file in files if file["content"] == 0]
    positions = [file for file in files if file["content"] == 1]
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = snapshot.manifests(table.io)
    times = [one.timestamp_ms for one in table.metadata.snapshots]
    sizes = Counter(next(label for label, bound in SIZE_BUCKETS if file["file_size_in_bytes"] < bound) for file in data)
    # All golden files have a partition tuple of their own spec: count each with the spec it was written under.
    partitions = Counter(
        (manifest.partition_spec_id, tuple(map(repr, entry.data_file.partition)))
        for manifest in manifests
        if manifest.content == 0
        for entry in manifest.fetch_manifest_entry(table.io)
    )
    by_partition = _files_by_partition(manifests, table)
    data_counts = sorted(counts[0] for counts in by_partition.values() if counts[0])
    median = data_counts[(len(data_counts) - 1) // 2]
    manifests_opened = [_opened(table, manifests, key) for key, counts in by_partition.items() if counts[0]]
    files_opened = sorted(sum(counts) for counts in by_partition.values() if counts[0])
    deletes = [file for file in files if file["content"]]
    # Several vectors may share a Puffin file, whose size is that of all of them.
    has_vectors = any(file["file_format"] == "PUFFIN" for file in deletes)
    return {
        **({} if has_vectors else {"delete_bytes": sum(file["file_size_in_bytes"] for file in deletes)}),
        "small_files_percent": 100,
        "deleted_rows_percent": 100 * sum(f["record_count"] for f in positions) // sum(f["record_count"] for f in data),
        "delete_manifests": sum(manifest.content == 1 for manifest in manifests),
        "median_partition_files": median,
        "partition_skew_percent": 100 * data_counts[-1] // median,
        "opened_manifests_worst": max(manifests_opened),
        "opened_manifests_median": sorted(manifests_opened)[(len(manifests_opened) - 1) // 2],
        "opened_files_worst": files_opened[-1],
        "opened_files_median": files_opened[(len(files_opened) - 1) // 2],
        "opened_files_worst_after": 1,
        "snapshot_id": snapshot.snapshot_id,
        "records": sum(file["record_count"] for file in data),
        "data_files": len(data),
        "data_bytes": sum(file["file_size_in_bytes"] for file in data),
        "small_files": len(data),
        "delete_files": len(files) - len(data),
        "equality_delete_files": sum(file["content"] == 2 for file in files),
        "deletion_vectors": sum(file["file_format"] == "PUFFIN" for file in positions),
        "position_delete_files": sum(file["file_format"] != "PUFFIN" for file in positions),
        "deleted_rows": sum(file["record_count"] for file in positions),
        "dangling_delete_files": _NO_GOLDEN_TABLE_HAS_ONE,
        "snapshots": len(times),
        "oldest_snapshot_ms": min(times),
        "newest_snapshot_ms": max(times),
        "refs": len(table.metadata.refs),
        "manifests": len(manifests),
        "manifest_bytes": sum(manifest.manifest_length for manifest in manifests),
        "metadata_files": len(table.metadata.metadata_log) + 1,
        "partitions": len(partitions),
        "largest_partition_files": max(partitions.values()),
        "histogram": {label: sizes[label] for label, _ in SIZE_BUCKETS},
    }


def _files_by_partition(manifests: list[ManifestFile], table: Table) -> dict[Any, list[int]]:
    """(spec, partition tuple) → data files, delete files."""
    found: dict[Any, list[int]] = {}
    for manifest in manifests:
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            key = (manifest.partition_spec_id, tuple(entry.data_file.partition))
            found.setdefault(key, [0, 0])[manifest.content] += 1
    return found


def _opened(table: Table, manifests: list[ManifestFile], key: Any) -> int:
    """Manifests that PyIceberg's own evaluator cannot skip for this partition."""
    spec_id, values = key
    spec = table.specs()[spec_id]
    terms: list[BooleanExpression] = [AlwaysTrue()]
    for field, value in zip(spec.fields, values, strict=True):
        if isinstance(field.transform, VoidTransform):
            continue
        terms.append(IsNull(field.name) if value is None else EqualTo(field.name, value))
    evaluate = manifest_evaluator(spec, table.schema(), functools.reduce(And, terms))
    live = [manifest for manifest in manifests if manifest.has_added_files() or manifest.has_existing_files()]
    own = [manifest for manifest in live if manifest.partition_spec_id == spec_id]
    return sum(evaluate(manifest) for manifest in own)


def test_exact_health_looks_metadata_files_up(golden: GoldenLakehouse, tmp_path: Path) -> None:
    ours, catalog = _ours(golden, tmp_path)
    (health,) = ours.health(["golden.db.v2_evolved"], exact=True)
    metadata = catalog.load_table(("db", "v2_evolved"))
    locations = [metadata.metadata_location, *(entry.metadata_file for entry in metadata.metadata.metadata_log)]
    sizes = {f"s3://golden/{key}": len(body) for key, (body, _) in objects().items()}
    assert health.metadata_bytes == sum(sizes[location] for location in locations)


@pytest.mark.requirement("IM-15")
def test_files_out_of_order_are_counted_where_a_sort_order_is_in_force(golden: GoldenLakehouse, tmp_path: Path) -> None:
    ours, catalog = _ours(golden, tmp_path)
    sorted_, unsorted = ours.health(["golden.db.v2_statistics", "golden.db.v2_types"])
    assert unsorted.overlapping_files is None
    table = catalog.load_table(("db", "v2_statistics"))
    (field,) = table.sort_order().fields
    boxes: dict[str, list[tuple[bytes, bytes]]] = {}
    for file in table.inspect.files().to_pylist():
        lower, upper = (dict(file[key])[field.source_id] for key in ("lower_bounds", "upper_bounds"))
        kind = table.schema().find_field(field.source_id).field_type
        boxes.setdefault(str(file.get("partition")), []).append((from_bytes(kind, lower), from_bytes(kind, upper)))
    depths = [
        sum(a is not b and ((a[0] < b[1] and b[0] < a[1]) or a == b) for b in files)
        for files in boxes.values()
        for a in files
    ]
    assert sorted_.overlapping_files == sum(depth > 3 for depth in depths)
    assert sorted_.overlap_depth_percent == 100 * (len(depths) + sum(depths)) // len(depths)
    # The policy's own columns stand before the table's; a second look reads no manifest again.
    loaded = {"rewrite_data_files": {"strategy": "zorder", "sort_order": "id"}}
    with_policy = config_from_mapping(settings(golden, tmp_path) | {"policies": {"default": loaded}}, base=tmp_path)
    ours = Lakehouse(with_policy, open_state(with_policy.state.url))
    by_id = ours.health(["golden.db.v2_statistics"])[0].overlap_depth_percent
    assert by_id is not None
    observed = observe(ours.catalogs["golden"], table_name("db.v2_statistics"), ours.state.cache)
    fetched: list[str] = []
    real = observed.storage.read_many
    observed.storage.read_many = lambda locations: real(fetched.append(at.text) or at for at in locations)  # type: ignore[method-assign]
    again = health_of(observed, ours.config.policy_for(table_name("db.v2_statistics")), {}, 0)
    assert again.overlap_depth_percent == by_id
    assert not [path for path in fetched if "/snap-" not in path]


@pytest.mark.parametrize("name", TABLES)
def test_references_name_every_file_of_the_table_and_no_other(
    golden: GoldenLakehouse, tmp_path: Path, name: str
) -> None:
    ours, catalog = _ours(golden, tmp_path)
    observed = observe(ours.catalogs["golden"], table_name(name))
    found: dict[ReferenceKind, set[str]] = {}
    sizes: dict[str, int] = {}
    for reference in references(observed.metadata, observed.reader):
        found.setdefault(reference.kind, set()).add(reference.path)
        if reference.size is not None:
            sizes[reference.path] = reference.size
    hint = found.pop(ReferenceKind.VERSION_HINT)
    assert {path.rpartition("/")[2] for path in hint} == {"version-hint.text"}
    assert found == _referenced(catalog.load_table(TABLES[name].identifier))

    stored = {f"s3://golden/{key}": len(body) for key, (body, _) in objects().items()}
    paths = set().union(*found.values())
    assert paths <= set(stored)
    assert {path: stored[path] for path in sizes} == sizes
    below = Location.parse(observed.metadata.table_location).child("data")
    unreferenced = {path for path in stored if below.contains(Location.parse(path))} - paths
    assert not unreferenced, "Spark committed every data and delete file that it wrote"


def _referenced(table: Table) -> dict[ReferenceKind, set[str]]:
    found: dict[ReferenceKind, set[str]] = {}

    def add(kind: ReferenceKind, path: str) -> None:
        found.setdefault(kind, set()).add(path)

    for file in table.inspect.all_files().to_pylist():
        kind = (ReferenceKind.DATA, ReferenceKind.POSITION_DELETES, ReferenceKind.EQUALITY_DELETES)[file["content"]]
        add(ReferenceKind.DELETION_VECTOR if file["file_format"] == "PUFFIN" else kind, file["file_path"])
    for manifest in table.inspect.all_manifests().to_pylist():
        add(ReferenceKind.MANIFEST, manifest["path"])
    for snapshot in table.metadata.snapshots:
        add(ReferenceKind.MANIFEST_LIST, snapshot.manifest_list)
    for entry in table.inspect.metadata_log_entries().to_pylist():
        add(ReferenceKind.METADATA, entry["file"])
    for statistics in table.metadata.statistics:
        add(ReferenceKind.STATISTICS, statistics.statistics_path)
    for partition_statistics in table.metadata.partition_statistics:
        add(ReferenceKind.PARTITION_STATISTICS, partition_statistics.statistics_path)
    return found
