"""For how long an answer counts that was costly to get."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_TIMES = 5
_LONGEST_SECONDS = 600.0


@dataclass
class Freshness:
    """When something was last asked for, and how long that took, in seconds of a clock that only grows."""

    at: float | None = None
    took: float = 0.0

    def is_fresh(self) -> bool:
        """For as long as to spend at most a fifth of the time on asking, and never for more than ten minutes."""
        return self.at is not None and time.monotonic() - self.at < min(_TIMES * self.took, _LONGEST_SECONDS)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Around the asking; what raises counts as not asked."""
        began = time.monotonic()
        yield
        self.took = time.monotonic() - began
        # From the beginning on: what changed while it was read is not known.
        self.at = began
