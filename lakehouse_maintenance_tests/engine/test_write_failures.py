"""A store that takes no more: the table fails with a message that says so, and the others go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitStateUnknownException

from lakehouse_maintenance.engines.embedded_iceberg.output import DataFileWriter
from lakehouse_maintenance.iceberg import staging
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.tables import data_paths, ids, lakehouse, many_small_files
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory

COMPACT = Request(actions=(Action.REWRITE_DATA_FILES,), options={"rewrite-all": "true"})


def refuse(*args: Any, **kwargs: Any) -> Any:
    raise OSError("503 SlowDown")


@pytest.mark.parametrize("what", ["data file", "manifest"])
def test_what_cannot_be_written_fails_its_table_alone(
    sql_catalog: SqlCatalogFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    writer, properties = sql_catalog()
    many_small_files(writer, "db.a", commits=2, partitioned=False)
    many_small_files(writer, "db.b", commits=2, partitioned=False)
    target, name = (DataFileWriter, "write") if what == "data file" else (staging.StagedWriter, "manifest_list")
    real = getattr(target, name)
    calls = iter(range(100))

    def first_refused(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == 0:
            if what == "data file":
                refuse()
            monkeypatch.setattr("pyiceberg.io.pyarrow.PyArrowFile.create", refuse)
            try:
                return real(*args, **kwargs)
            finally:
                monkeypatch.undo()
        return real(*args, **kwargs)

    monkeypatch.setattr(target, name, first_refused)
    failed, done = lakehouse(tmp_path, properties).maintain((), COMPACT).tables
    assert (failed.status, done.status) == (Status.FAILED, Status.DONE)
    assert "cannot be written: 503 SlowDown" in failed.reason
    assert len(data_paths(writer, "db.a")) == 2
    assert ids(writer, "db.a") == ids(writer, "db.b") == list(range(20))


def test_a_store_that_fails_after_a_lost_answer_leaves_it_unknown(
    sql_catalog: SqlCatalogFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, properties = sql_catalog()
    many_small_files(writer, commits=2, partitioned=False)
    ours = lakehouse(tmp_path, properties)

    def lose(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr("lakehouse_maintenance.iceberg.staging.StagedWriter.put", _unwritable)
        raise CommitStateUnknownException("the connection was closed")

    monkeypatch.setattr(ours.catalogs["main"].pyiceberg, "commit_table", lose)
    outcome = ours.maintain((), COMPACT).tables[0]
    assert outcome.status is Status.UNKNOWN
    assert "may or may not be visible" in outcome.reason


def _unwritable(self: Any, path: str, data: bytes) -> None:
    from lakehouse_maintenance.model.errors import StorageError

    raise StorageError(f"{path} cannot be written")
