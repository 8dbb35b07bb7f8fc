"""A lakehouse on a real S3 server that fails on purpose, and whether what a removal tells is what the bucket shows."""

from __future__ import annotations

import errno
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from pyiceberg.table import Table

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.model.orphans import OrphanResult
from lakehouse_maintenance.removal import deleting, open_lists
from lakehouse_maintenance.removal.remover import REMOVE_FILES
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance.storage import clients as storage_clients
from lakehouse_maintenance_tests.engine.stores import Lake, make_lake
from lakehouse_maintenance_tests.engine.tables import lakehouse
from lakehouse_maintenance_tests.services.faults import Answer, FaultProxy, Request, fault_proxy
from lakehouse_maintenance_tests.services.s3 import S3Server

NAME = "main.db.t"
SLOW = Answer(503, b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>")
DENIED = Answer(403, b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")
ARCHIVED = Answer(
    403,
    b"<Error><Code>InvalidObjectState</Code>"
    b"<Message>The operation is not valid for the object's storage class</Message></Error>",
)


def is_delete(request: Request) -> bool:
    return request.method == "DELETE" or (request.method == "POST" and "delete" in request.target)


def is_list(request: Request) -> bool:
    return request.method == "GET" and "list-type=2" in request.target


def keys_in(request: Request) -> list[str]:
    return re.findall(r"<Key>(.*?)</Key>", request.body.decode())


def errors_for(errors: Mapping[str, str]) -> Answer:
    """DeleteObjects' answer of 200, with an error for each of these keys."""
    rows = "".join(
        f"<Error><Key>{key}</Key><Code>{code}</Code><Message>told of {code}</Message></Error>"
        for key, code in errors.items()
    )
    head = '<?xml version="1.0" encoding="UTF-8"?><DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    return Answer(200, f"{head}<Deleted><Key>whatever</Key></Deleted>{rows}</DeleteResult>".encode())


@dataclass
class Faulty:
    """`lake` is written directly; ours reaches the store through `proxy` alone. `waits`: pauses that were asked for.

    `direct`: the server's own endpoint.
    """

    lake: Lake
    proxy: FaultProxy
    direct: str
    waits: list[float] = field(default_factory=list)

    def maintaining(self, **config: Any) -> Lakehouse:
        """Ours for actions that commit: commits and outputs are written directly, all else goes through the proxy."""
        properties = {**self.lake.properties, "s3.endpoint": self.direct}
        ours = lakehouse(self.lake.folder, properties, **config)
        ours.catalogs["main"]._storage = Storage.from_properties(self.lake.properties)
        return ours

    def orphans_of(self, table: Table, count: int = 12) -> list[str]:
        return [self.lake.put(f"{table.location()}/data/orphan-{number:02}.parquet") for number in range(count)]

    def refuses(self, errors: Mapping[str, str]) -> None:
        """From now on deletions of these paths fail with these codes; the others are done."""
        by_key = {path.partition("://")[2].partition("/")[2]: code for path, code in errors.items()}

        def rule(request: Request) -> Answer | None:
            if not is_delete(request):
                return None
            asked = keys_in(request)
            for key in asked:
                if key not in by_key:
                    self.lake.remove(f"{self.lake.root}{key}")
            return errors_for({key: by_key[key] for key in asked if key in by_key})

        self.proxy.rule = rule

    def heals(self) -> None:
        self.proxy.rule = lambda request: None

    def seen(self, which: Callable[[Request], bool]) -> int:
        return sum(which(request) for request in self.proxy.seen)


def names(request: Request, path: str) -> bool:
    """Whether the request is about this object."""
    return unquote(request.target.partition("?")[0]) == "/" + path.partition("://")[2]


@pytest.fixture
def faulty(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    """SeaweedFS behind a proxy. The client itself tries twice; pauses are recorded and not waited for."""
    monkeypatch.setattr(storage_clients, "MAX_RETRIES", 1)
    monkeypatch.setattr(storage_clients, "FIRST_BACKOFF", timedelta(milliseconds=1))
    lake = make_lake(tmp_path, s3)
    with fault_proxy(s3.endpoint) as proxy:
        made = Faulty(lake, proxy, s3.endpoint)
        monkeypatch.setattr(deleting, "pause", made.waits.append)
        lake.properties = {**lake.properties, "s3.endpoint": proxy.endpoint}
        yield made
    lake.close()


def is_open(ours: Lakehouse) -> bool:
    return bool(open_lists(ours.state, NAME))


def batches(ours: Lakehouse) -> list[Event]:
    """The remover's outcomes, one a batch, of all runs; not what a later run told of a killed one's intent."""
    outcomes = [event for event in ours.audit(table=NAME) if (event.action, event.phase) == (REMOVE_FILES, "outcome")]
    return [event for event in outcomes if "fates" in event.details]


def deleted_by_batches(ours: Lakehouse) -> int:
    return sum(event.files for event in batches(ours))


def assert_told(
    lake: Lake, result: OrphanResult, before: Iterable[str], ours: Lakehouse, **expected: Any
) -> dict[str, int]:
    """Result, its JSON and the journal say the same, and the store shows it. `expected`: fields of the result."""
    gone = set(before) - lake.objects()
    assert {name: getattr(result, name) for name in expected} == expected, result
    as_json = result.as_json(with_files=True)
    journal = [e for e in ours.audit(table=NAME) if (e.action, e.phase) == (Action.REMOVE_ORPHAN_FILES, "outcome")][-1]
    last = [event for event in batches(ours) if event.run_id == journal.run_id]
    fates = sum((Counter(event.details["fates"]) for event in last), Counter[str]())
    assert (as_json["deleted_files"], as_json["status"]) == (result.deleted_files, result.status)
    assert {one["path"] for one in as_json["failed"]} == {path for path, _ in result.failed}
    assert as_json["unknown"] == list(result.unknown)
    assert (journal.status, journal.files, journal.bytes) == (
        result.status,
        result.deleted_files,
        result.deleted_bytes,
    )
    assert journal.details["failed_paths"] == dict(result.failed)
    assert set(journal.details["unknown_paths"]) == set(result.unknown)
    assert fates["deleted"] + fates["moved"] == result.deleted_files
    assert (fates["failed"], fates["unknown"]) == (len(result.failed), len(result.unknown))
    assert fates["kept"] == sum(journal.details["kept"].values())
    # What is told as deleted is gone, and what is gone is told as deleted, or not known.
    assert result.deleted_files <= len(gone) <= result.deleted_files + len(result.unknown)
    assert not gone & {path for path, _ in result.failed}
    return dict(fates)


def reasons(result: OrphanResult) -> dict[str, int]:
    return {kept.reason: kept.files for kept in result.kept}


def cannot_unlink(monkeypatch: pytest.MonkeyPatch, refused: dict[str, int]) -> None:
    """Files that cannot be unlinked, with the error that the system gives: root may do anything, so it is injected."""
    real = Path.unlink

    def unlink(path: Path, missing_ok: bool = False) -> None:
        code = refused.get(f"file://{path}")
        if code is not None:
            raise OSError(code, f"told of {errno.errorcode[code]}")
        real(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
