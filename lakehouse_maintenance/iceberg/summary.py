"""A snapshot's summary (Iceberg spec: Snapshots, Optional Snapshot Summary Fields)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from lakehouse_maintenance.model.files import Content

_TOTALS = {
    "total-data-files": ("added-data-files", "deleted-data-files"),
    "total-delete-files": ("added-delete-files", "removed-delete-files"),
    "total-records": ("added-records", "deleted-records"),
    "total-files-size": ("added-files-size", "removed-files-size"),
    "total-position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "total-equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
}


def replace_summary(
    previous: Mapping[str, str], added: Iterable[dict[str, Any]], removed: Iterable[dict[str, Any]]
) -> dict[str, str]:
    """Counts of a REPLACE snapshot from the `data_file` records it adds and removes; totals go on from `previous`.

    A total that the previous summary lacks is left out: it cannot be known without reading the table.
    """
    counts: Counter[str] = Counter()
    for record in added:
        _count(counts, record, data="added-data-files", rows="added-records", word="added")
    for record in removed:
        _count(counts, record, data="deleted-data-files", rows="deleted-records", word="removed")
    summary = {key: str(value) for key, value in counts.items() if value}
    for total, (plus, minus) in _TOTALS.items():
        before = previous.get(total, "")
        if before.lstrip("-").isdigit():
            summary[total] = str(int(before) + counts[plus] - counts[minus])
    return summary


def _count(counts: Counter[str], record: dict[str, Any], *, data: str, rows: str, word: str) -> None:
    vector_size = record.get("content_size_in_bytes")
    counts[f"{word}-files-size"] += record["file_size_in_bytes"] if vector_size is None else vector_size
    if record["content"] == Content.DATA:
        counts[data] += 1
        counts[rows] += record["record_count"]
        return
    counts[f"{word}-delete-files"] += 1
    if record["content"] == Content.EQUALITY_DELETES:
        counts[f"{word}-equality-delete-files"] += 1
        counts[f"{word}-equality-deletes"] += record["record_count"]
        return
    vector = record["file_format"].upper() == "PUFFIN"
    counts[f"{word}-dvs" if vector else f"{word}-position-delete-files"] += 1
    counts[f"{word}-position-deletes"] += record["record_count"]
