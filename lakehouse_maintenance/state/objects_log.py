"""The log of a state on object storage: one object a line, `journal/<date>/<run>/<time>-<id>`.

`<time>` is in microseconds since 1970, by the writer's clock, but later than that of every line of the run and day that
this process wrote or saw: names sort in the order of writing. Who ends what another host began has read it first, so
clocks that differ do not put an outcome before its intent.

`runs/<run>/<date>` is written before a run's first line of a day, so that a run's lines are found without listing every
day. It may name a day without lines after a crash.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.state.backend import FIELD, Line, Page
from lakehouse_maintenance.state.bucket import Bucket, Listed
from lakehouse_maintenance.state.naming import file_name
from lakehouse_maintenance.state.swapping import PAUSES, UnsureError
from lakehouse_maintenance.storage.ordered import map_ordered

_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_PAGE = 64
_CONCURRENCY = 16


class ObjectsLog:
    """A Log in a bucket. `prepare` runs before a write, `check` before a read."""

    def __init__(self, bucket: Bucket, prepare: Callable[[], None], check: Callable[[], None]) -> None:
        self._bucket = bucket
        self._prepare = prepare
        self._check = check
        self._newest: dict[str, int] = {}
        self._lock = threading.Lock()

    def append(self, day: str, run_id: str, content: bytes) -> None:
        """See Log."""
        self._prepare()
        folder = _folder(day, run_id)
        if folder not in self._newest:
            self._put_once(f"runs/{file_name(run_id)}/{day}", day.encode("ascii"))
            self._see(folder, self._listed(folder))
        with self._lock:
            stamp = max(time.time_ns() // 1000, self._newest[folder] + 1)
            self._newest[folder] = stamp
        self._put_once(f"{folder}/{stamp:016d}-{uuid.uuid4().hex[:12]}", content)

    def days(self) -> list[str]:
        """See Log."""
        self._check()
        return sorted(filter(_DAY.fullmatch, self._bucket.folders("journal")), reverse=True)

    def pages(self, day: str) -> Iterator[Page]:
        """See Log. A page is some objects, by the store's time of their writing."""
        listed = sorted(self._listed(f"journal/{day}"), key=lambda each: (each.modified, _order(each)), reverse=True)
        rest = iter(listed)
        while chunk := list(islice(rest, _PAGE)):
            yield Page(chunk[0].modified, self._lines(reversed(chunk)))

    def of_run(self, run_id: str) -> Iterator[Line]:
        """See Log."""
        self._check()
        days = [listed.name.rpartition("/")[2] for listed in self._bucket.inside(f"runs/{file_name(run_id)}")]
        for day in sorted(days):
            folder = _folder(day, run_id)
            listed = sorted(self._listed(folder), key=_order)
            self._see(folder, listed)
            yield from self._lines(listed)

    def _listed(self, folder: str) -> list[Listed]:
        return list(self._bucket.inside(folder))

    def _see(self, folder: str, listed: Iterable[Listed]) -> None:
        """Later lines of ours come behind these."""
        newest = max((int(_order(each)[:16]) for each in listed), default=0)
        with self._lock:
            self._newest[folder] = max(newest, self._newest.get(folder, 0))

    def _lines(self, listed: Iterable[Listed]) -> Iterator[Line]:
        for each, line in map_ordered(self._line, listed, concurrency=_CONCURRENCY):
            if line is None:
                raise StorageError(
                    f"the object {each.name} in {self._bucket.location} was there and is gone",
                    field=FIELD,
                    hint="nothing of the journal may be removed: restore it",
                )
            yield line

    def _line(self, listed: Listed) -> Line | None:
        found = self._bucket.get(listed.name)
        return None if found is None else Line(f"the object {listed.name} in {self._bucket.location}", found[0])

    def _put_once(self, name: str, content: bytes) -> None:
        """Write what nobody writes differently: a name that is taken has this content, by an answer that was lost."""
        cause: StorageError | None = None
        for pause in PAUSES:
            time.sleep(pause)
            try:
                self._bucket.put_if(name, content, None)
                return  # refused or not: it is there
            except UnsureError as error:
                if self._bucket.get(name) is not None:
                    return
                cause = error.cause
        raise cause or StorageError(f"cannot write {name} of the state in {self._bucket.location}", field=FIELD)


def _folder(day: str, run_id: str) -> str:
    return f"journal/{day}/{file_name(run_id)}"


def _order(listed: Listed) -> str:
    return listed.name.rpartition("/")[2]
