"""A plan is a value: what was seen, what would be done, what is expected of it, and a digest over what matters.

`explain` and `apply` read the same value. It goes to a file and back unchanged; a file whose content no longer fits
its digest is refused.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from lakehouse_maintenance.model.actions import Action, Control, Engine
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.snapshots import MAIN_BRANCH

FORMAT = 2
"""Version of the plan file."""


MOVED = "*"
"""`partition` of a group whose files come under another partition spec."""


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A data file to rewrite: what was seen of it. `deletes`: delete files that apply; `deleted_rows`: at most.

    `unordered`: it does not say that its rows have the order that the rewrite gives them.
    """

    path: str
    size: int
    records: int
    deletes: int = 0
    deleted_rows: int = 0
    unordered: bool = False


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files of one partition that are rewritten together into `expected_files` files.

    `partition`: canonical JSON of the raw partition tuple under spec `spec_id`, as in LiveFile; or `MOVED`: the files
    are of other specs, and their rows are written under this one.
    """

    spec_id: int
    partition: str
    files: tuple[PlannedFile, ...]
    expected_files: int
    reason: str

    @property
    def moves_to(self) -> int | None:
        """The spec that the files are brought under; None where they keep theirs."""
        return self.spec_id if self.partition == MOVED else None

    @property
    def bytes(self) -> int:
        """Input bytes."""
        return sum(file.size for file in self.files)

    @property
    def records(self) -> int:
        """Input rows, before deletes."""
        return sum(file.records for file in self.files)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What an action reads."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Expected:
    """What should stand in place of the inputs, and how long the work should take.

    `seconds` = bytes ÷ `bytes_per_second`, and a little for each file; `basis` says where the speed is from (`history`
    of this state, or `default`).
    `fewer_files`, `fewer_deletes`: the gain; `fewer_deletes` counts delete files no reader has to apply any more.
    """

    files: int
    bytes: int
    seconds: float
    fewer_files: int = 0
    fewer_deletes: int = 0
    bytes_per_second: float = 0.0
    basis: str = "default"


@dataclass(frozen=True, slots=True)
class PlannedAction:
    """One action on one table. `options`: the settings in force, as text; they are part of the digest.

    `groups`: data files to rewrite. `files`: other files that the action is about (manifests, delete files, metadata
    files). `snapshots`, `refs`: ids and names to expire. `notes`: what a reviewer should know. `branch`: the branch
    whose head is worked on.
    """

    action: Action
    engine: Engine
    control: Control
    reason: str
    inputs: Inputs
    expected: Expected
    options: dict[str, str]
    groups: tuple[FileGroup, ...] = ()
    snapshots: tuple[int, ...] = ()
    refs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    files: tuple[PlannedFile, ...] = ()
    branch: str = MAIN_BRANCH


@dataclass(frozen=True, slots=True)
class Skip:
    """An action that was considered and is not done, with the reason."""

    action: str
    reason: str


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What is planned for one table. `error`: it could not be measured; nothing is planned then."""

    table: str
    uuid: str | None
    snapshot_id: int | None
    actions: tuple[PlannedAction, ...] = ()
    skipped: tuple[Skip, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """`created_at`: ISO 8601 UTC, for people; it is not part of the digest."""

    created_at: str
    tables: tuple[TablePlan, ...]

    @property
    def digest(self) -> str:
        """`sha256:…` over tables, settings and files; the same findings give the same digest whenever they are made."""
        content = [
            {
                "table": table.table,
                "uuid": table.uuid,
                "actions": [
                    {
                        "action": action.action,
                        "engine": action.engine,
                        "control": action.control,
                        "options": action.options,
                        "snapshots": sorted(action.snapshots),
                        "refs": sorted(action.refs),
                        "groups": [
                            [g.spec_id, g.partition, [[f.path, f.size, f.records, f.deletes] for f in g.files]]
                            for g in action.groups
                        ],
                        **_where_present(action),
                    }
                    for action in table.actions
                ],
            }
            for table in sorted(self.tables, key=lambda t: t.table)
            if table.actions
        ]
        text = json.dumps([FORMAT, content], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    @property
    def is_empty(self) -> bool:
        """True where there is nothing to do."""
        return not any(table.actions for table in self.tables)

    def as_json(self) -> dict[str, Any]:
        """The result of the `plan` verb, and the content of a plan file."""
        return {"format": FORMAT, "digest": self.digest, **asdict(self)}

    @classmethod
    def from_json(cls, data: Any) -> Plan:
        """Inverse of `as_json`. Raises InputError where the data is no plan, or does not fit its digest."""
        try:
            if data["format"] != FORMAT:
                raise InputError(
                    f"the plan has format {data['format']!r}, this version reads {FORMAT}",
                    field="format",
                    hint="make the plan anew with this version",
                )
            plan = cls(data["created_at"], tuple(_table(table) for table in data["tables"]))
            digest = data["digest"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"not a plan: {type(error).__name__} at {error}", field="plan", hint="write one with: plan --out FILE"
            ) from error
        if plan.digest != digest:
            raise InputError(
                "the plan's content does not fit its digest: it was changed after it was made",
                field="digest",
                hint="make the plan anew",
            )
        return plan


def _where_present(action: PlannedAction) -> dict[str, Any]:
    """Parts of the digest that most actions lack: left out there, so that their digests stay what they were."""
    found: dict[str, Any] = {}
    if action.files:
        found["files"] = [[f.path, f.size, f.records, f.deletes] for f in action.files]
    if action.branch != MAIN_BRANCH:
        found["branch"] = action.branch
    return found


def _table(data: Any) -> TablePlan:
    return TablePlan(
        table=data["table"],
        uuid=data["uuid"],
        snapshot_id=data["snapshot_id"],
        actions=tuple(_action(action) for action in data["actions"]),
        skipped=tuple(Skip(**skip) for skip in data["skipped"]),
        error=data.get("error"),
    )


def _action(data: Any) -> PlannedAction:
    return PlannedAction(
        action=Action(data["action"]),
        engine=Engine(data["engine"]),
        control=Control(data["control"]),
        reason=data["reason"],
        inputs=Inputs(**data["inputs"]),
        expected=Expected(**data["expected"]),
        options={str(k): str(v) for k, v in data["options"].items()},
        snapshots=tuple(int(snapshot_id) for snapshot_id in data["snapshots"]),
        refs=tuple(str(ref) for ref in data["refs"]),
        notes=tuple(str(note) for note in data["notes"]),
        files=tuple(PlannedFile(**file) for file in data.get("files", ())),
        branch=str(data.get("branch", MAIN_BRANCH)),
        groups=tuple(
            FileGroup(
                spec_id=group["spec_id"],
                partition=group["partition"],
                files=tuple(PlannedFile(**file) for file in group["files"]),
                expected_files=group["expected_files"],
                reason=group["reason"],
            )
            for group in data["groups"]
        ),
    )
