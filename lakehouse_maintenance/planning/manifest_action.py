"""The planned rewrite of manifests, or why there is none (IM-06). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lakehouse_maintenance.model.actions import Action, Control, Engine
from lakehouse_maintenance.model.files import TableState
from lakehouse_maintenance.model.manifests import ManifestFacts
from lakehouse_maintenance.model.plans import Expected, Inputs, PlannedAction
from lakehouse_maintenance.model.support import ENCRYPTED_MANIFESTS
from lakehouse_maintenance.planning.manifests import ManifestOptions, plan_manifests

ListManifests = Callable[[str], Sequence[ManifestFacts]]
"""From a branch's name: its head's manifests."""

ENTRIES_A_SECOND = 30_000.0
"""Entries expected to be rewritten and verified a second."""
SECONDS_A_MANIFEST = 0.002


def plan_action(
    state: TableState,
    manifests: ListManifests | None,
    options: Mapping[str, str],
    reason: str,
    branch: str,
) -> PlannedAction | str:
    """`manifests`: None where nobody can list them now. Raises InputError for options that do not fit the table."""
    resolved = ManifestOptions.resolve(options, state.properties, state.default_spec_id, state.specs)
    if "encryption" in state.features:
        return f"unsupported: {ENCRYPTED_MANIFESTS}"
    listed = [] if manifests is None else manifests(branch)
    if not listed:
        return f"nothing to do: branch {branch} has no manifests"
    plan = plan_manifests(listed, resolved)
    if not plan.chosen:
        return f"nothing to gain: {plan.why}"
    entries = sum(manifest.live_files or 0 for manifest in plan.chosen)
    seconds = entries / ENTRIES_A_SECOND + len(plan.chosen) * SECONDS_A_MANIFEST
    return PlannedAction(
        action=Action.REWRITE_MANIFESTS,
        engine=Engine.EMBEDDED,
        control=Control.EXACT,
        reason=f"{reason}; {plan.why}",
        inputs=Inputs(len(plan.chosen), plan.bytes),
        expected=Expected(
            files=plan.expected,
            bytes=plan.bytes,
            seconds=round(seconds, 3),
            fewer_files=len(plan.chosen) - plan.expected,
        ),
        options=resolved.as_text(),
        notes=plan.notes,
        files=plan.files,
        branch=branch,
    )
