"""The known name that somebody most likely meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

_CLOSE = 0.6


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name` (case, `-` and `_` count little), however far it is; None where none is known."""
    candidates = list(known)
    if not candidates:
        return None
    wanted = _plain(name)
    return max(candidates, key=lambda candidate: SequenceMatcher(None, wanted, _plain(candidate)).ratio())


def suggestion(name: str, known: Iterable[str]) -> str:
    """A hint: the nearest known name as a question where it is close, then what is known (20 names at most)."""
    candidates = sorted(known)
    best = nearest(name, candidates)
    if best is None:
        return "nothing is known here"
    is_close = bool(get_close_matches(_plain(name), [_plain(best)], n=1, cutoff=_CLOSE))
    lead = f"did you mean {best!r}?" if is_close else f"the nearest known name is {best!r}"
    listed = ", ".join(candidates[:20]) + (", …" if len(candidates) > 20 else "")
    return f"{lead} Known here: {listed}" if is_close else f"{lead}; known here: {listed}"


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_").replace(" ", "_")
