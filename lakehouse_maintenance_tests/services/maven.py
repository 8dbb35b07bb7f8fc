"""Jars that tests need, fetched by Maven into a folder below build/; nothing is done where they are complete."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

BUILD = Path(__file__).resolve().parents[2] / "build"
_STAMP = "pom.sha256"


@dataclass(frozen=True, slots=True)
class Jars:
    """What a pom names, in `folder`. `sources`: further files that the folder's content comes from.

    `finish`: called with the new folder once the jars are in it, before it becomes visible.
    """

    pom: Path
    folder: Path
    sources: tuple[Path, ...] = ()
    finish: Callable[[Path], None] = lambda folder: None

    def available(self) -> list[Path]:
        """The jars of this very pom, or an empty list where they were never fetched or a source has changed since."""
        stamp = self.folder / _STAMP
        if not stamp.is_file() or stamp.read_text() != self._digest():
            return []
        return sorted(self.folder.glob("*.jar"))

    def fetch(self) -> list[Path]:
        """Runs Maven unless the jars are there. Raises RuntimeError with Maven's own words where it fails."""
        if jars := self.available():
            return jars
        maven = shutil.which("mvn")
        if maven is None:
            raise RuntimeError("mvn was not found: install Maven, or skip the tests that need Java")
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix="jars-", dir=self.folder.parent))
        command = [maven, "-q", "-B", "-f", str(self.pom), "dependency:copy-dependencies", f"-DoutputDirectory={fresh}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"Maven could not fetch the jars:\n{done.stdout}{done.stderr}".rstrip())
            self.finish(fresh)
            (fresh / _STAMP).write_text(self._digest())
            self._replace(fresh)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        return self.available()

    def _replace(self, fresh: Path) -> None:
        # A folder cannot replace another in one step; a second process that came first leaves the same jars.
        shutil.rmtree(self.folder, ignore_errors=True)
        try:
            os.rename(fresh, self.folder)
        except OSError:
            if not self.available():
                raise

    def _digest(self) -> str:
        digest = hashlib.sha256(self.pom.read_bytes())
        for source in self.sources:
            digest.update(source.read_bytes())
        return digest.hexdigest()
