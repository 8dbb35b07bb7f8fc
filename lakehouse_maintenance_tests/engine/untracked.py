"""A lakehouse with table folders that nobody owns, and what the job makes of them."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.folders import DatabaseResult, Folder, FolderRun
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance_tests.engine.stores import Lake


@dataclass
class Untracked:
    """`lake`: with its catalog `main` and database `db`. Folders count as old by `older_than_hours: 0`."""

    lake: Lake

    @property
    def root(self) -> str:
        """Where `db` lies."""
        return f"{self.lake.warehouse}/db"

    def dropped(self, name: str, *, files: int = 2) -> str:
        """A table that was created, filled, and dropped without purge; returns its folder."""
        table = self.lake.table(f"db.{name}", commits=files)
        self.lake.writer.drop_table(f"db.{name}")
        return str(table.location())

    def job(self, **fields: Any) -> Path:
        """An `application.json`; a dry run over `db` unless told otherwise."""
        document = {"catalog": "main", "databases": ["db"], "older_than_hours": 0, **fields}
        path = self.lake.folder / "application.json"
        path.write_text(json.dumps(document))
        return path

    def run(self, ours: Lakehouse | None = None, *, plan_digest: str | None = None, **fields: Any) -> FolderRun:
        """The job, as a dry run."""
        return (ours or self.lake.open()).untracked_folders(self.job(**fields), plan_digest=plan_digest)

    def delete(self, ours: Lakehouse | None = None, *, plan_digest: str | None = None, **fields: Any) -> FolderRun:
        """The job with deletion switched on."""
        return self.run(ours, plan_digest=plan_digest, dry_run=False, delete_enabled=True, **fields)

    def there(self, folder: str) -> set[str]:
        """Objects in a folder."""
        return {path for path in self.lake.objects() if path.startswith(folder.rstrip("/") + "/")}

    def recorded(self, run: FolderRun) -> dict[str, tuple[str, str | None]]:
        """Database → status and reason, by the run's rows in the audit table."""
        rows = [row for row in self.audit() if row["run_id"] == run.run_id]
        assert len(rows) == len(run.databases)
        return {row["database_name"]: (row["status"], row["status_reason"]) for row in rows}

    def audit(self) -> list[dict[str, Any]]:
        """Rows of the audit table as PyIceberg reads them."""
        table = self.lake.writer.load_table("iomete_system_db.cleanup_untracked_table_folder_runs")
        return table.scan().to_arrow().to_pylist()


def only(run: FolderRun) -> DatabaseResult:
    """The one database of a run."""
    (result,) = run.databases
    return result


def statuses(run: FolderRun) -> dict[str, tuple[str, str | None]]:
    """Database → status and reason."""
    return {one.row.database_name: (str(one.row.status), one.row.status_reason) for one in run.databases}


def of(run: FolderRun, database: str) -> DatabaseResult:
    """One database of several."""
    (result,) = [one for one in run.databases if one.row.database_name == database]
    return result


def verdicts(result: DatabaseResult) -> dict[str, str]:
    """Folder's name → verdict."""
    return {folder.path.rpartition("/")[2]: str(folder.verdict) for folder in result.folders}


def folder(result: DatabaseResult, name: str) -> Folder:
    """By its name."""
    return next(one for one in result.folders if one.path.endswith(f"/{name}"))


def make_old(folder: str, days: float = 2) -> None:
    """Everything that lies in a local folder."""
    then = time.time() - days * 24 * 3600
    for file in Path(Location.parse(folder).local_path).rglob("*"):
        os.utime(file, (then, then))
