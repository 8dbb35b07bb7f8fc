"""Results for people. What is drawn is the JSON result, with its sentences masked; names are shown, never obeyed."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from lakehouse_maintenance.cli.health_details import advice_line, health_details
from lakehouse_maintenance.cli.text import SHORT_DIGEST, count, files_and_bytes, printable, seconds, size
from lakehouse_maintenance.model.actions import LEAVES_DATA, Action
from lakehouse_maintenance.model.outcomes import NOT_RUN

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Json = dict[str, Any]

STYLES = {"done": "green", "failed": "red", "blocked": "yellow", "unknown": "red", "skipped": "dim"}
_HEALTH_COLUMNS = (
    *("table", "score", "rows", "files", "data", "small", "deletes"),
    *("snapshots", "manifests", "reclaimable", "due"),
)
_PIPED_WIDTH = 200
"""Columns where the result goes to a file or a pipe, so that names are not cut to an imagined screen."""


def console_on(stream: TextIO) -> Console:
    """A console that takes no markup out of names, and no colours where the stream is no terminal."""
    from rich.console import Console

    width = shutil.get_terminal_size().columns if stream.isatty() else _PIPED_WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def health(data: Json, console: Console, *, in_full: bool = False) -> None:
    """Measured tables, worst first; then what is due and why; then what could not be measured.

    `in_full`: with advice, and all that is known of each table.
    """
    tables = sorted(data["tables"], key=lambda table: (table["score"], table["table"]))
    measured = [table for table in tables if table["error"] is None]
    if not tables:
        _line(console, "no tables")
        return
    if measured:
        grid = _table(*_HEALTH_COLUMNS)
        for table in measured:
            grid.add_row(
                printable(table["table"]),
                str(table["score"]),
                f"{table['records']:,}",
                f"{table['data_files']:,}",
                size(table["data_bytes"]),
                f"{table['small_files']:,}",
                f"{table['delete_files']:,}",
                f"{table['snapshots']:,}",
                f"{table['manifests']:,}",
                size(table["reclaimable_bytes"]),
                printable(", ".join(due["action"] for due in table["due"])),
            )
        console.print(grid)
    due = [(table["table"], one) for table in measured for one in table["due"]]
    _section(console, "Due", (f"{name}: {one['action']}: {one['reason']}" for name, one in due))
    advice = [(table["table"], one) for table in measured for one in table["advice"]]
    if in_full:
        _section(console, "Advice", (advice_line(name, one) for name, one in advice))
        for table in measured:
            _section(console, table["table"], (f"{name:<20}{value}" for name, value in health_details(table)))
    elif advice:
        _line(console, f"advice on {count(len({name for name, _ in advice}), 'table')}: see health -v")
    _section(console, "Not measured", (f"{table['table']}: {table['error']}" for table in tables if table["error"]))


def plan(data: Json, console: Console) -> None:
    """What would be done, table by table; then what is left alone and why."""
    planned = [table for table in data["tables"] if table["actions"]]
    for table in planned:
        _line(console, table["table"], style="bold")
        for action in table["actions"]:
            _planned(console, action)
    left = [(table["table"], skip) for table in data["tables"] for skip in table["skipped"]]
    _section(console, "Left alone", (f"{name}: {skip['action']}: {skip['reason']}" for name, skip in left))
    failed = [table for table in data["tables"] if table["error"]]
    _section(console, "Not planned", (f"{table['table']}: {table['error']}" for table in failed))
    actions = [action for table in planned for action in table["actions"]]
    if not actions:
        _line(console, f"nothing to do on {count(len(data['tables']) - len(failed), 'table')}")
        return
    parts = []
    for deletes, what in ((False, "to read"), (True, "to delete")):
        inputs = [action["inputs"] for action in actions if _leaves_data(action) is deletes]
        if inputs:
            parts.append(f"{files_and_bytes(sum(i['files'] for i in inputs), sum(i['bytes'] for i in inputs))} {what}")
    _line(console, f"{count(len(actions), 'action')} on {count(len(planned), 'table')}: {'; '.join(parts)}")
    _line(console, data["digest"])


def outcome(data: Json, console: Console) -> None:
    """What became of a plan: what was done, expected against actual; then what was not, and why."""
    for table in data["tables"]:
        if not table["actions"]:
            continue
        _line(console, f"{table['table']}: {table['status']}", style=STYLES.get(table["status"]))
        for action in table["actions"]:
            _outcome(console, action)
        for skip in table["skipped"]:
            if skip["reason"].startswith(NOT_RUN):
                _line(console, f"  {skip['action']}: {skip['reason']}")
    rest = [table for table in data["tables"] if not table["actions"]]
    _section(console, "Left alone", (f"{t['table']}: {t['reason']}" for t in rest if t["status"] == "skipped"))
    _section(console, "Recovered", (_recovered(t["table"], one) for t in data["tables"] for one in t["recovered"]))
    wrong = [table for table in rest if table["status"] != "skipped"]
    _section(console, "Not done", (f"{t['table']}: {t['status']}: {t['reason']}" for t in wrong))
    by_status: dict[str, int] = {}
    for table in data["tables"]:
        by_status[table["status"]] = by_status.get(table["status"], 0) + 1
    summary = ", ".join(f"{number} {status}" for status, number in by_status.items())
    _line(console, f"run {data['run_id']}: {summary or 'no tables'}")


def events(data: Json, console: Console) -> None:
    """The journal, oldest first."""
    if not data["events"]:
        _line(console, "nothing has been journaled")
        return
    grid = _table("at", "table", "action", "phase", "status", "files", "size", "run", "plan", left=5)
    for event in data["events"]:
        status = event["status"] or ""
        grid.add_row(
            printable(event["at"]),
            printable(event["table"]),
            printable(_named_action(event)),
            printable(event["phase"]),
            printable(status),
            f"{event['files']:,}",
            size(event["bytes"]),
            printable(event["run_id"])[:8],
            printable(event["digest"] or "")[:SHORT_DIGEST],
            style=STYLES.get(status),
        )
    console.print(grid)


def _named_action(event: Mapping[str, Any]) -> str:
    """A review says what somebody decided, and removed nothing itself."""
    review = event["details"].get("review")
    return str(event["action"]) if review is None else f"{event['action']}: {review} by {event['details'].get('by')}"


def entries(data: Json, console: Console) -> None:
    """What lies in quarantine, or what became of it; then what went wrong."""
    if not data["entries"]:
        _line(console, "nothing in quarantine")
        return
    grid = _table("id", "state", "path", "objects", "size", "moved", "purge after", left=3)
    for entry in data["entries"]:
        grid.add_row(
            printable(entry["id"]),
            printable(entry["state"]),
            printable(entry["path"] or ""),
            "" if entry["objects"] is None else f"{entry['objects']:,}",
            size(entry["bytes"]),
            printable(entry["at"] or ""),
            printable(entry["purge_after"] or ""),
            style=STYLES.get(entry["status"] or ""),
        )
    console.print(grid)
    _section(console, "Not done", (f"{e['id']}: {e['error']}" for e in data["entries"] if e["error"]))
    _section(console, "Notes", (f"{e['id']}: {note}" for e in data["entries"] for note in e["notes"]))


def checks(data: Json, console: Console) -> None:
    """One line a check; what to do below those that failed."""
    for check in data["checks"]:
        mark, style = ("ok  ", None) if check["ok"] else ("FAIL", "red")
        _line(console, f"{mark} {check['name']}: {check['detail']}", style=style)
        if not check["ok"] and check["hint"]:
            _line(console, f"     {check['hint']}")
    failed = sum(not check["ok"] for check in data["checks"])
    _line(console, f"{count(failed, 'check')} failed" if failed else "all checks passed")


def started(data: Json, console: Console) -> None:
    """What `init` found and wrote, and what comes next."""
    names = ", ".join(data["databases"])
    found = count(len(data["databases"]), "database") + (f": {names}" if names else "")
    _line(console, f"catalog {data['catalog']} has {found}")
    _line(console, f"wrote {data['config']}")
    if data["environment"]:
        _line(console, "no secret stands in it; set these environment variables:")
        for name in data["environment"]:
            _line(console, f"  {name}")
    _line(console, "next:")
    for command in data["next"]:
        _line(console, f"  {command}")


def _planned(console: Console, action: Mapping[str, Any]) -> None:
    if _expires(action):
        _planned_expiry(console, action)
        return
    if action["action"] == Action.REMOVE_ORPHAN_FILES:
        _planned_orphans(console, action)
        return
    if _leaves_data(action):
        _planned_change(console, action)
        return
    inputs, expected = action["inputs"], action["expected"]
    gain = count(expected["fewer_files"], "file")
    if expected["fewer_deletes"]:
        gain += f" and {count(expected['fewer_deletes'], 'delete file')}"
    groups = count(len(action["groups"]), "group")
    _line(console, f"  {action['action']} ({action['engine']}, {action['control']})")
    _line(console, f"    why       {action['reason']}")
    _line(console, f"    now       {files_and_bytes(inputs['files'], inputs['bytes'])}, in {groups}")
    _line(
        console,
        f"    expected  {files_and_bytes(expected['files'], expected['bytes'])}, {seconds(expected['seconds'])}; "
        f"{gain} fewer",
    )


def _planned_expiry(console: Console, action: Mapping[str, Any]) -> None:
    inputs = action["inputs"]
    refs = ", ".join(action["refs"])
    outlived = f", and branches and tags that outlived their age: {refs}" if refs else ""
    _line(console, f"  {action['action']} ({action['engine']}, {action['control']})")
    _line(console, f"    why       {action['reason']}")
    _line(console, f"    expires   {count(len(action['snapshots']), 'snapshot')}{outlived}")
    _line(console, f"    deletes   {files_and_bytes(inputs['files'], inputs['bytes'])}")
    if action["notes"]:
        _line(console, f"    after     {'; '.join(action['notes'])}")


def _planned_orphans(console: Console, action: Mapping[str, Any]) -> None:
    inputs = action["inputs"]
    _line(console, f"  {action['action']} ({action['engine']}, {action['control']})")
    _line(console, f"    why       {action['reason']}")
    if inputs["files"]:
        how = "deletes " if action["options"]["removal"] == "delete" else "moves   "
        _line(console, f"    {how}  {files_and_bytes(inputs['files'], inputs['bytes'])} that no table references")
    for note in action["notes"]:
        _line(console, f"    note      {note}")


def _planned_change(console: Console, action: Mapping[str, Any]) -> None:
    inputs = action["inputs"]
    _line(console, f"  {action['action']} ({action['engine']}, {action['control']})")
    _line(console, f"    why       {action['reason']}")
    if inputs["files"]:
        _line(console, f"    deletes   {files_and_bytes(inputs['files'], inputs['bytes'])}")
    for note in action["notes"]:
        _line(console, f"    note      {note}")


def _deleted_outcome(console: Console, action: Mapping[str, Any]) -> None:
    actual = action["actual"]
    if action["verified"] is not None:
        how = f"{files_and_bytes(actual['deleted_files'], actual['deleted_bytes'])} removed"
        _line(console, f"    {how}, in {seconds(actual['seconds'])}")
        _line(console, f"    {'verified' if action['verified'] else 'NOT VERIFIED'}")


def _change_outcome(console: Console, action: Mapping[str, Any]) -> None:
    if action["action"] == Action.SET_PROPERTIES:
        if action["verified"] is not None:
            _line(console, f"    {'verified' if action['verified'] else 'NOT VERIFIED'}")
    else:
        _deleted_outcome(console, action)


def _expiry_outcome(console: Console, action: Mapping[str, Any]) -> None:
    """What went and what stayed; why files stayed is in the notes."""
    actual = action["actual"]
    if action["verified"] is None:
        return  # it ended before anything expired
    counted = [f"{count(actual['expired_snapshots'], 'snapshot')} expired"]
    counted.append(f"{files_and_bytes(actual['deleted_files'], actual['deleted_bytes'])} deleted")
    counted += [
        f"{count(actual[key], 'file')} {what}"
        for key, what in (("kept_files", "kept"), ("failed_files", "not deleted"), ("unknown_files", "unknown"))
        if actual[key]
    ]
    _line(console, f"    {', '.join(counted)}, in {seconds(actual['seconds'])}")
    _line(console, f"    {'verified' if action['verified'] else 'NOT VERIFIED'}")


def _rollback_outcome(console: Console, action: Mapping[str, Any]) -> None:
    if action["snapshot_id"] is not None:
        verified = {True: ", verified", False: ", NOT VERIFIED", None: ""}[action["verified"]]
        _line(console, f"    from snapshot {action['previous_snapshot_id']} to {action['snapshot_id']}{verified}")


def _recovered(table: str, one: Mapping[str, Any]) -> str:
    """What a run left, what was done about it, and what is known of it."""
    return f"{table}: run {one['run_id']}, {one['action']}: {one['found']}; {one['status']}: {one['done']}"


def _expires(action: Mapping[str, Any]) -> bool:
    return bool(action["action"] == Action.EXPIRE_SNAPSHOTS)


def _leaves_data(action: Mapping[str, Any]) -> bool:
    return bool(action["action"] in LEAVES_DATA)


METADATA_FILES = {
    Action.REWRITE_MANIFESTS: ("rewritten_manifests_count", "manifest"),
    Action.REWRITE_POSITION_DELETE_FILES: ("rewritten_delete_files_count", "delete file"),
}
"""Action → its number of inputs among the results, and what they are."""


def _metadata_outcome(console: Console, action: Mapping[str, Any]) -> None:
    name, what = METADATA_FILES[action["action"]]
    expected, actual = action["expected"], action["actual"]
    _line(
        console,
        f"    {count(action['results'].get(name, 0), what)} became {files_and_bytes(actual['files'], actual['bytes'])} "
        f"(expected {files_and_bytes(expected['files'], expected['bytes'])}), in {seconds(actual['seconds'])}",
    )
    verified = "verified" if action["verified"] else "NOT VERIFIED"
    _line(console, f"    snapshot {action['snapshot_id']}, {verified}")


def _outcome(console: Console, action: Mapping[str, Any]) -> None:
    expected, actual = action["expected"], action["actual"]
    _line(console, f"  {action['action']}: {action['status']}")
    if _expires(action):
        _expiry_outcome(console, action)
    elif _leaves_data(action):
        _change_outcome(console, action)
    elif action["action"] == "rollback":
        _rollback_outcome(console, action)
    elif action["action"] in METADATA_FILES and action["snapshot_id"] is not None:
        _metadata_outcome(console, action)
    elif action["snapshot_id"] is not None:
        rewritten = count(actual["rewritten_data_files"], "file")
        removed = actual["removed_delete_files"]
        deletes = f"{count(removed, 'delete file')} fewer, " if removed else ""
        _line(
            console,
            f"    {rewritten} became {files_and_bytes(actual['files'], actual['bytes'])} "
            f"(expected {files_and_bytes(expected['files'], expected['bytes'])}), "
            f"{deletes}in {seconds(actual['seconds'])}",
        )
        verified = "verified" if action["verified"] else "NOT VERIFIED"
        _line(console, f"    snapshot {action['snapshot_id']}, {verified}")
    if action["error"]:
        _line(console, f"    {action['error']}")
    for note in action["notes"]:
        _line(console, f"    {note}")


def _table(*columns: str, left: int = 1) -> Table:
    """`left`: how many columns hold text; numbers stand to the right."""
    from rich import box
    from rich.table import Table

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        is_text = index < left or column in ("due", "run", "plan")
        grid.add_column(column, justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text)
    return grid


def _section(console: Console, title: str, lines: Iterable[str]) -> None:
    found = list(lines)
    if found:
        _line(console, f"{title}:", style="bold")
        for line in found:
            _line(console, f"  {line}")


def _line(console: Console, text: str, *, style: str | None = None) -> None:
    # soft_wrap: a long line stays one line, so that it can be searched and copied.
    console.print(printable(text), style=style, soft_wrap=True)
