"""Gets the jars of Iceberg's REST test catalog into build/iceberg-rest and compiles its main class there.

Runs as a script too: `python -m lakehouse_maintenance_tests.services.iceberg_rest.jars`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from lakehouse_maintenance_tests.services.maven import BUILD, Jars

MAIN = "org.apache.iceberg.rest.Main"
_SOURCE = Path(__file__).with_name("Main.java")
_CLASSES = "classes"


def available_class_path() -> str | None:
    """What `java -cp` takes, or None where the jars were never fetched or a source has changed since."""
    return f"{_JARS.folder / _CLASSES}:{_JARS.folder}/*" if _JARS.available() else None


def fetch_class_path() -> str:
    """Runs Maven and the compiler unless all is there. Raises RuntimeError with their own words where one fails."""
    _JARS.fetch()
    found = available_class_path()
    assert found is not None, "what was just fetched is there"
    return found


def _compile(folder: Path) -> None:
    compiler = shutil.which("javac")
    if compiler is None:
        raise RuntimeError("javac was not found: a JDK is needed, not a runtime alone")
    command = [compiler, "-cp", f"{folder}/*", "-d", str(folder / _CLASSES), str(_SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{_SOURCE.name} does not compile:\n{done.stdout}{done.stderr}".rstrip())


_JARS = Jars(Path(__file__).with_name("pom.xml"), BUILD / "iceberg-rest", (_SOURCE,), _compile)


if __name__ == "__main__":
    try:
        sys.stdout.write(fetch_class_path() + "\n")
    except RuntimeError as error:
        sys.exit(str(error))
