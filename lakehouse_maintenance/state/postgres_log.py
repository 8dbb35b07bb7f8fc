"""The log of a state in PostgreSQL: one row a line, in the order of their ids."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakehouse_maintenance.state.backend import Line, Page
from lakehouse_maintenance.state.database import Database
from lakehouse_maintenance.state.naming import file_name
from lakehouse_maintenance.state.tables import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select

_PAGE = 500


class PostgresLog:
    """A Log in the table `journal`. `prepare` runs before a write and `check` in its transaction; `looking` gives what
    a query reads, or what stands beside it where there are no tables yet."""

    def __init__(
        self,
        database: Database,
        tables: Tables,
        prepare: Callable[[], None],
        looking: Callable[[Callable[[Connection], Sequence[Any]], Sequence[Any]], Sequence[Any]],
        check: Callable[[Connection], None],
    ) -> None:
        self._database = database
        self._table = tables.journal
        self._prepare = prepare
        self._looking = looking
        self._check = check

    def append(self, day: str, run_id: str, content: bytes) -> None:
        """See Log."""
        from sqlalchemy.dialects.postgresql import insert

        self._prepare()
        # The entry's own id: after a lost answer the row is sent again, and written once.
        row = {"entry": uuid.uuid4(), "day": day, "run": file_name(run_id), "line": content}

        def work(connection: Connection) -> None:
            connection.execute(insert(self._table).values(row).on_conflict_do_nothing(index_elements=["entry"]))
            self._check(connection)

        self._database.writing_once(work)

    def days(self) -> list[str]:
        """See Log."""
        from sqlalchemy import select

        day = self._table.c.day
        query = select(day).distinct().order_by(day.desc())
        return list(self._looking(lambda connection: connection.execute(query).scalars().all(), ()))

    def pages(self, day: str) -> Iterator[Page]:
        """See Log. A page is a range of ids."""
        columns = self._table.c
        before: int | None = None
        while True:
            query = self._lines().where(columns.day == day).order_by(columns.id.desc()).limit(_PAGE)
            rows = self._rows(query if before is None else query.where(columns.id < before))
            if not rows:
                return
            before = rows[-1].id
            # Ids are given at the start of a row, so a lower one may have been written a little later.
            yield Page(_utc(max(row.written for row in rows)), [_line(row) for row in reversed(rows)])

    def of_run(self, run_id: str) -> Iterator[Line]:
        """See Log."""
        columns = self._table.c
        after = 0
        while True:
            query = self._lines().where(columns.run == file_name(run_id), columns.id > after)
            rows = self._rows(query.order_by(columns.id).limit(_PAGE))
            if not rows:
                return
            yield from map(_line, rows)
            after = rows[-1].id

    def _lines(self) -> Select[Any]:
        from sqlalchemy import select

        columns = self._table.c
        return select(columns.id, columns.run, columns.written, columns.line)

    def _rows(self, query: Select[Any]) -> Sequence[Any]:
        return self._looking(lambda connection: connection.execute(query).all(), ())


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def _line(row: Any) -> Line:
    return Line(f"the row {row.id} of the table journal (run {row.run})", bytes(row.line))
