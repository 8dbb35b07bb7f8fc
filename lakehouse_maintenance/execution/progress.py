"""How running work tells how far it is. The command line draws it; nothing depends on it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Calls may come from several threads."""

    def begin(self, table: str, what: str, files: int, size: int) -> None:
        """Work on a table begins: `files` and `size` (bytes) to go; 0 where that is not known."""
        ...

    def advance(self, table: str, files: int, size: int) -> None:
        """So many more files and bytes are done."""
        ...

    def end(self, table: str, what: str) -> None:
        """Work on the table ended; `what`: how, in a few words."""
        ...


class Silent:
    """No progress at all."""

    def begin(self, table: str, what: str, files: int, size: int) -> None:
        """See Progress."""

    def advance(self, table: str, files: int, size: int) -> None:
        """See Progress."""

    def end(self, table: str, what: str) -> None:
        """See Progress."""
