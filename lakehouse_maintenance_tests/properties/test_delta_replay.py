"""Any history of a Delta table, with checkpoints of any form anywhere: the reader's versions are the model's."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse_maintenance.delta import DeltaLog, DeltaReferenceKind
from lakehouse_maintenance_tests.delta_logs import DV_PROTOCOL, METADATA, LogWriter, add, lines, remove, vector

Key = tuple[str, str | None]

PATHS = ("a", "p=x%2520y/b", "p=é/c", "s3://elsewhere/d%2541", "e")
VECTORS = (None, "00000000000000000000", "ab^-aqEH.-t@S}K{vb[*k^")
KINDS = {"add": DeltaReferenceKind.DATA, "remove": DeltaReferenceKind.TOMBSTONE}
FORMS = ("none", "none", "classic", "parts", "v2_json", "v2_parquet")


@dataclass
class Model:
    """What each version holds: key → the action that put it there."""

    active: dict[Key, dict[str, Any]] = field(default_factory=dict)
    removed: dict[Key, dict[str, Any]] = field(default_factory=dict)

    def change(self, path: str, chosen: str | None) -> list[dict[str, Any]]:
        """The actions that give the file this vector, or take it away where it has it already."""
        actions = []
        before = next((key for key in self.active if key[0] == path), None)
        if before is not None:
            gone = remove(path, None if before[1] is None else vector(before[1]))
            del self.active[before]
            self.removed[before] = gone
            actions.append(gone)
        if before != (path, chosen):
            new = add(path, None if chosen is None else vector(chosen))
            self.active[path, chosen] = new
            self.removed.pop((path, chosen), None)
            actions.append(new)
        return actions


changes = st.lists(
    st.tuples(st.sampled_from(PATHS), st.sampled_from(VECTORS)), min_size=1, max_size=3, unique_by=lambda one: one[0]
)
histories = st.lists(st.tuples(changes, st.sampled_from(FORMS)), min_size=1, max_size=7)


@settings(max_examples=40)
@given(history=histories, kept_from=st.integers(0, 6))
def test_versions_and_references_are_the_models(
    history: list[tuple[list[tuple[str, str | None]], str]], kept_from: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writer = LogWriter(Path(folder, "t"))
        model = Model()
        versions: list[tuple[set[Key], set[Key]]] = []
        written: list[list[dict[str, Any]]] = []
        checkpointed: dict[int, list[dict[str, Any]]] = {}
        for number, (changed, form) in enumerate(history):
            header = [DV_PROTOCOL, METADATA] if number == 0 else []
            actions = [action for path, chosen in changed for action in model.change(path, chosen)]
            writer.commit(*header, *actions)
            written.append(actions)
            versions.append((set(model.active), set(model.removed)))
            if form != "none":
                checkpointed[number] = [*model.active.values(), *model.removed.values()]
                _checkpoint(writer, form, number, checkpointed[number])
        # What a cleanup leaves: a checkpoint, its own commit and everything later.
        first = max((number for number in checkpointed if number <= kept_from), default=0)
        _clean(writer, first)
        log = writer.open()
        for number in range(first, len(history)):
            assert _state(log, number) == versions[number], number
        kept = [action for actions in written[first:] for action in actions]
        kept += [action for number, actions in checkpointed.items() if number >= first for action in actions]
        assert _named(log) == {
            (KINDS[name], value["path"]) for action in kept for name, value in action.items() if name in KINDS
        }


def _checkpoint(writer: LogWriter, form: str, version: int, files: list[dict[str, Any]]) -> None:
    header = (DV_PROTOCOL, METADATA)
    if form == "classic":
        writer.checkpoint(version, *header, *files)
    elif form == "parts":
        writer.checkpoint(version, *header, *files, parts=2)
    else:
        sidecars = []
        for number in range(2):
            name = f"{version}-{number}.parquet"
            writer.parquet(f"_sidecars/{name}", tuple(files[number::2]))
            sidecars.append({"sidecar": {"path": name, "sizeInBytes": 1, "modificationTime": 1}})
        name = f"{version:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11"
        if form == "v2_json":
            writer.put(f"{name}.json", lines(*header, *sidecars))
        else:
            writer.parquet(f"{name}.parquet", (*header, *sidecars))


def _clean(writer: LogWriter, first: int) -> None:
    for path in writer.log.iterdir():
        if path.is_file() and int(path.name.split(".")[0]) < first:
            path.unlink()


def _state(log: DeltaLog, version: int) -> tuple[set[Key], set[Key]]:
    snapshot = log.snapshot(version)
    active = [(file.path, _vector(file.key[1])) for file in snapshot.active()]
    removed = [(file.path, _vector(file.key[1])) for file in snapshot.tombstones()]
    assert len(set(active)) == len(active)
    assert len(set(removed)) == len(removed)
    return set(active), set(removed)


def _vector(unique_id: str | None) -> str | None:
    return None if unique_id is None else unique_id[1:].rpartition("@")[0]


def _named(log: DeltaLog) -> set[tuple[DeltaReferenceKind, str | None]]:
    return {(one.kind, one.path) for one in log.references() if one.kind in KINDS.values()}
