"""The verb `untracked-folders`: table folders that no table owns, by the job's own `application.json`."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakehouse_maintenance.cli.session import Session
from lakehouse_maintenance.cli.text import printable
from lakehouse_maintenance.model.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def untracked_folders(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE.json", help="The job's application.json.", show_default=False)],
    plan_digest: Annotated[
        str | None,
        typer.Option("--plan-digest", metavar="DIGEST", help="Only folders that are still as this dry run found them."),
    ] = None,
) -> int:
    """Find table folders that no table owns.

    Reports them unless the file says "dry_run": false and "delete_enabled": true. A database that is skipped or blocked
    is told and is no failure.
    """
    session = context.obj
    assert isinstance(session, Session)
    if plan_digest is not None and not _DIGEST.fullmatch(plan_digest):
        raise InputError(
            f"{plan_digest!r} is no digest", field="--plan-digest", hint="sha256: and 64 digits, as a dry run tells"
        )
    with session.lakehouse() as lakehouse:
        run = lakehouse.untracked_folders(file, plan_digest=plan_digest)
    session.show(run.as_json(), partial(draw_folders, mask=session.mask))
    return int(not run.ok)


def draw_folders(data: Mapping[str, Any], console: Console, mask: Callable[[str], str]) -> None:
    """The report, with characters in place of the references that Markdown needs for them, and its tables in columns.

    `mask` is asked once more after that: a secret with such a character is not found as long as it is a reference.
    """

    def shown(text: str) -> str:
        return printable(mask(html.unescape(text)))

    for is_table, lines in groupby(data["report"].splitlines(), key=lambda line: line.startswith("|")):
        for line in _in_columns(lines, shown) if is_table else map(shown, lines):
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def _in_columns(lines: Iterable[str], shown: Callable[[str], str]) -> Iterator[str]:
    """A table of Markdown with cells of equal width, which it remains. In the report a `|` inside a cell is a
    reference."""
    from rich.cells import cell_len

    rows = [[shown(cell.strip()) for cell in line.strip("|").split("|")] for line in lines]
    widths = [max(map(cell_len, column)) for column in zip_longest(*rows, fillvalue="")]
    for number, row in enumerate(rows):
        # The second row is Markdown's line under the head.
        cells = (
            "-" * width if number == 1 else cell + " " * (width - cell_len(cell))
            for cell, width in zip(row, widths, strict=False)
        )
        yield f"| {' | '.join(cells)} |"
