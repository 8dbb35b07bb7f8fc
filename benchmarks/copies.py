"""Tables that every run gets anew: as they were made, in the same place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

CONFIGURATION = """
catalogs:
  main: {{type: sql, uri: "sqlite:///{catalog}", warehouse: "file://{warehouse}"}}
state: {{url: "{state}"}}
engine: {{use: embedded, memory_limit: {memory}}}
"""
MEMORY_LIMIT = 1_000_000_000


def write_configuration(run: Path, warehouse: Path, memory: int = MEMORY_LIMIT) -> None:
    """`run/lakehouse.yaml`: the catalog `main` of `run/catalog.db`, and a state that is empty at first."""
    text = CONFIGURATION.format(catalog=run / "catalog.db", warehouse=warehouse, state=run / "state", memory=memory)
    (run / "lakehouse.yaml").write_text(text)


class Copies:
    """A small table, or one of metadata alone. `pristine` is kept as it was made, `run` is what a contender works on.

    `make`: writes `catalog.db` and `warehouse` into a folder that does not exist yet; paths in them name that folder.
    """

    def __init__(self, folder: Path, make: Callable[[Path], None]) -> None:
        self.folder = folder
        self.pristine, self.run = folder / "pristine", folder / "run"
        self._make = make

    def ready(self, told: str, say: Callable[[str], None]) -> Copies:
        """Makes it where it is not there yet. `told`: what is written, for people."""
        if not (self.folder / "ready").exists():
            say(f"  writing {told}")
            shutil.rmtree(self.folder, ignore_errors=True)
            self._make(self.run)
            self.run.rename(self.pristine)
            (self.folder / "ready").touch()
        return self

    @property
    def config(self) -> str:
        """Path of the run's `lakehouse.yaml`."""
        return str(self.run / "lakehouse.yaml")

    def metadata(self) -> list[Path]:
        """Manifests and manifest lists; the run's are links to them."""
        return sorted(self.pristine.rglob("*.avro"))

    def fresh(self) -> None:
        """Links to the same files, which nobody changes; the catalog's database, which changes, is a copy."""
        shutil.rmtree(self.run, ignore_errors=True)
        shutil.copytree(self.pristine / "warehouse", self.run / "warehouse", copy_function=os.link)
        shutil.copy(self.pristine / "catalog.db", self.run / "catalog.db")
        write_configuration(self.run, self.run / "warehouse")


class SmallFiles:
    """A table too large for copies: runs share its files, and what they add is deleted after each.

    `folder` has `catalog.db`, `warehouse` and, once made, `ready`, which names the table's files.
    """

    def __init__(self, folder: Path, make: Callable[[Path], None]) -> None:
        self.folder, self.run = folder, folder / "run"
        self.warehouse = folder / "warehouse"
        self._table = self.warehouse / "bench" / "small_files"
        self._make = make

    def ready(self, told: str, say: Callable[[str], None]) -> SmallFiles:
        """Makes it where it is not there yet. `told`: what is written, for people."""
        if not (self.folder / "ready").exists():
            say(f"  writing {told}")
            shutil.rmtree(self.folder, ignore_errors=True)
            self._make(self.folder)
            written = sorted(str(path.relative_to(self._table)) for path in self._table.rglob("*") if path.is_file())
            (self.folder / "ready").write_text("\n".join(written))
        return self

    @property
    def config(self) -> str:
        """Path of the run's `lakehouse.yaml`."""
        return str(self.run / "lakehouse.yaml")

    @property
    def inputs(self) -> list[Path]:
        """Its data files."""
        return sorted(path for path in self._kept() if path.suffix == ".parquet")

    @property
    def bytes(self) -> int:
        """Of its data files."""
        return sum(path.stat().st_size for path in self.inputs)

    def _kept(self) -> set[Path]:
        # By name, not by what lies there now: a run that was stopped leaves files.
        return {self._table / name for name in (self.folder / "ready").read_text().splitlines()}

    def fresh(self, memory: int = MEMORY_LIMIT) -> None:
        """The table as it was made. `memory`: engine.memory_limit, bytes."""
        self.clean()
        self.run.mkdir()
        shutil.copy(self.folder / "catalog.db", self.run / "catalog.db")
        write_configuration(self.run, self.warehouse, memory)

    def clean(self) -> None:
        """Deletes what a run added."""
        shutil.rmtree(self.run, ignore_errors=True)
        kept = self._kept()
        for path in self._table.rglob("*"):
            if path.is_file() and path not in kept:
                path.unlink()
