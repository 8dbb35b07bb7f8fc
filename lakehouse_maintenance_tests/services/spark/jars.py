"""Gets the jars that the Spark tests need into build/jars, by Maven; does nothing where they are complete.

Runs as a script too: `python -m lakehouse_maintenance_tests.services.spark.jars`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lakehouse_maintenance_tests.services.maven import BUILD, Jars

_JARS = Jars(Path(__file__).with_name("pom.xml"), BUILD / "jars")


def available_jars() -> list[Path]:
    """The jars of this very pom, or an empty list where they were never fetched or the pom has changed since."""
    return _JARS.available()


def fetch_jars() -> list[Path]:
    """Runs Maven unless the jars are there. Raises RuntimeError with Maven's own words where it fails."""
    return _JARS.fetch()


if __name__ == "__main__":
    try:
        sys.stdout.write("".join(f"{jar}\n" for jar in fetch_jars()))
    except RuntimeError as error:
        sys.exit(str(error))
