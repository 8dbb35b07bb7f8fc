"""What a store's error text says about its cause. Texts differ by client and store; what is not known is neither."""

from __future__ import annotations

import re

_LONGEST = 600

_LONG_PATHS = re.compile(r" for path .{200,}: (?=Error performing)", re.DOTALL)
"""A refused batch is named with all of its keys."""

_THROTTLED = re.compile(
    r"status code: (429|503)\b|\((429|503)\)|SlowDown|Slow Down|reduce your request rate|RequestLimitExceeded"
    r"|TooManyRequests|Throttl|ServerBusy|rateLimitExceeded|ServiceUnavailable|OperationTimedOut|RequestTimeout"
    r"|timed out|TimeoutError"
)
_DENIED = re.compile(r"AccessDenied|Access Denied|AuthorizationPermissionMismatch|\b403\b")
_HELD = re.compile(
    r"\(code: (ObjectLocked|InvalidRetention)\)|InvalidObjectState|object lock|\bWORM\b|legal[ -]?hold"
    r"|retention ?policy|event-based hold|temporary hold|BlobImmutable|immutab|BlobArchived|\barchived\b",
    re.IGNORECASE,
)


def is_throttling(error: str) -> bool:
    """The store asks for patience, or did not answer in time: the same call may succeed a little later."""
    return _THROTTLED.search(error) is not None


def is_held(error: str) -> bool:
    """The store will not change this one object, whoever asks again: a lock, a hold, an archive.

    "Access denied" alone is not meant, though S3 says it key by key: it is what a role without the right to delete gets
    for all of them, and somebody has to see to that.
    """
    return held_by(error) is not None


def is_denied(error: str) -> bool:
    """The store refuses the call for want of a right."""
    return _DENIED.search(error) is not None


def held_by(error: str) -> str | None:
    """The store's own word for what holds the object, the same for all objects that it holds so; see `is_held`."""
    found = _HELD.search(error)
    if found is None:
        return None
    return found.group(1) or found.group()


def shortened(error: str) -> str:
    """A client's error on one line, without what is for its own developers."""
    error = _LONG_PATHS.sub(": ", error)
    text = " ".join(error.partition("\n\nDebug source")[0].split())
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " …"
