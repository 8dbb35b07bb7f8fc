"""One table's plan: what its policy makes due or somebody asked for, and why the rest is left alone. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from lakehouse_maintenance.config.action_options import check_action_options
from lakehouse_maintenance.config.options import check_rewrite_options
from lakehouse_maintenance.model.actions import Action, Control, Engine
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.files import TableState
from lakehouse_maintenance.model.health import TableHealth
from lakehouse_maintenance.model.intervals import format_size
from lakehouse_maintenance.model.plans import Expected, Inputs, PlannedAction, Skip, TablePlan
from lakehouse_maintenance.model.snapshots import MAIN_BRANCH
from lakehouse_maintenance.model.sort_orders import SortOrder
from lakehouse_maintenance.model.support import CANNOT_KEEP
from lakehouse_maintenance.planning.advice import to_set
from lakehouse_maintenance.planning.blocks import block
from lakehouse_maintenance.planning.compaction import GroupPlan
from lakehouse_maintenance.planning.expiring import (
    CountReach,
    ExpiryFacts,
    ExpiryRequest,
    Reach,
    as_text,
    decide,
    effective,
    notes,
    refusal,
    unmet,
)
from lakehouse_maintenance.planning.expiry import retention
from lakehouse_maintenance.planning.manifest_action import ListManifests, plan_action
from lakehouse_maintenance.planning.metadata_history import MetadataVersions, PruneRequest, plan_prune
from lakehouse_maintenance.planning.moment import WHERE
from lakehouse_maintenance.planning.order import in_safe_order
from lakehouse_maintenance.planning.orphan_action import FindOrphans, plan_orphans
from lakehouse_maintenance.planning.orphans import OrphanRequest
from lakehouse_maintenance.planning.position_delete_action import PlanDeletes, plan_position_deletes
from lakehouse_maintenance.planning.rewrite_options import (
    OUTPUT_SPEC,
    TARGET,
    VERIFY_ROWS,
    RewriteOptions,
)
from lakehouse_maintenance.planning.sort_orders import resolve
from lakehouse_maintenance.planning.triggers import (
    OVERLAP_MEASURES,
    POLICY_ACTIONS,
    cooling,
    crossed,
    nearest_miss,
    triggers_of,
)

if TYPE_CHECKING:
    from lakehouse_maintenance.config.policies import MinGain, Policy, Trigger

DEFAULT_BYTES_PER_SECOND = 60_000_000.0
FILES_A_SECOND = 500.0
"""Files that expiry is expected to delete a second, before anything was measured."""
SECONDS_A_FILE = 0.002
"""What opening one more input costs, however small it is."""
REQUESTED = "requested"
OF_BRANCHES = (
    Action.REWRITE_DATA_FILES,
    Action.REWRITE_POSITION_DELETE_FILES,
    Action.REWRITE_MANIFESTS,
    Action.EXPIRE_SNAPSHOTS,
)
"""What can be asked for one branch."""
AVAILABLE = (*OF_BRANCHES, Action.SET_PROPERTIES, Action.PRUNE_METADATA, Action.REMOVE_ORPHAN_FILES)


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asked for, beyond the policies; the empty request plans what is due.

    `actions`: those, due or not. `options`: of rewrite_data_files, over the policy's, by Iceberg's names; `by_action`:
    of the other actions likewise (config.action_options). `engine`: `auto`, `embedded`, `spark`, or None for the
    policy's. `where`: as on the command line; whoever plans a table resolves its moments first
    (moment.resolve_moments). `strategy`, `sort_order`: as on the command line, None where not given. `branch`: whose
    head is rewritten, and whose own snapshots expire; None: main, and all of the table. `leave_out`: actions that the
    policies make due and somebody else takes care of.
    """

    actions: tuple[Action, ...] | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    engine: str | None = None
    where: str | None = None
    strategy: str | None = None
    sort_order: str | None = None
    expiry: ExpiryRequest = field(default_factory=ExpiryRequest)
    orphans: OrphanRequest = field(default_factory=OrphanRequest)
    by_action: Mapping[Action, Mapping[str, str]] = field(default_factory=dict)
    branch: str | None = None
    leave_out: frozenset[Action] = frozenset()

    def options_of(self, action: Action) -> Mapping[str, str]:
        """What was asked for with this action, by Iceberg's names."""
        return self.options if action is Action.REWRITE_DATA_FILES else self.by_action.get(action, {})

    def check(self) -> None:
        """Raises InputError for actions that this release does not have, and for options that are unknown, unreadable
        or contradict each other on every table."""
        for action in self.actions or ():
            if action not in AVAILABLE:
                raise InputError(
                    f"{action} is not available in this release",
                    field="action",
                    hint=f"available are {', '.join(AVAILABLE)}",
                )
        others = [action for action in self.actions or POLICY_ACTIONS if action not in OF_BRANCHES]
        if self.branch is not None and (others or self.actions is None):
            why = f"{others[0]} is not about one branch" if others else "policies are about main"
            raise InputError(why, field="branch", hint=f"name the action with it: {', '.join(OF_BRANCHES)}")
        check_rewrite_options(self.options, field="option")
        for action, options in self.by_action.items():
            check_action_options(action, options, field="option")
        self.orphans.check()
        if TARGET in self.options:
            RewriteOptions.resolve(self.options, {})


@dataclass(frozen=True, slots=True)
class Throughput:
    """Input bytes a second that a rewrite is expected to manage; `basis`: `default`, or where the number is from."""

    bytes_per_second: float = DEFAULT_BYTES_PER_SECOND
    basis: str = "default"


@dataclass(frozen=True, slots=True)
class Subject:
    """All that is known of a table before its files are looked at.

    `state`: of the branch that is asked for; `health` is of `main`.
    `expiry`: snapshots and refs; None where they are not known. `last_run_ms`: action → when it last ran here.
    `laid_out`: order → the sequence number up to which files were brought into it because they overlapped.
    `named_by_policy`: a policy of its own names this very table.
    `default_engine`: what `engine.use` says, for policies that say `auto`.
    `cannot_commit`: why no commit can be made to the table; None where nothing speaks against one.
    """

    state: TableState
    health: TableHealth
    policy: Policy
    now_ms: int
    last_run_ms: Mapping[str, int] = field(default_factory=dict)
    laid_out: Mapping[str, int] = field(default_factory=dict)
    named_by_policy: bool = False
    default_engine: str = "auto"
    expiry: ExpiryFacts | None = None
    cannot_commit: str | None = None
    longest_reader: timedelta = timedelta(hours=24)


def plan_table(
    subject: Subject,
    groups: Callable[[RewriteOptions], GroupPlan],
    *,
    request: Request | None = None,
    throughput: Throughput | None = None,
    reach: CountReach = lambda expired: Reach(0, 0),
    orphans: FindOrphans | None = None,
    only: Collection[Action] | None = None,
    versions: Callable[[], MetadataVersions] = lambda: MetadataVersions("", (), {}),
    manifests: ListManifests | None = None,
    deletes: PlanDeletes | None = None,
) -> TablePlan:
    """Planned actions, and every considered one that is not planned with its reason.

    `groups` reads the table's manifests (`plan_groups`): it is called once at most, and only when everything else
    speaks for a rewrite; `reach` counts what only expired snapshots reach, `versions` looks metadata files up,
    `manifests` reads a head's list, `deletes` looks for delete files to rewrite, and `orphans` for orphan files (None:
    the run that removes them will), likewise. `only`: no other actions are considered. Actions come in the safe order,
    whatever the order in which they were asked for. A request goes past trigger, cooldown and minimum gain; nothing
    goes past a block, what is unsupported, and a plan that gains nothing. Options that do not fit this table are the
    plan's `error`: check the request beforehand (`Request.check`).
    """
    asked = request or Request()
    state = subject.state
    considered = _considered(subject, asked, only)
    if subject.health.error is not None:
        return TablePlan(state.table, state.uuid, state.snapshot_id, error=subject.health.error)
    blocked = block(state, now_ms=subject.now_ms, named_by_policy=subject.named_by_policy)
    if blocked is not None:
        skipped = tuple(Skip(action, blocked) for action in considered)
        return TablePlan(state.table, state.uuid, state.snapshot_id, skipped=skipped)

    actions: list[PlannedAction] = []
    skips: list[Skip] = []
    error: str | None = None
    for action in considered:
        if action not in AVAILABLE:
            skips.append(Skip(action, _not_available(action, subject, asked)))
            continue
        planned: PlannedAction | str
        try:
            if action == Action.EXPIRE_SNAPSHOTS:
                planned = _expire(subject, reach, asked)
            elif action == Action.REMOVE_ORPHAN_FILES:
                requested = None if asked.actions is None else REQUESTED
                planned = plan_orphans(subject, asked.orphans, orphans, requested=requested)
            elif action == Action.PRUNE_METADATA:
                planned = _prune(subject, versions, asked)
            elif action == Action.SET_PROPERTIES:
                planned = _set_properties(subject)
            elif action == Action.REWRITE_MANIFESTS:
                branch, given = asked.branch or MAIN_BRANCH, asked.options_of(action)
                planned = _rewrite_metadata(
                    action, subject, asked, partial(plan_action, state, manifests, given, branch=branch)
                )
            elif action == Action.REWRITE_POSITION_DELETE_FILES:
                branch, given = asked.branch or MAIN_BRANCH, asked.options_of(action)
                planned = _rewrite_metadata(
                    action, subject, asked, partial(plan_position_deletes, state, deletes, given, branch=branch)
                )
            else:
                planned = _rewrite(subject, groups, asked, throughput or Throughput())
        except InputError as wrong:
            error = f"{action}: {wrong.message} ({wrong.hint})" if wrong.hint else f"{action}: {wrong.message}"
            continue
        if isinstance(planned, PlannedAction):
            actions.append(planned)
        else:
            skips.append(Skip(action, planned))
    return TablePlan(state.table, state.uuid, state.snapshot_id, tuple(actions), tuple(skips), error)


def _considered(subject: Subject, asked: Request, only: Collection[Action] | None) -> tuple[Action, ...]:
    if asked.actions is None:
        # Without the table's history it is not known whether a file of its own could be old enough.
        timed = () if subject.expiry is None else (Action.REMOVE_ORPHAN_FILES,)
        by_policy = in_safe_order((*_in_question(subject.health), *timed))
        found = tuple(action for action in by_policy if action not in asked.leave_out)
    else:
        found = in_safe_order(asked.actions)
    return found if only is None else tuple(action for action in found if action in only)


def _in_question(health: TableHealth) -> tuple[Action, ...]:
    """The policy's actions without those that this table gives no cause to speak of."""
    causes = {
        Action.REWRITE_POSITION_DELETE_FILES: health.position_delete_files + health.dangling_delete_files,
        Action.SET_PROPERTIES: health.properties_to_set,
        Action.PRUNE_METADATA: health.prunable_metadata_files,
    }
    return tuple(action for action in POLICY_ACTIONS if causes.get(action, 1))


def _not_available(action: str, subject: Subject, asked: Request) -> str:
    missing = f"{action} is not available in this release"
    if asked.actions is not None:
        return missing
    triggers = triggers_of(action, subject.policy)
    due = crossed(triggers, subject.health)
    return f"{missing}; it is due: {due}" if due else f"not due: {nearest_miss(triggers, subject.health)}"


def _rewrite(
    subject: Subject, groups: Callable[[RewriteOptions], GroupPlan], asked: Request, throughput: Throughput
) -> PlannedAction | str:
    """The planned rewrite of data files, or why there is none."""
    policy = subject.policy.rewrite_data_files
    is_request = asked.actions is not None
    verification = {VERIFY_ROWS: "true"} if policy.verification == "rows" else {}
    given = {**verification, **policy.options, **asked.options}
    options = RewriteOptions.resolve(given, subject.state.properties, settle=policy.settle, split_oversized=is_request)
    obstacle = _unsupported(subject, asked)
    if obstacle is not None:
        return f"unsupported: {obstacle}"
    options = options.with_layout(*_layout(subject, asked))
    is_main = subject.state.branch == MAIN_BRANCH
    if subject.state.snapshot_id is None or (is_main and subject.health.data_files == 0):
        return "nothing to do: the table is empty"
    reason = REQUESTED
    if not is_request:
        triggers = triggers_of(Action.REWRITE_DATA_FILES, subject.policy)
        due = crossed(triggers, subject.health)
        if due is None:
            return f"not due: {nearest_miss(triggers, subject.health)}"
        reason = due
        if options.sort_order is not None and crossed(_of_overlap(triggers), subject.health) is not None:
            done_to = subject.laid_out.get(options.sort_order, -1)
            options = replace(options, reorder=(done_to, subject.state.sequence_number))
        waits = cooling(Action.REWRITE_DATA_FILES, subject.policy, subject.last_run_ms, subject.now_ms)
        if waits is not None:
            return f"cooldown: {waits}; due: {reason}"
    _refuse_unknown_spec(options, subject.state)
    plan = groups(options)
    if not plan.groups:
        return f"nothing to gain: {_left_alone(plan)}{_dangling(subject.health) if is_main else ''}{_outside(plan)}"
    if not is_request and not _gains(plan, policy.min_gain):
        return f"gain below min_gain: {_gain(plan)}; min_gain is {policy.min_gain}"
    return PlannedAction(
        action=Action.REWRITE_DATA_FILES,
        engine=Engine.EMBEDDED,
        control=Control.EXACT,
        reason=reason,
        inputs=Inputs(plan.input_files, plan.input_bytes),
        expected=Expected(
            files=plan.expected_files,
            bytes=plan.expected_bytes,
            seconds=round(plan.input_bytes / throughput.bytes_per_second + plan.input_files * SECONDS_A_FILE, 3),
            fewer_files=plan.fewer_files,
            fewer_deletes=plan.fewer_deletes,
            bytes_per_second=throughput.bytes_per_second,
            basis=throughput.basis,
        ),
        options={**options.as_text(), **({} if asked.where is None else {WHERE: asked.where})},
        groups=plan.groups,
        branch=subject.state.branch,
        notes=() if asked.where is None else (f"where chose files, never rows{_outside(plan)}",),
    )


def _of_overlap(triggers: Iterable[Trigger]) -> list[Trigger]:
    """Those that look at how far files overlap, which only another order of rows changes."""
    return [trigger for trigger in triggers if trigger.of in OVERLAP_MEASURES]


def _refuse_unknown_spec(options: RewriteOptions, state: TableState) -> None:
    wanted = options.output_spec_id
    if wanted is None:
        return
    if wanted not in state.specs:
        known = ", ".join(map(str, sorted(state.specs)))
        raise InputError(f"the table has no partition spec {wanted}", field=OUTPUT_SPEC, hint=f"its specs: {known}")
    why = state.specs[wanted]
    if why is not None:
        raise InputError(
            f"no rows can be written under partition spec {wanted}: {why}", field=OUTPUT_SPEC, hint="name another spec"
        )


def _layout(subject: Subject, asked: Request) -> tuple[str, SortOrder | None, int | None]:
    """Strategy, order and the order's id. Raises InputError where they do not fit each other or the table.

    A strategy that is asked for is not that of the policy: the policy's order does not belong to it.
    """
    policy = subject.policy.rewrite_data_files
    strategy: str
    if asked.strategy is None or asked.strategy == policy.strategy:
        strategy, text = policy.strategy, asked.sort_order or policy.sort_order
    else:
        strategy, text = asked.strategy, asked.sort_order
    if strategy == "binpack" and asked.sort_order is None:
        text = None
    return strategy, *resolve(strategy, text, subject.state)


def _rewrite_metadata(
    action: Action, subject: Subject, asked: Request, plan: Callable[[str], PlannedAction | str]
) -> PlannedAction | str:
    """The planned rewrite of manifests or delete files, or why there is none. `plan`: told why it is done."""
    reason = REQUESTED if asked.actions is not None else _due(action, subject)
    if reason is None:
        return f"not due: {nearest_miss(triggers_of(action, subject.policy), subject.health)}"
    if subject.cannot_commit is not None:
        return f"unsupported: {subject.cannot_commit}"
    return plan(reason)


def _due(action: Action, subject: Subject) -> str | None:
    return crossed(triggers_of(action, subject.policy), subject.health)


def _expire(subject: Subject, reach: CountReach, asked: Request) -> PlannedAction | str:
    """The planned expiry, or why there is none."""
    policy = effective(subject.policy.expire_snapshots, asked.expiry)
    facts = subject.expiry
    if subject.cannot_commit is not None:
        return f"unsupported: {subject.cannot_commit}"
    if facts is None or not facts.snapshots:
        return "nothing to do: the table is empty"
    reason = REQUESTED
    if asked.actions is None:
        triggers = triggers_of(Action.EXPIRE_SNAPSHOTS, subject.policy)
        due = crossed(triggers, subject.health)
        if due is None:
            return f"not due: {nearest_miss(triggers, subject.health)}"
        reason = due
    refused = refusal(policy, facts.properties, subject.longest_reader)
    rules = retention(policy, facts.properties)
    if refused is not None or rules is None:
        return f"refused: {refused}"
    branch = asked.branch
    if branch is not None and not any(ref.name == branch and ref.is_branch for ref in facts.refs):
        return f"nothing to expire: the table has no branch {branch}"
    ids = asked.expiry.snapshot_ids
    gone = decide(facts, policy, ids, subject.now_ms, subject.longest_reader, branch)
    told = unmet(facts, ids, gone, subject.now_ms, subject.longest_reader) if ids else ()
    if not gone.snapshot_ids and not gone.refs:
        why = "; ".join(told) or "every snapshot is young enough, or needed by a branch or tag"
        return f"nothing to expire: {why}"
    found = reach(frozenset(gone.snapshot_ids))
    return PlannedAction(
        action=Action.EXPIRE_SNAPSHOTS,
        engine=Engine.EMBEDDED,
        control=Control.EXACT,
        reason=reason,
        inputs=Inputs(found.files, found.bytes),
        expected=Expected(files=0, bytes=0, seconds=round(found.files / FILES_A_SECOND, 3), fewer_files=found.files),
        options=as_text(policy, rules, asked.expiry, branch),
        snapshots=gone.snapshot_ids,
        refs=gone.refs,
        notes=(*notes(facts, gone, branch or MAIN_BRANCH), *told),
        branch=branch or MAIN_BRANCH,
    )


def _prune(subject: Subject, versions: Callable[[], MetadataVersions], asked: Request) -> PlannedAction | str:
    """The planned pruning of the metadata history, or why there is none."""
    if subject.cannot_commit is not None:
        return f"unsupported: {subject.cannot_commit}"
    policy = subject.policy.prune_metadata
    options = PruneRequest.from_options(asked.options_of(Action.PRUNE_METADATA))
    reason = REQUESTED
    if asked.actions is None:
        due = crossed(policy.trigger, subject.health)
        if due is None:
            return f"not due: {nearest_miss(policy.trigger, subject.health)}"
        reason = due
    return plan_prune(policy, options, subject.state.properties, versions, reason)


def _set_properties(subject: Subject) -> PlannedAction | str:
    """The table properties that the policy wants, or why none is set."""
    if subject.cannot_commit is not None:
        return f"unsupported: {subject.cannot_commit}"
    properties = subject.state.properties
    wanted = to_set(subject.policy, subject.health.advice, properties)
    if not wanted:
        return "nothing to set: every property that the policy wants is set"
    advised = {one.property: one.reason for one in subject.health.advice}
    changes = [f"{name}: {properties.get(name, 'unset')} → {value}" for name, value in wanted.items()]
    return PlannedAction(
        action=Action.SET_PROPERTIES,
        engine=Engine.EMBEDDED,
        control=Control.EXACT,
        reason=f"the policy wants {', '.join(wanted)}",
        inputs=Inputs(0, 0),
        expected=Expected(files=0, bytes=0, seconds=0.0),
        options=wanted,
        notes=(*changes, *(f"{name}: {advised[name]}" for name in wanted if name in advised)),
    )


def _unsupported(subject: Subject, asked: Request) -> str | None:
    """What this release cannot do safely, and who can; None where nothing stands against the rewrite."""
    state = subject.state
    if state.features:
        return CANNOT_KEEP.format(", ".join(state.features))
    if subject.cannot_commit is not None:
        return subject.cannot_commit
    engine = asked.engine or "auto"
    for choice in (subject.policy.engine, subject.default_engine):
        engine = choice if engine == "auto" else engine
    if engine == "spark":
        return "the spark engine is not part of this release"
    return None


def _gains(plan: GroupPlan, least: MinGain) -> bool:
    """`files`: data and delete files a reader no longer opens, and data files brought into order. `bytes`: data brought
    into well-sized files."""
    if least.files is not None and plan.fewer_files + plan.fewer_deletes + plan.ordered_files < least.files:
        return False
    return least.bytes is None or plan.input_bytes >= least.bytes


def _gain(plan: GroupPlan) -> str:
    return (
        f"{plan.fewer_files} fewer data files and {plan.fewer_deletes} fewer delete files, "
        f"by rewriting {plan.input_files} files ({format_size(plan.input_bytes)})"
    )


def _left_alone(plan: GroupPlan) -> str:
    if not plan.left_alone:
        return "every file is well-sized, and none has too many deletes"
    return "; ".join(f"{_files(left.files)}: {left.reason}" for left in plan.left_alone)


def _files(count: int) -> str:
    return f"{count} file" if count == 1 else f"{count} files"


def _outside(plan: GroupPlan) -> str:
    return f"; {_files(plan.outside)} cannot hold rows that where is true for" if plan.outside else ""


def _dangling(health: TableHealth) -> str:
    count = health.dangling_delete_files
    return f"; {count} delete files that reach no data file go with the next rewrite" if count else ""
