"""A lakehouse of a few kilobytes for tests of the command line: a SQL catalog, local files, PyIceberg as the writer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

TARGET = "write.target-file-size-bytes"


@dataclass
class SmallLakehouse:
    """`folder` holds `lakehouse.yaml`, `catalog.db`, the warehouse `wh` and, once written, the state `state`."""

    folder: Path
    catalog: SqlCatalog

    @property
    def config(self) -> Path:
        return self.folder / "lakehouse.yaml"

    def add(self, name: str, *, files: int, rows: int = 60) -> Table:
        """A table of so many files in one commit: its writer aims at a few bytes, its readers at the default."""
        import pyarrow as pa

        data = pa.table({"id": list(range(rows)), "note": [f"row {number}" for number in range(rows)]})
        small = data.nbytes // files
        table = self.catalog.create_table(name, schema=data.schema, properties={TARGET: str(small)})
        table.append(data)
        with table.transaction() as transaction:
            transaction.remove_properties(TARGET)
        return table

    def metadata_files(self, name: str) -> dict[str, Path]:
        """The current metadata file, the head's manifest list, and its first manifest."""
        table = self.catalog.load_table(name)
        head = table.current_snapshot()
        assert head is not None
        manifest = head.manifests(table.io)[0].manifest_path
        paths = {"metadata": table.metadata_location, "manifest_list": head.manifest_list, "manifest": manifest}
        return {kind: Path(path.removeprefix("file://")) for kind, path in paths.items()}

    def listing(self) -> dict[str, tuple[int, int]]:
        """Every file but the disposable cache: its size and time of change."""
        return {
            str(path.relative_to(self.folder)): (path.stat().st_size, path.stat().st_mtime_ns)
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and "cache" not in path.relative_to(self.folder).parts
        }


def make_lakehouse(folder: Path, *, databases: Sequence[str] = ("db",)) -> SmallLakehouse:
    """An empty one, with its configuration."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("main", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/wh")
    for database in databases:
        catalog.create_namespace(database)
    (folder / "lakehouse.yaml").write_text(
        "catalogs:\n"
        "  main: {type: sql, uri: 'sqlite:///catalog.db', warehouse: wh}\n"
        f"databases: {{main: [{', '.join(databases)}]}}\n"
        "state: {url: state}\n"
    )
    return SmallLakehouse(folder, catalog)


@dataclass
class Ended:
    """One call: exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = self.json["error"]
        assert set(found) == {"code", "message", "field", "hint"}
        return found


Run = Callable[..., Ended]


def call(capsys: pytest.CaptureFixture[str], *argv: object) -> Ended:
    """The command line in this process."""
    from lakehouse_maintenance.cli import main

    capsys.readouterr()
    code = main([str(argument) for argument in argv])
    captured = capsys.readouterr()
    return Ended(code, captured.out, captured.err)


def call_process(*argv: object, folder: Path, **environment: str) -> Ended:
    """The command line in a process of its own, as a user calls it."""
    done = subprocess.run(
        [sys.executable, "-m", "lakehouse_maintenance", *map(str, argv)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent), "NO_COLOR": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)
