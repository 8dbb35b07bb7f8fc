"""One call of the command line: where its result goes, what is masked in it, and the lakehouse that it works on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TextIO

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from lakehouse_maintenance.execution.progress import Progress
    from lakehouse_maintenance.lakehouse import Lakehouse
    from lakehouse_maintenance.model.errors import LakehouseError


class _Masker(Protocol):
    def mask(self, text: str) -> str: ...


FREE_TEXT = frozenset({"error", "error_message", "reason", "detail", "hint", "message", "notes", "report", "why"})
"""Keys of results that hold sentences, which may repeat what a driver said. Everything else is names, paths and
numbers that scripts compare and `apply` reads back: masked, a path with a folder called like a short password would no
longer be that path, and the plan would not fit its digest."""


class Session:
    """`out`: the result alone. `err`: everything else. Both are the streams of the moment when the call began."""

    def __init__(self, config: str | Path | None = None, *, as_json: bool = False, verbosity: int = 0) -> None:
        self.config = config
        self.as_json = as_json
        self.verbosity = verbosity
        self.out: TextIO = sys.stdout
        self.err: TextIO = sys.stderr
        self._masker: _Masker | None = None

    def hide(self, masker: _Masker) -> None:
        """From now on these secrets are masked in every text."""
        self._masker = masker

    def mask(self, text: str) -> str:
        """The text without secrets: the configuration's, and passwords in URLs."""
        if self._masker is None:
            from lakehouse_maintenance.config.secrets import Masker

            self._masker = Masker([])
        return self._masker.mask(text)

    @contextmanager
    def lakehouse(self) -> Iterator[Lakehouse]:
        """The configured lakehouse, with its progress on standard error. Raises ConfigurationError."""
        from lakehouse_maintenance.config import load_config

        config = load_config(self.config)
        self.hide(config.masker)
        # Only now what is heavy: a wrong configuration is told at once.
        from lakehouse_maintenance.lakehouse import Lakehouse
        from lakehouse_maintenance.state import open_configured

        state = open_configured(config.state)
        with self.progress() as progress:
            yield Lakehouse(config, state, progress)

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Progress on standard error: drawn on a terminal, lines elsewhere."""
        from lakehouse_maintenance.cli.progress import showing

        with showing(self.err) as progress:
            yield progress

    def show(self, data: dict[str, Any], render: Callable[[dict[str, Any], Console], None]) -> None:
        """The result: as JSON, or as `render` draws it; sentences in it are masked."""
        masked = self._masked(data)
        if self.as_json:
            json.dump(masked, self.out, indent=2)
            self.out.write("\n")
        else:
            from lakehouse_maintenance.cli.rendering import console_on

            render(masked, console_on(self.out))
        self.out.flush()

    def say(self, text: str) -> None:
        """A line for people, on standard error."""
        print(self.mask(text), file=self.err, flush=True)

    def fail(self, error: LakehouseError) -> None:
        """The error object on standard output, or one message on standard error."""
        from lakehouse_maintenance.cli.text import printable

        told = {key: None if text is None else self.mask(text) for key, text in error.as_json().items()}
        if self.as_json:
            json.dump({"error": told}, self.out, indent=2)
            self.out.write("\n")
            self.out.flush()
            return
        # Several problems of a file stand below each other; any other line break is some name's, and escaped.
        first, *others = str(told["message"]).split("\n  - ")
        lines = [f"error: {first}", *(f"  - {other}" for other in others)]
        lines += [f"  {key}: {told[key]}" for key in ("field", "hint") if told[key]]
        print("\n".join(map(printable, lines)), file=self.err, flush=True)

    def _masked(self, value: Any, *, is_sentence: bool = False) -> Any:
        if isinstance(value, dict):
            return {key: self._masked(item, is_sentence=is_sentence or key in FREE_TEXT) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._masked(item, is_sentence=is_sentence) for item in value]
        return self.mask(value) if is_sentence and isinstance(value, str) else value
