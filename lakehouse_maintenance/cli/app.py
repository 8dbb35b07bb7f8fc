"""The verbs and their options, as Typer shows and parses them. What they do is in `verbs`, `starting` and `doctor`.

Each verb returns its exit code: 0 done; 1 something failed, is blocked or unknown. Errors travel as exceptions to
`running`, which makes exit codes 1 and 2 of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakehouse_maintenance import __version__
from lakehouse_maintenance.cli.options import (
    Actions,
    Branch,
    EngineName,
    OlderThan,
    Options,
    RetainLast,
    ShortRetention,
    SortOrder,
    Strategy,
    Where,
)
from lakehouse_maintenance.cli.orphans import explain, orphans
from lakehouse_maintenance.cli.quarantine import quarantine
from lakehouse_maintenance.cli.review import review
from lakehouse_maintenance.cli.session import Session
from lakehouse_maintenance.cli.untracked import untracked_folders

app = typer.Typer(
    name="lakehouse-maintenance",
    help="Autovacuum for the lakehouse: measures tables, plans what pays, runs it safely, and keeps the record.",
    epilog="--config, --json and -v work before and after the verb. Exit codes: 0 done; 1 something failed, is blocked "
    "or unknown; 2 bad input or configuration.",
    add_completion=False,
    rich_markup_mode=None,  # rich takes longer to load than all the rest of the help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Tables = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TABLE",
        help="catalog.database.table; the catalog may be left out where there is one; * matches within a part. "
        "None: every table of the configured databases.",
        show_default=False,
    ),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the plan to this file, for apply.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lakehouse-maintenance {__version__}")
        raise typer.Exit


@app.callback()
def _globals(
    # Read by `arguments` before Typer sees the command line; declared for the help text.
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="lakehouse.yaml; else where the environment says."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON on standard output.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Logs on standard error; tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    del config, as_json, verbose, version


@app.command()
def init(
    context: typer.Context,
    catalog: Annotated[str, typer.Option("--catalog", metavar="NAME", help="The name that tables are called by.")],
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="NAME=VALUE",
            help="A property of PyIceberg, such as type=sql; repeatable. None: what PyIceberg's own configuration has.",
        ),
    ] = None,
) -> int:
    """Write a lakehouse.yaml for a catalog.

    Its connection is tried first. An existing file is never overwritten.
    """
    from lakehouse_maintenance.cli.starting import start

    return start(_session(context), catalog, properties or [])


@app.command()
def doctor(
    context: typer.Context,
    write_test: Annotated[
        bool, typer.Option("--write-test", help="Write a scratch object to each warehouse, and remove it again.")
    ] = False,
) -> int:
    """Check catalogs, stores, versions and state."""
    from lakehouse_maintenance.cli.verbs import examine

    return examine(_session(context), write_test=write_test)


@app.command()
def demo(
    context: typer.Context,
    into: Annotated[Path, typer.Option("--into", metavar="DIR", help="Folder of its own.")] = Path("demo-lakehouse"),
    engine: EngineName = None,
) -> int:
    """See a sick lakehouse get well."""
    from lakehouse_maintenance.cli.verbs import demonstrate

    return demonstrate(_session(context), into, engine)


@app.command()
def health(
    context: typer.Context,
    tables: Tables = None,
    exact: Annotated[bool, typer.Option("--exact", help="Trust nothing remembered; look metadata files up.")] = False,
) -> int:
    """Measure tables, from metadata alone."""
    from lakehouse_maintenance.cli.verbs import measure

    return measure(_session(context), tables or [], exact=exact)


@app.command()
def plan(
    context: typer.Context,
    tables: Tables = None,
    actions: Actions = None,
    out: Out = None,
    options: Options = None,
    where: Where = None,
    strategy: Strategy = None,
    sort_order: SortOrder = None,
    older_than: OlderThan = None,
    retain_last: RetainLast = None,
    branch: Branch = None,
    engine: EngineName = None,
    allow_short_retention: ShortRetention = False,
) -> int:
    """Show what would be done, and why.

    With what is expected of it, and why the rest is left alone. Changes nothing.
    """
    from lakehouse_maintenance.cli.requests import Asked
    from lakehouse_maintenance.cli.verbs import make_plan

    asked = Asked(
        actions=actions or [],
        options=options or [],
        where=where,
        strategy=strategy,
        sort_order=sort_order,
        older_than=older_than,
        retain_last=retain_last,
        branch=branch,
        engine=engine,
        allow_short_retention=allow_short_retention,
    )
    return make_plan(_session(context), tables or [], asked, out)


@app.command()
def apply(
    context: typer.Context,
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="File that plan --out wrote; - for standard input.")],
) -> int:
    """Run a plan from a file.

    Every file is checked again first, and what no longer fits is left alone.
    """
    from lakehouse_maintenance.cli.verbs import apply_plan

    return apply_plan(_session(context), plan)


@app.command()
def maintain(
    context: typer.Context,
    tables: Tables = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan that would be run.")] = False,
    actions: Actions = None,
    out: Out = None,
    options: Options = None,
    where: Where = None,
    strategy: Strategy = None,
    sort_order: SortOrder = None,
    older_than: OlderThan = None,
    retain_last: RetainLast = None,
    branch: Branch = None,
    engine: EngineName = None,
    allow_short_retention: ShortRetention = False,
) -> int:
    """Plan and run what is due now.

    What the policies make due, within the budget; or the actions that are named.
    """
    from lakehouse_maintenance.cli.requests import Asked
    from lakehouse_maintenance.cli.verbs import run_maintenance

    asked = Asked(
        actions=actions or [],
        options=options or [],
        where=where,
        strategy=strategy,
        sort_order=sort_order,
        older_than=older_than,
        retain_last=retain_last,
        branch=branch,
        engine=engine,
        allow_short_retention=allow_short_retention,
    )
    return run_maintenance(_session(context), tables or [], asked, out, dry_run=dry_run)


@app.command()
def rollback(
    context: typer.Context,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="catalog.database.table.")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="SNAPSHOT", help="Snapshot id. None: the one that the last failed verification named."
        ),
    ] = None,
    branch: Annotated[str, typer.Option("--branch", metavar="NAME", help="The branch that is moved.")] = "main",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would leave the view; change nothing.")] = False,
) -> int:
    """Move a table back to an earlier snapshot.

    Or forward again. Every file of that snapshot is looked up first; no file is written or deleted.
    """
    from lakehouse_maintenance.cli.verbs import move_back

    return move_back(_session(context), table, to, branch, dry_run=dry_run)


app.add_typer(quarantine)
app.add_typer(review)


app.command()(orphans)
app.command()(explain)
app.command("untracked-folders")(untracked_folders)


@app.command()
def audit(
    context: typer.Context,
    last: Annotated[int | None, typer.Option("--last", metavar="N", min=1, help="Only so many of the newest.")] = None,
    table: Annotated[str | None, typer.Option("--table", metavar="TABLE", help="Of this table alone.")] = None,
) -> int:
    """Show the journal, oldest first.

    What was about to be done, and what became of it.
    """
    from lakehouse_maintenance.cli.verbs import show_events

    return show_events(_session(context), last=last, table=table)


def _session(context: typer.Context) -> Session:
    session = context.obj
    assert isinstance(session, Session)
    return session
