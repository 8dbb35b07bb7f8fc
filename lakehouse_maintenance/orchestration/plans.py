"""From `maintenance_plan` to `maintained`: the very plan that was shown is the one that is applied.

The plan lies in the lakehouse's own state under `plans/<table>`, and its digest in the metadata of the
materialization. Dagster's IO managers are not used: their default writes files that other machines do not see, and the
state is shared by all runs anyway. One plan a table is kept: a newer one takes its place, and its digest too is in the
newer materialization. What does not fit together is refused, never planned anew in silence.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import dagster as dg

from lakehouse_maintenance.model.errors import InputError, StorageError
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.model.plans import Plan
from lakehouse_maintenance.orchestration.naming import PLAN_KEY, meta

if TYPE_CHECKING:
    from lakehouse_maintenance.state import State

_AGAIN = "materialize maintenance_plan of this partition, and then maintained"
_TRIES = 20


def keep(state: State, name: TableName, plan: Plan) -> None:
    """Keeps the table's plan in place of an earlier one."""
    value = json.dumps(plan.as_json(), separators=(",", ":")).encode()
    for _ in range(_TRIES):
        stored = state.get(_key(name))
        if state.put(_key(name), value, None if stored is None else stored[1]) is not None:
            return
    raise StorageError(f"the plan of {name} was changed by others {_TRIES} times in a row", field="state.url")


def kept(state: State, name: TableName, digest: str) -> Plan:
    """The table's plan with this digest. Raises InputError where the state has none, another, or a changed one."""
    stored = state.get(_key(name))
    if stored is None:
        raise InputError(
            f"the plan {digest} of {name} is not in the state at {state.location}",
            field="state.url",
            hint=f"runs that plan and runs that maintain need one state; {_AGAIN}",
        )
    try:
        plan = Plan.from_json(json.loads(stored[0]))
    except ValueError as error:
        raise InputError(f"the kept plan of {name} cannot be read: {error}", field="plan", hint=_AGAIN) from None
    if plan.digest != digest:
        raise InputError(
            f"{name} was planned again meanwhile: the kept plan is {plan.digest}, the one shown was {digest}",
            field="digest",
            hint=f"look at the newer plan; {_AGAIN}",
        )
    if any(table.table != str(name) for table in plan.tables):
        raise InputError(f"the kept plan of {name} is for other tables", field="plan", hint=_AGAIN)
    return plan


def shown_digest(instance: dg.DagsterInstance, partition_key: str) -> str:
    """Digest in the newest plan that Dagster shows for the partition. Raises InputError where it shows none."""
    newest = dg.AssetRecordsFilter(asset_key=PLAN_KEY, asset_partitions=[partition_key])
    for record in instance.fetch_materializations(newest, limit=1).records:
        materialization = record.asset_materialization
        entry = None if materialization is None else materialization.metadata.get(meta("digest"))
        if entry is not None:
            return str(entry.value)
    raise InputError(f"no plan was made for partition {partition_key}", field="partition", hint=_AGAIN)


def _key(name: TableName) -> str:
    return f"plans/{name}"
