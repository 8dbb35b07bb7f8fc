"""Which old versions of a table's metadata may go (IM-07; Iceberg spec: Table Metadata, `metadata-log`). Pure.

Each commit writes a whole new metadata.json; the one before it becomes an entry of the new one's log, which keeps the
last `write.metadata.previous-versions-max`. Nobody looks for an entry that has left the log, so its file may go. It
leaves by a commit alone: the property says how many stay, and the catalog that commits trims the log.

Versions that no log names any more are orphan files, and belong to `remove_orphan_files`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehouse_maintenance.model.actions import Action, Control, Engine
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.intervals import format_size
from lakehouse_maintenance.model.plans import Expected, Inputs, PlannedAction, PlannedFile
from lakehouse_maintenance.model.properties import (
    DELETE_AFTER_COMMIT,
    GC_PROPERTY,
    PREVIOUS_VERSIONS,
    PREVIOUS_VERSIONS_DEFAULT,
    forbids_deleting,
    whole_number,
)

if TYPE_CHECKING:
    from lakehouse_maintenance.config.policies import PruneMetadata

KEEP = "previous-versions-max"
SET = "set-properties"
FILES_A_SECOND = 500.0


@dataclass(frozen=True, slots=True)
class PruneRequest:
    """What somebody asked for beyond the policy; None: as the policy says."""

    keep: int | None = None
    set_properties: bool | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> PruneRequest:
        """From the options of a command line. Raises InputError."""
        keep: int | None = None
        if KEEP in options:
            text = options[KEEP].strip()
            if not (text.isascii() and text.isdigit()) or int(text) < 1:
                raise InputError(f"{KEEP} cannot be {text!r}", field=KEEP, hint="write a whole number, 1 or more")
            keep = int(text)
        told = options.get(SET)
        if told is not None and told.strip().lower() not in ("true", "false"):
            raise InputError(f"{SET} cannot be {told!r}", field=SET, hint="write true or false")
        return cls(keep, None if told is None else told.strip().lower() == "true")


@dataclass(frozen=True, slots=True)
class MetadataVersions:
    """`current`: location of the current metadata file. `log`: previous ones that it names, oldest first.

    `sizes`: bytes of those that exist.
    """

    current: str
    log: tuple[str, ...]
    sizes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Pruning:
    """`keep`: previous versions that stay. `trims`: properties of the commit that trims the log. `sets`: properties
    that are set after it."""

    keep: int
    trims: Mapping[str, str]
    sets: Mapping[str, str]


def pruning(policy: PruneMetadata, asked: PruneRequest, properties: Mapping[str, str]) -> Pruning | str:
    """How the log is pruned, or why it is not."""
    if forbids_deleting(properties):
        return f"refused: {GC_PROPERTY}={properties[GC_PROPERTY]} forbids deleting files of this table"
    own = whole_number(properties, PREVIOUS_VERSIONS, PREVIOUS_VERSIONS_DEFAULT)
    keep = own if policy.keep is None else policy.keep
    keep = keep if asked.keep is None else asked.keep
    may_set = policy.set_properties if asked.set_properties is None else asked.set_properties
    if may_set:
        return Pruning(keep, {PREVIOUS_VERSIONS: str(keep)}, {DELETE_AFTER_COMMIT: "true"})
    if keep < own:
        return (
            f"refused: the table keeps {own} previous versions by its {PREVIOUS_VERSIONS}; that {keep} stay, the "
            f"property has to say: prune_metadata.set_properties, or --option {SET}=true, lets it be set"
        )
    # What a writer left untrimmed goes as well: setting the same value again makes the catalog trim.
    return Pruning(own, {PREVIOUS_VERSIONS: str(own)} if PREVIOUS_VERSIONS in properties else {}, {})


def prunable(policy: PruneMetadata, properties: Mapping[str, str], previous: int) -> int:
    """How many of so many previous versions are beyond those that the policy keeps; 0 where it lets none be pruned."""
    found = pruning(policy, PruneRequest(), properties)
    return 0 if isinstance(found, str) or not found.trims else max(previous - found.keep, 0)


def leaving(current: str, log: Sequence[str], keep: int) -> tuple[str, ...]:
    """Entries that leave the log with the next commit, oldest first: after it, `current` is the newest of `keep`."""
    versions = list(dict.fromkeys((*log, current)))
    # A version that was gone back to stands in the log twice, and stays by its later entry.
    kept = set([*log, current][-keep:])
    return tuple(version for version in versions if version not in kept)


def plan_prune(
    policy: PruneMetadata,
    asked: PruneRequest,
    properties: Mapping[str, str],
    versions: Callable[[], MetadataVersions],
    reason: str,
) -> PlannedAction | str:
    """The planned pruning, or why there is none. `versions` looks the files up: it is called where something may go."""
    found = pruning(policy, asked, properties)
    if isinstance(found, str):
        return found
    history = versions()
    counted = _counted(history)
    is_set = all(properties.get(name) == value for name, value in {**found.trims, **found.sets}.items())
    if len(history.log) <= found.keep and (is_set or not found.sets):
        return f"nothing to prune: {counted}; the last {found.keep} previous versions stay"
    if not found.trims:
        return f"refused: {PREVIOUS_VERSIONS} is not set, and --option {SET}=true would let it be set; {counted}"
    going = leaving(history.current, history.log, found.keep)
    files = tuple(PlannedFile(path, history.sizes.get(path, 0), 0) for path in going)
    size = sum(file.size for file in files)
    return PlannedAction(
        action=Action.PRUNE_METADATA,
        engine=Engine.EMBEDDED,
        control=Control.EXACT,
        reason=reason,
        inputs=Inputs(len(files), size),
        expected=Expected(files=0, bytes=0, seconds=round(len(files) / FILES_A_SECOND, 3), fewer_files=len(files)),
        options={KEEP: str(found.keep), SET: "true" if found.sets else "false"},
        files=files,
        notes=(
            f"{counted}; {len(files)} ({format_size(size)}) leave the log and are deleted, {found.keep} previous stay",
            "versions that no log names any more are orphan files: remove_orphan_files finds them",
        ),
    )


def _counted(history: MetadataVersions) -> str:
    size = format_size(sum(history.sizes.values()))
    gone = len({*history.log, history.current} - history.sizes.keys())
    return f"{len(history.log) + 1} metadata files ({size}{f', {gone} of them gone already' if gone else ''})"
