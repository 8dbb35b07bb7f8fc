"""Which keys obstore names exactly, and which objects a careless store could take an odd key for. Pure."""

from __future__ import annotations

from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.model.locations import Location


def exact_key(location: Location) -> str:
    """The key for obstore. Raises StorageError where obstore would refuse or change it."""
    if is_refused(location.key):
        raise StorageError(
            f"the key of {location.text!r} cannot be named exactly",
            hint="keys with empty, '.' or '..' segments, a '/' at an end or control characters need the extra `aws` "
            "(boto3) on S3, and are not supported on other stores",
        )
    return location.key


def is_refused(key: str) -> bool:
    """Whether obstore refuses the key or strips a `/` from its ends: it parses keys into paths."""
    if any(ord(char) < 0x20 or ord(char) == 0x7F for char in key):
        return True
    return any(segment in ("", ".", "..") for segment in key.split("/"))


def other_readings(key: str) -> list[str]:
    """The other keys that a store or gateway which treats keys as paths could take `key` for. Empty for plain keys.

    `a//b` is `a/b` to some, `/a` is `a`, `a/` is `a`, `a/./b` and `a/x/../b` are `a/b`, `a\\b` is `a/b`. Not the key
    itself, no empty key, each once.
    """
    slashed = key.replace("\\", "/")
    stripped = [key, key.lstrip("/"), key.rstrip("/"), key.strip("/")]
    collapsed = [_collapsed(text) for text in (*stripped, slashed)]
    resolved = [_resolved(text) for text in (key, slashed)]
    readings = dict.fromkeys([*stripped, slashed, *collapsed, *resolved])
    return [reading for reading in readings if reading and reading != key]


def _collapsed(key: str) -> str:
    while "//" in key:
        key = key.replace("//", "/")
    return key


def _resolved(key: str) -> str:
    segments: list[str] = []
    for segment in key.split("/"):
        if segment == "..":
            del segments[-1:]
        elif segment not in ("", "."):
            segments.append(segment)
    return "/".join(segments)
