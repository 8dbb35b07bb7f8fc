"""The one thing a backend has to offer for leases, markers and other small values: compare-and-swap by key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class KeyValueStore(Protocol):
    """Small values by key, changed only by compare-and-swap. Safe between threads, processes and (where the backend
    reaches that far) machines.
    """

    def get(self, key: str) -> tuple[bytes, str] | None:
        """Value and version, or None where the key was never written. Creates nothing.

        A version is opaque and never comes back: equal versions mean that nobody wrote in between, even where the
        bytes are the same. Raises StorageError where a value is there and cannot be read.
        """
        ...

    def put(self, key: str, value: bytes, expected: str | None) -> str | None:
        """Write durably if the stored version is `expected` (None: the key must not exist).

        Returns the new version, or None on a mismatch, in which case nothing changed.
        """
        ...

    def keys(self, prefix: str) -> Iterable[str]:
        """Keys that begin with `prefix`, in no order."""
        ...
