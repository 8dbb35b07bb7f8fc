"""Rewritten files that come under another partition spec than their inputs (`output-spec-id`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakehouse_maintenance.iceberg.fields import AvroType
from lakehouse_maintenance.iceberg.manifests import partition_spelling
from lakehouse_maintenance.model.deletes import DeleteIndex
from lakehouse_maintenance.model.files import LiveFile

if TYPE_CHECKING:
    from lakehouse_maintenance.iceberg.replace import Replacement

PartitionId = tuple[int, str]


def is_moved(group: Replacement) -> bool:
    """Whether its outputs have a partition of their own."""
    return group.partition_type is not None


def output_partition(group: Replacement, output: Mapping[str, Any]) -> PartitionId:
    """Spec and partition tuple of an output, as LiveFile spells it."""
    if not is_moved(group):
        return group.partition_id
    return output["spec_id"], partition_spelling(group.partition_type)(output["partition"])


def partitions_of(groups: Iterable[Replacement]) -> set[PartitionId]:
    """Of all inputs and outputs."""
    found: set[PartitionId] = set()
    for group in groups:
        found |= {file.partition_id for file in group.inputs}
        found |= {output_partition(group, output) for output in group.outputs}
    return found


def output_specs(groups: Iterable[Replacement]) -> set[int]:
    """Ids of the specs that outputs are written under."""
    return {output_partition(group, output)[0] for group in groups for output in group.outputs}


def place_of(
    group: Replacement, output: Mapping[str, Any], tuples: Mapping[PartitionId, tuple[dict[str, Any], AvroType]]
) -> tuple[int, dict[str, Any], AvroType]:
    """Spec, raw partition tuple and its Avro type for an output's entry; `tuples`: of the inputs' partitions."""
    if is_moved(group):
        return output["spec_id"], output["partition"], group.partition_type
    values, partition = tuples[group.partition_id]
    return group.partition_id[0], values, partition


def moved_misfit(group: Replacement, live: Mapping[str, LiveFile], deletes: DeleteIndex) -> str | None:
    """Why a group whose outputs have a partition of their own does not fit a head; None where it does.

    Equality deletes committed since the group was read go on to apply to the outputs by their sequence number, if they
    are global. One of the inputs' partition would lose its rows; one of an output's partition would take rows that it
    never reached. So each of them has to reach all inputs and all outputs, or none.
    """
    starting = group.sequence_number
    if not is_moved(group) or not group.outputs or starting is None:
        return None
    reached: set[frozenset[Any]] = set()
    for file in group.inputs:
        found = deletes.equality_deletes_for(live[file.path])
        reached.add(frozenset(delete.identity for delete in found if delete.sequence_number > starting))
    for spec_id, partition in {output_partition(group, output) for output in group.outputs}:
        output = replace(group.inputs[0], spec_id=spec_id, partition=partition, sequence_number=starting)
        reached.add(frozenset(delete.identity for delete in deletes.equality_deletes_for(output)))
    if len(reached) == 1:
        return None
    return f"equality deletes of one partition were committed since {group.inputs[0].path} was read"
