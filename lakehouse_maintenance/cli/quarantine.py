"""The verb `quarantine` and what it can be asked for."""

from __future__ import annotations

from typing import Annotated

import typer

from lakehouse_maintenance.cli.session import Session

quarantine = typer.Typer(
    name="quarantine",
    help="Show, restore or purge what was moved aside.",
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Entry = Annotated[str, typer.Argument(metavar="ID", help="As list shows it.")]


@quarantine.command("list")
def show(context: typer.Context) -> int:
    """Show every entry, oldest first.

    Those that were restored or purged included.
    """
    from lakehouse_maintenance.cli.verbs import show_quarantine

    return show_quarantine(_session(context))


@quarantine.command()
def restore(context: typer.Context, entry: Entry) -> int:
    """Bring an entry back to where it was.

    Nothing is ever overwritten: where something lies there again, nothing is moved.
    """
    from lakehouse_maintenance.cli.verbs import restore_entry

    return restore_entry(_session(context), entry)


@quarantine.command()
def purge(
    context: typer.Context,
    entry: Annotated[
        str | None, typer.Argument(metavar="ID", help="As list shows it. None: every entry whose time has passed.")
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="AGE", help="Moved so long ago, such as 5 days; in place of the policy's time."
        ),
    ] = None,
) -> int:
    """Delete what lies in quarantine and whose time has passed."""
    from lakehouse_maintenance.cli.verbs import purge_entries

    return purge_entries(_session(context), entry, older_than)


def _session(context: typer.Context) -> Session:
    session = context.obj
    assert isinstance(session, Session)
    return session
