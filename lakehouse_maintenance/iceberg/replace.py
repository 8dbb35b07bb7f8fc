"""What a rewrite wants to commit, and whether it still fits the table (known traps: "Are the rows the same?").

The check compares states, not histories. A group of rewritten files fits a head if every input is live there, as it
was read, and exactly those deletes reach it that were applied. Then inputs and outputs hold the same rows at
that head, whatever was committed, rolled back or compacted in between; a commit to another branch does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from lakehouse_maintenance.iceberg.fields import AvroType
from lakehouse_maintenance.iceberg.moved import moved_misfit
from lakehouse_maintenance.model.deletes import DeleteIndex
from lakehouse_maintenance.model.files import LiveFile

Identity = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class Replacement:
    """One rewritten group.

    `inputs`: data files as they were read. `applied`: input path → identities of the deletes applied to it, of every
    kind. `outputs`: data files written, as records of a manifest entry; they belong to the inputs' partition but where
    a record has `spec_id` and `partition` of its own (output-spec-id). `sequence_number`: of the snapshot that was
    read; the outputs get it as their data sequence number, so that equality deletes committed later still apply to
    them too. None: they get the number of our own commit (use-starting-sequence-number=false), and no equality delete
    may have come since. `rows`: in the outputs. `partition_type`: Avro type of the outputs' own `partition`; None where
    they have none.
    """

    inputs: tuple[LiveFile, ...]
    applied: dict[str, frozenset[Identity]]
    outputs: tuple[dict[str, Any], ...]
    sequence_number: int | None
    rows: int
    partition_type: AvroType = None

    @property
    def partition_id(self) -> tuple[int, str]:
        """Spec and partition tuple of inputs and outputs, where the outputs have none of their own."""
        return self.inputs[0].partition_id


def misfit(
    group: Replacement, live: dict[str, LiveFile], deletes: DeleteIndex, twice: AbstractSet[str] = frozenset()
) -> str | None:
    """Why the group does not fit a head; None where it does.

    `live`: the head's data files by path, at least those that some group names. `deletes`: the head's delete files.
    `twice`: paths that the head lists more than once: taking one entry out takes all of them out.
    """
    for file in group.inputs:
        current = live.get(file.path)
        if current is None:
            return f"{file.path} is no longer in the table"
        if file.path in twice:
            return f"{file.path} is listed more than once in the table"
        if (current.sequence_number, current.records, current.partition_id) != (
            file.sequence_number,
            file.records,
            file.partition_id,
        ):
            return f"{file.path} was replaced in the table"
        if current.first_row_id != file.first_row_id:
            # The first commit after an upgrade to version 3 gives ids to rows that had none when they were read.
            return f"{file.path} got row ids since it was read"
        # An equality delete newer than what we read applies to the outputs as it does to the inputs, where they keep
        # the number of what was read. All others have to be those that were applied.
        starting = group.sequence_number
        reaching = {delete.identity for delete in deletes.position_deletes_for(current)} | {
            delete.identity
            for delete in deletes.equality_deletes_for(current)
            if starting is None or delete.sequence_number <= starting
        }
        if reaching != group.applied.get(file.path, frozenset()):
            return f"deletes for {file.path} were committed since it was read"
    return moved_misfit(group, live, deletes)


def named(groups: Iterable[Replacement]) -> frozenset[str]:
    """Paths of all inputs."""
    return frozenset(file.path for group in groups for file in group.inputs)
