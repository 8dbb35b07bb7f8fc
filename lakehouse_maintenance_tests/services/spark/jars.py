"""Gets the jars that the Spark tests need into build/jars, by Maven; does nothing where they are complete.

Runs as a script too: `python lakehouse_maintenance_tests/services/spark/jars.py`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

POM = Path(__file__).with_name("pom.xml")
JARS = Path(__file__).resolve().parents[3] / "build" / "jars"
_STAMP = "pom.sha256"


def available_jars() -> list[Path]:
    """The jars of this very pom, or an empty list where they were never fetched or the pom has changed since."""
    stamp = JARS / _STAMP
    if not stamp.is_file() or stamp.read_text() != _pom_digest():
        return []
    return sorted(JARS.glob("*.jar"))


def fetch_jars() -> list[Path]:
    """Runs Maven unless the jars are there. Raises RuntimeError with Maven's own words where it fails."""
    if jars := available_jars():
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise RuntimeError("mvn was not found: install Maven, or skip the tests that need Spark")
    JARS.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix="jars-", dir=JARS.parent))
    command = [maven, "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={fresh}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"Maven could not fetch the jars:\n{done.stdout}{done.stderr}".rstrip())
        (fresh / _STAMP).write_text(_pom_digest())
        _replace(fresh)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return available_jars()


def _replace(fresh: Path) -> None:
    # A folder cannot replace another in one step; a second process that came first leaves the same jars.
    shutil.rmtree(JARS, ignore_errors=True)
    try:
        os.rename(fresh, JARS)
    except OSError:
        if not available_jars():
            raise


def _pom_digest() -> str:
    return hashlib.sha256(POM.read_bytes()).hexdigest()


if __name__ == "__main__":
    try:
        sys.stdout.write("".join(f"{jar}\n" for jar in fetch_jars()))
    except RuntimeError as error:
        sys.exit(str(error))
