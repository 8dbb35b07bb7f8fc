"""The opt-in check of IM-13: the rows of a commit's outputs are those of its inputs, whatever wrote them."""

from __future__ import annotations

from collections.abc import Sequence

from lakehouse_maintenance.engines.embedded_iceberg.rewrite import Rewriter
from lakehouse_maintenance.engines.embedded_iceberg.row_hash import RowHash, hash_rows
from lakehouse_maintenance.execution.making import Target
from lakehouse_maintenance.execution.observe import Observed, observe
from lakehouse_maintenance.iceberg.commit import Committed
from lakehouse_maintenance.iceberg.manifests import BlobCache
from lakehouse_maintenance.iceberg.metadata import Snapshot
from lakehouse_maintenance.iceberg.replace import Replacement, named
from lakehouse_maintenance.model.deletes import DeleteIndex
from lakehouse_maintenance.model.errors import LakehouseError
from lakehouse_maintenance.model.files import LiveFile
from lakehouse_maintenance.model.outcomes import Check

NAME = "row_hash"


def row_hash(
    target: Target,
    cache: BlobCache | None,
    committed: Committed,
    groups: Sequence[Replacement],
    memory_limit: int,
) -> Check:
    """Inputs at the snapshot before our commit and outputs at ours, each with the deletes that reach them there.

    Reads every row of both once. A group's rows are compared with its own. Never raises: what cannot be read is a
    failed check.
    """
    try:
        observed = observe(target.catalog, target.name, cache)
        table = target.catalog.load(target.name)
        before = observed.metadata.snapshots[committed.previous_snapshot_id]
        after = observed.metadata.snapshots[committed.snapshot_id]
        inputs = _data_files(observed, before, named(groups))
        outputs = _data_files(observed, after, frozenset(o["file_path"] for group in groups for o in group.outputs))
        reached, reaching = _deletes(observed, before), _deletes(observed, after)
        rewriter = Rewriter(
            table=table,
            storage=observed.storage,
            memory_limit=memory_limit,
            progress=lambda files, size: None,
            announce=lambda paths: None,
            written=lambda path: None,
        )
        total = RowHash()
        for group in groups:
            read = hash_rows(rewriter.rows([inputs[file.path] for file in group.inputs], reached))
            written = hash_rows(rewriter.rows([outputs[o["file_path"]] for o in group.outputs], reaching))
            if read != written:
                first = group.inputs[0].path
                detail = f"{read.rows} rows were {read}, {written.rows} rows are {written}, of {first} and its group"
                return Check(NAME, False, detail)
            total += read
    except KeyError as error:
        return Check(NAME, False, f"{error.args[0]} is no longer where it should be")
    except LakehouseError as error:
        return Check(NAME, False, f"could not be verified: {error.message}")
    return Check(NAME, True, f"{total.rows} rows are as before: {total}")


def _data_files(observed: Observed, snapshot: Snapshot, paths: frozenset[str]) -> dict[str, LiveFile]:
    manifests = [m for m in observed.reader.manifests(snapshot) if not m.deletes and m.live_files != 0]
    return {file.path: file for file in observed.reader.live_files(manifests) if file.path in paths}


def _deletes(observed: Observed, snapshot: Snapshot) -> DeleteIndex:
    manifests = [m for m in observed.reader.manifests(snapshot) if m.deletes and m.live_files != 0]
    return DeleteIndex(observed.reader.live_files(manifests), observed.metadata.unpartitioned_specs)
