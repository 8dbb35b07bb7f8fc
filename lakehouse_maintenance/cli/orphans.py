"""The verbs `orphans` and `explain`: what no table references, and who owns a path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakehouse_maintenance.cli.requests import one_of, pairs, whole_number
from lakehouse_maintenance.cli.session import Session
from lakehouse_maintenance.cli.text import count, files_and_bytes, printable, size

if TYPE_CHECKING:
    from rich.console import Console

    from lakehouse_maintenance.planning.orphans import OrphanRequest

MODES = ("ERROR", "IGNORE", "DELETE")
_SHOWN = 20


def orphans(
    context: typer.Context,
    tables: Annotated[
        list[str],
        typer.Argument(metavar="TABLE", help="catalog.database.table; * matches within a part.", show_default=False),
    ],
    delete: Annotated[bool, typer.Option("--delete", help="Remove them; without it nothing is changed.")] = False,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="Only files of at least this age; 3 days.")
    ] = None,
    location: Annotated[
        str | None, typer.Option("--location", metavar="URL", help="Only in this folder of the table.")
    ] = None,
    prefix_mismatch_mode: Annotated[
        str | None,
        typer.Option(
            "--prefix-mismatch-mode",
            metavar="MODE",
            help="A file equals a reference in all but scheme or bucket: ERROR stops, IGNORE keeps it, DELETE takes it "
            "for an orphan.",
        ),
    ] = None,
    equal_schemes: Annotated[
        list[str] | None,
        typer.Option("--equal-schemes", metavar="A,B=NAME", help="Schemes that mean the same; repeatable."),
    ] = None,
    equal_authorities: Annotated[
        list[str] | None,
        typer.Option("--equal-authorities", metavar="A,B=NAME", help="Buckets that mean the same; repeatable."),
    ] = None,
    list_files: Annotated[bool, typer.Option("--list", help="Name every file.")] = False,
    plan_digest: Annotated[
        str | None, typer.Option("--plan-digest", metavar="DIGEST", help="Only if exactly this is found again.")
    ] = None,
    removal: Annotated[
        str | None, typer.Option("--removal", metavar="HOW", help="delete or quarantine; else as the policy says.")
    ] = None,
    max_concurrent_deletes: Annotated[
        str | None, typer.Option("--max-concurrent-deletes", metavar="N", help="Deleting calls in flight.")
    ] = None,
    allow_short_retention: Annotated[
        bool, typer.Option("--allow-short-retention", help="Let the age be less than 24 hours.")
    ] = False,
) -> int:
    """Find files that no table references.

    A dry run unless --delete is given. What any visible table of any catalog references stays, and so does what cannot
    be told.
    """
    session = context.obj
    assert isinstance(session, Session)
    asked = _request(
        older_than=older_than,
        location=location,
        mode=prefix_mismatch_mode,
        schemes=equal_schemes or [],
        authorities=equal_authorities or [],
        plan_digest=plan_digest,
        removal=removal,
        max_concurrent_deletes=max_concurrent_deletes,
        allow_short_retention=allow_short_retention,
    )
    with session.lakehouse() as lakehouse:
        report = lakehouse.orphans(tables, asked, delete=delete)
    session.show(report.as_json(with_files=list_files), draw_orphans)
    return int(not report.ok)


def explain(
    context: typer.Context,
    path: Annotated[str, typer.Argument(metavar="PATH", help="An object or a folder, with its scheme and bucket.")],
) -> int:
    """Say who owns a path, or why nobody does.

    With the evidence now, and what the journal tells of it: what was decided, when, by which plan, on what grounds.
    """
    session = context.obj
    assert isinstance(session, Session)
    with session.lakehouse() as lakehouse:
        explanation = lakehouse.explain(path)
    session.show(explanation.as_json(), draw_explanation)
    return int(not explanation.ok)


def _request(
    *,
    older_than: str | None,
    location: str | None,
    mode: str | None,
    schemes: Sequence[str],
    authorities: Sequence[str],
    plan_digest: str | None,
    removal: str | None,
    max_concurrent_deletes: str | None,
    allow_short_retention: bool,
) -> OrphanRequest:
    from lakehouse_maintenance.model.intervals import parse_duration
    from lakehouse_maintenance.model.locations import Location
    from lakehouse_maintenance.planning.orphans import OrphanRequest

    if location is not None:
        Location.parse(location)
    request = OrphanRequest(
        older_than=None if older_than is None else parse_duration(older_than, field="--older-than"),
        location=location,
        prefix_mismatch_mode=None if mode is None else one_of(mode.upper(), MODES, "--prefix-mismatch-mode"),
        equal_schemes=pairs(schemes, "--equal-schemes"),
        equal_authorities=pairs(authorities, "--equal-authorities"),
        plan_digest=plan_digest,
        removal=None if removal is None else one_of(removal, ("delete", "quarantine"), "--removal"),
        max_concurrent_deletes=None
        if max_concurrent_deletes is None
        else whole_number(max_concurrent_deletes, "--max-concurrent-deletes"),
        allow_short_retention=allow_short_retention,
    )
    request.check()
    return request


def draw_orphans(data: Mapping[str, Any], console: Console) -> None:
    """Each table: what was found, what became of it, what was kept and why."""
    for table in data["tables"]:
        _line(console, f"{table['table']}: {table['status']}" + (f": {table['reason']}" if table["reason"] else ""))
        if table["digest"] is None:
            for note in table["notes"]:
                _line(console, f"  note: {note}")
            continue
        found = files_and_bytes(table["orphan_files"], table["orphan_bytes"])
        _line(console, f"  {found} of {count(table['objects_listed'], 'object')} are referenced by nobody")
        if not table["dry_run"]:
            moved = f", quarantine entry {table['quarantine']}" if table["quarantine"] else ""
            how = "moved aside" if table["quarantine"] else "deleted"
            _line(console, f"  {files_and_bytes(table['deleted_files'], table['deleted_bytes'])} {how}{moved}")
        for kept in table["kept"]:
            _line(console, f"  {count(kept['files'], 'file')} kept: {kept['reason']}")
        for failed in table["failed"][:_SHOWN]:
            _line(console, f"  not deleted: {failed['path']}: {failed['error']}")
        for path in table["unknown"][:_SHOWN]:
            _line(console, f"  not known whether deleted: {path}")
        for file in table.get("files", ()):
            _line(console, f"  {size(file['bytes']):>10}  {file['path']}")
        for note in table["notes"]:
            _line(console, f"  note: {note}")
        _line(console, f"  {table['digest']}")


def draw_explanation(data: Mapping[str, Any], console: Console) -> None:
    """Who owns it, then the journal."""
    said = {True: "owned", False: "owned by nobody", None: "not known"}[data["owned"]]
    _line(console, f"{data['path']}: {said}")
    _line(console, f"  {data['why']}")
    for one in data["by"]:
        ids = one["snapshot_ids"]
        more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
        through = f", snapshots {', '.join(map(str, ids[:3]))}{more}" if ids else ""
        _line(console, f"  {one['table']}: {one['via']}{through}")
    folder = data.get("folder")
    if folder is not None and "error" not in folder:
        blocked = f" (nothing of {folder['database']} is removed: {folder['blocked']})" if folder["blocked"] else ""
        _line(console, f"  as a folder of {folder['database']}, {folder['path']}: {folder['verdict']}{blocked}")
        _line(console, f"    {folder['why']}")
    for past in data["journal"]:
        ended = f": {past['fate']}" if past["fate"] else ""
        why = f" ({past['why']})" if past["why"] else ""
        _line(
            console,
            f"  {past['at']} {past['table']} {past['action']} {past['phase']}{ended}{why}, run {past['run_id']}",
        )


def _line(console: Console, text: str) -> None:
    console.print(printable(text), markup=False, highlight=False, soft_wrap=True)
