"""Draws the demo's result: before and after side by side, what was left alone and why, what holds, what comes next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakehouse_maintenance.model.intervals import format_size

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

Json = Mapping[str, Any]

_COLUMNS = (
    ("data files", "data_files"),
    ("small", "small_files"),
    ("delete files", "delete_files"),
    ("snapshots", "snapshots"),
    ("score", "score"),
)

# Longer lines of prose are hard to read, however wide the terminal.
_WIDEST = 110


def draw(data: Json, console: Console) -> None:
    """Prints `DemoResult.as_json()`. Nothing in it is taken for markup."""
    maintained = {table["table"] for table in data["maintained"]}
    width = min(console.width, _WIDEST)
    console.print()
    console.print(_before_and_after(data, console, maintained))
    if not maintained:
        console.print(_heading("Nothing to do: no table is due that could be maintained."))
        console.print()
    if any(table["deleted_files"] for table in data["maintained"]):
        console.print(_heading("Storage freed, by snapshots that expired"))
        console.print(_freed(data), width=width)
        console.print()
    if data["left_alone"]:
        console.print(_heading("Left alone, and why"))
        console.print(_left_alone(data), width=width)
        console.print()
    console.print(_heading("Checked"))
    console.print(_checked(data, console), width=width)
    console.print()
    console.print(_heading("What comes next"))
    console.print(_next(data, changed=bool(maintained)), width=width)


def _before_and_after(data: Json, console: Console, maintained: set[str]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    after = {table["table"]: table for table in data["after"]["tables"]}
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    grid.add_column("table")
    for title, _ in _COLUMNS:
        grid.add_column(title, justify="right")
    grid.add_column("")
    blocked = {left["table"] for left in data["left_alone"] if left["reason"].startswith("blocked")}
    for table in data["before"]["tables"]:
        name = table["table"]
        then = after.get(name, table)
        cells = [_change(table, then, key, console) for _, key in _COLUMNS]
        if name in maintained:
            happened = Text("maintained", style="green")
        elif name in blocked:
            happened = Text("blocked", style="yellow")
        else:
            happened = Text("left alone", style="dim")
        grid.add_row(Text(_short(name)), *cells, happened)
    return grid


def _change(before: Json, after: Json, key: str, console: Console) -> Text:
    from rich.text import Text

    style = _score_style if key == "score" else lambda value: "bold" if after[key] != before[key] else "dim"
    if before[key] == after[key]:
        return Text(f"{after[key]:,}", style=style(after[key]))
    arrow = "->" if console.options.ascii_only else "→"
    then = _score_style(before[key]) if key == "score" else "red"
    # Three parts of one text: a style of the text itself would colour all of them.
    return Text.assemble((f"{before[key]:,}", then), (f" {arrow} ", "dim"), (f"{after[key]:,}", style(after[key])))


def _score_style(score: int) -> str:
    return "green" if score >= 80 else "yellow" if score >= 60 else "red"


def _freed(data: Json) -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    for _ in range(3):
        grid.add_column(justify="right")
    expired = [table for table in data["maintained"] if table["expired_snapshots"]]
    for table in sorted(expired, key=lambda table: (-table["deleted_bytes"], table["table"])):
        grid.add_row(
            Text(f"  {_short(table['table'])}"),
            Text(f"{table['expired_snapshots']:,} snapshots"),
            Text(f"{table['deleted_files']:,} files"),
            # Metadata does not tell the size of manifest lists.
            Text(format_size(table["deleted_bytes"]) if table["deleted_bytes"] else ""),
        )
    return grid


def _left_alone(data: Json) -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column()
    previous = None
    for left in data["left_alone"]:
        name = _short(left["table"])
        grid.add_row(Text(f"  {name}" if name != previous else ""), Text(_sentence(left)))
        previous = name
    return grid


def _sentence(left: Json) -> str:
    """The reason, with the action where it does not name it."""
    reason = left["reason"]
    return reason if left["action"] in reason or not reason.startswith("not due") else f"{left['action']} {reason}"


def _checked(data: Json, console: Console) -> Table:
    from rich.table import Table
    from rich.text import Text

    yes, no = ("ok", "NO") if console.options.ascii_only else ("✓", "✗")
    grid = Table.grid(padding=(0, 1, 0, 0))
    for check in data["checks"]:
        mark = Text(f"  {yes}", style="green") if check["passed"] else Text(f"  {no}", style="bold red")
        grid.add_row(mark, Text(check["detail"]))
    return grid


def _next(data: Json, *, changed: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    config = data["config"]
    folder = config.rpartition("/")[0]
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    if changed:
        kept = "Files that were compacted go when the snapshots that still read them expire, after five days."
        grid.add_row(Text("  storage"), Text(kept))
        grid.add_row(Text("  make demo"), Text("once more: it finds nothing left to do."))
    grid.add_row(Text("  make ui"), Text("opens Dagster on this lakehouse, with the runs just made."))
    grid.add_row(Text("  the lakehouse"), Text(folder))
    grid.add_row(Text("  look closer"), Text(f"lakehouse-maintenance --config {config} health"))
    return grid


def _heading(text: str) -> Text:
    from rich.text import Text

    return Text(text, style="bold")


def _short(table: str) -> str:
    return table.partition(".")[2]
