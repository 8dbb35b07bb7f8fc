"""Jobs: tables become partitions, and a table's three assets are materialized in one run."""

# Dagster reads the annotations of `context` itself and takes no text for them: no `from __future__ import annotations`.

import dagster as dg

from lakehouse_maintenance.model.errors import LakehouseError
from lakehouse_maintenance.model.markdown import table
from lakehouse_maintenance.orchestration.failing import failure
from lakehouse_maintenance.orchestration.naming import MAINTAINED_KEY, PLAN_KEY, STATE_KEY, meta
from lakehouse_maintenance.orchestration.partitions import register
from lakehouse_maintenance.orchestration.resources import LakehouseResource

_MOST_SHOWN = 200
RETRIES = dg.RetryPolicy(max_retries=3, delay=10, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
"""After about 10, 30 and 70 seconds."""


@dg.op(
    out=dg.Out(dg.Nothing),
    description="Lists the tables of the configured databases and adds a partition for each that has none. Takes no "
    "partition away. Fails, adding nothing, where a catalog's listing is not complete.",
)
def add_table_partitions(context: dg.OpExecutionContext, lakehouse: LakehouseResource) -> None:
    """Lists and registers."""
    opened = lakehouse.open()
    try:
        tables = opened.tables()
    except LakehouseError as error:
        raise failure(error, opened.config) from None
    new = register(context.instance, tables)
    context.log.info("%s tables, %s of them are new", len(tables), len(new))
    context.add_output_metadata(
        {
            meta("tables"): len(tables),
            meta("added"): len(new),
            meta("new"): dg.MetadataValue.md(table(("new table",), ((key,) for key in new[:_MOST_SHOWN]))),
        }
    )


@dg.job(
    executor_def=dg.in_process_executor,
    description="Adds a partition for every table of the configured databases that has none yet.",
)
def register_tables() -> None:
    """One step."""
    add_table_partitions()


_MAINTAINED = dg.AssetSelection.assets(STATE_KEY, PLAN_KEY, MAINTAINED_KEY)

maintain_tables = dg.define_asset_job(
    name="maintain_tables",
    selection=_MAINTAINED,
    executor_def=dg.in_process_executor,
    # Only failures that may pass by themselves allow a retry (failing.py).
    op_retry_policy=RETRIES,
    description="Measures one table, plans what its policies make due, and applies that plan. A step whose store or "
    "catalog does not answer, or whose table somebody else works on, is tried again.",
)

maintain_tables_once = dg.define_asset_job(
    name="maintain_tables", selection=_MAINTAINED, executor_def=dg.in_process_executor
)
"""Without another try: for who goes through many tables one after another, and would wait for each that is held."""
