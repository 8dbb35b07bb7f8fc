"""The verb `review`: what waits for somebody's word before it is removed, and the word."""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakehouse_maintenance.cli.session import Session
from lakehouse_maintenance.cli.text import SHORT_DIGEST, count, printable, size
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.intervals import parse_until

if TYPE_CHECKING:
    from rich.console import Console

    from lakehouse_maintenance.model.reviews import Review

_SHOWN = 100
"""Folders of one review that are shown to people."""

_STYLES = {"approved": "green", "partly_approved": "green", "rejected": "dim", "expired": "yellow", "superseded": "dim"}

review = typer.Typer(
    name="review",
    help="Show, approve or reject what is to be removed.",
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Digest = Annotated[
    str,
    typer.Argument(
        metavar="DIGEST", help="Of a database's plan, or of a run, as list shows it; its first 12 hex digits suffice."
    ),
]
Folders = Annotated[
    list[str] | None,
    typer.Option("--folder", metavar="PATH", help="Only this folder, as list shows it; repeatable. None: all of them."),
]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who decides. None: the name of the user.")]


@review.command("list")
def show(context: typer.Context) -> int:
    """Show every plan and what was said of it.

    What was found last comes first.
    """
    session = _session(context)
    with session.lakehouse() as lakehouse:
        found = lakehouse.reviews()
    return _show(session, found)


@review.command()
def approve(
    context: typer.Context,
    digest: Digest,
    folders: Folders = None,
    by: By = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="WHEN", help="A date or time (UTC where it names no zone), or 3 days. None: 7 days."
        ),
    ] = None,
) -> int:
    """Let the folders of a plan be removed.

    Each goes only while it is still what the plan says (objects, bytes, newest time) and nobody owns it. The last word
    on a folder counts.
    """
    session = _session(context)
    name, ends = _name(by), None if until is None else parse_until(until, datetime.now(UTC), field="--until")
    with session.lakehouse() as lakehouse:
        found = lakehouse.approve(digest, folders or None, by=name, until=ends)
    return _show(session, found)


@review.command()
def reject(context: typer.Context, digest: Digest, folders: Folders = None, by: By = None) -> int:
    """Keep the folders of a plan.

    What was approved of them before is taken back.
    """
    session = _session(context)
    name = _name(by)
    with session.lakehouse() as lakehouse:
        found = lakehouse.reject(digest, folders or None, by=name)
    return _show(session, found)


def draw_reviews(data: Mapping[str, Any], console: Console) -> None:
    """Each plan that counts with its folders; of superseded ones the number alone."""
    shown = [one for one in data["reviews"] if one["state"] != "superseded"]
    for one in shown:
        _draw_review(one, console)
    hidden = len(data["reviews"]) - len(shown)
    if hidden:
        _line(console, f"{count(hidden, 'superseded plan')} not shown: --json names all")
    elif not shown:
        _line(console, "nothing to review")


def _draw_review(one: Mapping[str, Any], console: Console) -> None:
    folders = one["folders"]
    _line(console, f"{one['subject']}: {one['state']}", style=_STYLES.get(one["state"]))
    amount = size(sum(folder["bytes"] for folder in folders))
    _line(console, f"  {count(len(folders), 'folder')}, {amount}, found {_to_the_second(one['found_at'])}")
    if one["by"] is not None:
        ends = f", until {_to_the_second(one['until'])}" if one["until"] else ""
        _line(console, f"  {one['by']}, {_to_the_second(one['at'])}{ends}")
    for folder in folders[:_SHOWN]:
        newest = datetime.fromtimestamp(folder["newest_ms"] / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        _line(console, f"  {folder['decision']:8}  {size(folder['bytes']):>10}  {folder['path']}")
        _line(console, f"            {count(folder['objects'], 'object')}, newest {newest}")
    if len(folders) > _SHOWN:
        _line(console, f"  {count(len(folders) - _SHOWN, 'folder')} more: --json names all")
    _line(console, f"  {one['digest']}")
    if one["state"] in ("pending", "expired", "rejected"):
        _line(console, f"  to approve: review approve {one['digest'][:SHORT_DIGEST]}")
    elif one["state"] in ("approved", "partly_approved"):
        _line(console, "  goes with the next run that removes, as far as it is still what stands here")


def _to_the_second(moment: str) -> str:
    return datetime.fromisoformat(moment).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _show(session: Session, found: Sequence[Review]) -> int:
    now = datetime.now(UTC)
    session.show({"reviews": [one.as_json(now) for one in found]}, draw_reviews)
    return 0


def _name(by: str | None) -> str:
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise InputError("the user has no name here", field="--by", hint="say who decides: --by NAME") from None


def _line(console: Console, text: str, *, style: str | None = None) -> None:
    console.print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)


def _session(context: typer.Context) -> Session:
    session = context.obj
    assert isinstance(session, Session)
    return session
