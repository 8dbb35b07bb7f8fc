"""What a rewrite wants to commit, and whether it still fits the table (known traps: "Are the rows the same?").

The check compares states, not histories. A group of rewritten files fits a head if every input is live there, as it
was read, and exactly those position deletes reach it that were applied. Then inputs and outputs hold the same rows at
that head, whatever was committed, rolled back or compacted in between; a commit to another branch does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from lakehouse_maintenance.model.deletes import DeleteIndex
from lakehouse_maintenance.model.files import LiveFile

Identity = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class Replacement:
    """One rewritten group.

    `inputs`: data files as they were read. `applied`: input path → identities of the position deletes applied to it.
    `outputs`: data files written, as records of a manifest entry without partition; they belong to the inputs'
    partition. `sequence_number`: of the snapshot that was read; the outputs get it as their data sequence number, so
    that equality deletes committed later still apply to them. `rows`: in the outputs.
    """

    inputs: tuple[LiveFile, ...]
    applied: dict[str, frozenset[Identity]]
    outputs: tuple[dict[str, Any], ...]
    sequence_number: int
    rows: int

    @property
    def partition_id(self) -> tuple[int, str]:
        """Spec and partition tuple of inputs and outputs."""
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
        reaching = frozenset(delete.identity for delete in deletes.position_deletes_for(current))
        if reaching != group.applied.get(file.path, frozenset()):
            return f"deletes for {file.path} were committed since it was read"
        # An equality delete newer than what we read applies to the outputs as it does to the inputs. An older one
        # would no longer reach the outputs, whose sequence number is higher.
        if any(d.sequence_number <= group.sequence_number for d in deletes.equality_deletes_for(current)):
            return f"an equality delete applies to {file.path}"
    return None


def named(groups: Iterable[Replacement]) -> frozenset[str]:
    """Paths of all inputs."""
    return frozenset(file.path for group in groups for file in group.inputs)
