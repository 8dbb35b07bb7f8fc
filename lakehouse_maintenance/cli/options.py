"""The options that `plan` and `maintain` share, as Typer shows them, read into one value."""

from __future__ import annotations

from typing import Annotated

import typer

Actions = Annotated[
    list[str] | None,
    typer.Option("--action", metavar="ACTION", help="This action, due or not; repeatable. None: what is due."),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="Option by Iceberg's name, for each action asked for that has it; repeatable.",
    ),
]
Where = Annotated[str | None, typer.Option("--where", metavar="FILTER", help="Only files that can hold such rows.")]
Strategy = Annotated[str | None, typer.Option("--strategy", metavar="NAME", help="binpack, sort or zorder.")]
SortOrder = Annotated[str | None, typer.Option("--sort-order", metavar="ORDER", help="Columns to sort by.")]
OlderThan = Annotated[
    str | None,
    typer.Option("--older-than", metavar="AGE", help="Age for expiry, and for orphan files asked for by name."),
]
RetainLast = Annotated[str | None, typer.Option("--retain-last", metavar="N", help="Snapshots that expiry keeps.")]
Branch = Annotated[
    str | None,
    typer.Option("--branch", metavar="NAME", help="This branch: its head is rewritten, its own snapshots expire."),
]
ShortRetention = Annotated[
    bool, typer.Option("--allow-short-retention", help="Go past the guard of the shortest retention.")
]
EngineName = Annotated[str | None, typer.Option("--engine", metavar="NAME", help="auto, embedded or spark.")]
