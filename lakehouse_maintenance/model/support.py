"""What the embedded engine does with which Iceberg tables, and every declared gap with its reason (EN-01).

Plans take their reasons from here, and `docs/support.md` is made from it:
`python -m lakehouse_maintenance.model.support FILE`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lakehouse_maintenance.model.actions import Action, Control

NOT_PARQUET = "not Parquet: the embedded engine rewrites Parquet files only"
FOREIGN_DELETES = "deletes apply to them that are not Parquet: the embedded engine reads Parquet only"
NO_FIELD_IDS = "{} has columns without field ids"
NESTED_KEY = "{} compares field {}, which is in a list or map"
CANNOT_KEEP = "the embedded engine cannot keep: {}"
ENCRYPTED_DELETES = "the embedded engine cannot write encrypted files"
ENCRYPTED_MANIFESTS = "the embedded engine cannot write encrypted manifests"
ONLY_VECTORS = (
    "format version 3 forbids new position delete files, and keeps one deletion vector for each data file, so there is "
    "nothing to merge (Spark's procedure does nothing either); vectors that nothing needs go with rewrite_data_files"
)
AT_ONCE = "the embedded engine commits all groups of delete files at once; partial-progress.enabled=true"
UNREADABLE = "commits go through PyIceberg, which cannot read this table's metadata: {}"
OWN_WRITER = "catalog {} has its own way of writing metadata, which is not known to keep format version 3"
NO_ROW_IDS = (
    "its metadata has no next-row-id, which format version 3 needs for row lineage (PyIceberg creates such tables, and "
    "other engines refuse them)"
)
WOULD_LOSE = "a commit through this catalog would drop {} from its metadata"

ACTIONS: Mapping[Action, str] = {
    Action.REWRITE_DATA_FILES: Control.EXACT,
    Action.REWRITE_POSITION_DELETE_FILES: Control.EXACT,
    Action.REWRITE_MANIFESTS: Control.EXACT,
    Action.EXPIRE_SNAPSHOTS: Control.EXACT,
    Action.SET_PROPERTIES: Control.EXACT,
    Action.PRUNE_METADATA: Control.EXACT,
    Action.REMOVE_ORPHAN_FILES: f"{Control.EXACT} or {Control.BOUNDED}",
}
"""Each action of this engine, in the safe order → how closely it follows a plan (see Control)."""

COMMITTING = tuple(action for action in ACTIONS if action is not Action.REMOVE_ORPHAN_FILES)


@dataclass(frozen=True, slots=True)
class Gap:
    """Why an action is not done. `files`: only to the files in question; the rest of the table is done."""

    reason: str
    files: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of table, or of files in a table. `name`: as the documentation has it; no gap: everything is done.

    `nothing_to_do`: actions that have nothing to do there, which is no gap.
    """

    name: str
    gaps: Mapping[Action, Gap] = field(default_factory=dict)
    nothing_to_do: tuple[Action, ...] = ()


def _commits(reason: str) -> Mapping[Action, Gap]:
    return dict.fromkeys(COMMITTING, Gap(reason))


_DATA, _DELETES, _MANIFESTS = (
    Action.REWRITE_DATA_FILES,
    Action.REWRITE_POSITION_DELETE_FILES,
    Action.REWRITE_MANIFESTS,
)
V1 = Case("format version 1", nothing_to_do=(_DELETES,))
V2 = Case("format version 2")
V3 = Case("format version 3", {_DELETES: Gap(ONLY_VECTORS)})
PARQUET = Case("data files and deletes in Parquet, deletion vectors, equality deletes")
FOREIGN_DATA = Case("data files in ORC or Avro", {_DATA: Gap(NOT_PARQUET, files=True)})
FOREIGN_DELETE = Case(
    "deletes in ORC or Avro",
    {_DATA: Gap(FOREIGN_DELETES, files=True), _DELETES: Gap(NOT_PARQUET, files=True)},
)
WITHOUT_IDS = Case(
    "Parquet files without field ids, where schema.name-mapping.default is not set",
    {_DATA: Gap(NO_FIELD_IDS.format("PATH"), files=True)},
)
NESTED_KEYS = Case(
    "equality deletes by fields inside lists or maps, which the format forbids",
    {_DATA: Gap(NESTED_KEY.format("PATH", "ID"), files=True)},
)
ENCRYPTED = Case(
    "encryption",
    {
        _DATA: Gap(CANNOT_KEEP.format("encryption")),
        _DELETES: Gap(ENCRYPTED_DELETES),
        _MANIFESTS: Gap(ENCRYPTED_MANIFESTS),
    },
)
UNKNOWN_TYPES = Case(
    "columns of type variant, geometry, geography, or of a type that is not known",
    {**_commits(UNREADABLE.format("TYPE")), _DATA: Gap(CANNOT_KEEP.format("TYPE"))},
)
BURIED_UNKNOWN = Case(
    "type unknown as a list's element, a map's key or value, or a struct's only field",
    {_DATA: Gap(CANNOT_KEEP.format("unknown")), _DELETES: Gap(ONLY_VECTORS)},
)
PARTIAL = Case("option partial-progress.enabled=true", {_DELETES: Gap(AT_ONCE)})
WITHOUT_ROW_IDS = Case("format version 3 without next-row-id", _commits(NO_ROW_IDS))
OWN_CATALOG = Case(
    "format version 3 in a catalog that writes metadata its own way", _commits(OWN_WRITER.format("NAME"))
)
MORE_METADATA = Case("metadata with parts that PyIceberg drops (format version 3)", _commits(WOULD_LOSE.format("PART")))

CASES: Sequence[Case] = (
    *(V1, V2, V3, PARQUET, FOREIGN_DATA, FOREIGN_DELETE, WITHOUT_IDS, NESTED_KEYS, ENCRYPTED),
    *(UNKNOWN_TYPES, BURIED_UNKNOWN, WITHOUT_ROW_IDS, OWN_CATALOG, MORE_METADATA, PARTIAL),
)

_INTRODUCTION = """\
# What is supported

What the embedded engine does with an Iceberg table. It is the only engine of this release: what it leaves, a `spark`
engine does in a later one.

- **exact**: done, to the very files that the plan names. Orphan files are removed *exact* where the plan was reviewed,
  and within the limits of `lakehouse.yaml` (*bounded*) where one run looks and removes.
- **refused** and a number: the action is not planned; the reason starts with `unsupported:`, and nothing is changed.
- **files left** and a number: files of this kind stay as they are, and all others are done. The plan counts them, or
  the outcome names them where a file had to be opened to see it.
- **–**: there is nothing to do.
"""


def page() -> str:
    """The Markdown page with the table and each gap's reason."""
    reasons = list(dict.fromkeys(gap.reason for case in CASES for gap in case.gaps.values()))
    head = ["", *(f"`{action}`" for action in ACTIONS)]
    lines = [_INTRODUCTION, _row(head), _row(["---"] * len(head))]
    lines += [_row([case.name, *(_cell(case, action, reasons) for action in ACTIONS)]) for case in CASES]
    lines += ["", "## Gaps", "", *(f"{number}. {_line(reason)}" for number, reason in enumerate(reasons, 1)), ""]
    return "\n".join(lines)


def _cell(case: Case, action: Action, reasons: Sequence[str]) -> str:
    gap = case.gaps.get(action)
    if gap is not None:
        return f"{'files left' if gap.files else 'refused'} ({reasons.index(gap.reason) + 1})"
    return "–" if action in case.nothing_to_do else ACTIONS[action]


def _line(reason: str) -> str:
    return f"{reason[0].upper()}{reason[1:]}."


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
