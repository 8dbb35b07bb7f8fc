"""Would a catalog that writes metadata in this process lose something of it?

PyIceberg parses a table's metadata into its models and writes those back. What its models do not know is dropped
without a word (encryption keys, a snapshot's key id, source ids of a partition field). Such a table gets no commit.
"""

from __future__ import annotations

from typing import Any


def lost_paths(raw: Any, dumped: Any, path: str = "") -> list[str]:
    """Dotted paths that stand in `raw` and are missing or different in `dumped`.

    An absent key and null are the same, as are an empty list or map and an absent key; list items are compared in
    order; numbers by value.
    """
    if isinstance(raw, dict):
        if not isinstance(dumped, dict):
            return [path] if raw else []
        lost: list[str] = []
        for key, value in raw.items():
            lost += lost_paths(value, dumped.get(key), f"{path}.{key}" if path else str(key))
        return lost
    if isinstance(raw, list):
        if not raw:
            return []
        if not isinstance(dumped, list) or len(raw) != len(dumped):
            return [path]
        found = (lost_paths(a, b, f"{path}[{i}]") for i, (a, b) in enumerate(zip(raw, dumped, strict=True)))
        return [one for lost in found for one in lost]
    if raw is None or raw == dumped:
        return []
    # "no snapshot" is written as -1 by some writers and left out by others.
    return [] if path == "current-snapshot-id" and raw == -1 and dumped is None else [path]
