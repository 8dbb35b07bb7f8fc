"""What a catalog's refusal of a commit tells: whether the commit may have become visible, and whether to try again."""

from __future__ import annotations

from enum import Enum, auto

from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    OAuthError,
    RESTError,
    UnauthorizedError,
)

_MAY_COME_TOO_LATE = (408, 425)
"""Statuses of gateways that gave up waiting: the request may still arrive."""


class Answer(Enum):
    """Of a commit that raised."""

    CONFLICT = auto()
    """A requirement did not hold: another writer was first. Where a gateway repeats requests that it lost the answer
    to, the other writer may be this very commit: the table has to be looked at before anything is concluded."""
    DENIED = auto()
    """Not for us, or no such table: nothing was done, and trying again changes nothing."""
    REFUSED = auto()
    """The catalog does not take this commit. Where the table stands still, it never will."""
    LOST = auto()
    """Nobody knows: the request may have arrived, and may still arrive."""


def answer(error: Exception, *, client_side: bool) -> Answer:
    """Classifies what `commit_table` raised. `client_side`: this process writes the metadata and swaps the pointer."""
    if isinstance(error, CommitFailedException):
        return Answer.CONFLICT
    if isinstance(
        error, ForbiddenError | UnauthorizedError | AuthorizationExpiredError | OAuthError | NoSuchTableError
    ):
        return Answer.DENIED
    if isinstance(error, BadRequestError | NotImplementedError):
        return Answer.REFUSED
    if isinstance(error, ValueError):
        # Over HTTP, an answer that cannot be parsed is one too, and it may have said yes.
        return Answer.REFUSED if client_side else Answer.LOST
    if type(error) is RESTError:
        return _of_status(_status(error))
    return Answer.LOST


def _of_status(status: int | None) -> Answer:
    """For statuses that PyIceberg has no class for."""
    if status is None or not 400 <= status < 500 or status in _MAY_COME_TOO_LATE:
        return Answer.LOST
    return Answer.DENIED if status in (404, 410) else Answer.REFUSED


def _status(error: Exception) -> int | None:
    response = getattr(error.__cause__, "response", None)
    return getattr(response, "status_code", None)
