"""The audit table `cleanup_untracked_table_folder_runs`: one row for each database of a run (UF-21, UF-31).

A run that cannot record what it did deletes nothing more, so `write` tells for sure: it returns when the row is in the
table, once, and raises otherwise. An answer that was lost is looked up; see `_record`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from lakehouse_maintenance.audit import columns
from lakehouse_maintenance.model.errors import AuditError, CatalogUnavailableError, LakehouseError, UnknownTableError
from lakehouse_maintenance.model.folders import AUDIT_TABLE, OPERATION, AuditRow
from lakehouse_maintenance.model.names import TableName, quote_part, split_name
from lakehouse_maintenance.storage.causes import shortened
from lakehouse_maintenance.storage.masking import masker_for

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

    from lakehouse_maintenance.audit.staging import Change
    from lakehouse_maintenance.catalogs import Catalog

_PROPERTIES = {
    "format-version": "2",
    # One row a commit: manifests are merged on the way, as Iceberg's Java writers do by default.
    "commit.manifest-merge.enabled": "true",
}


def _pause(attempt: int) -> None:
    from lakehouse_maintenance.iceberg.commit import pause

    pause(attempt)


class FolderAudit:
    """The audit table in one catalog. `namespace`: a database inside it, as `audit.namespace` of lakehouse.yaml.

    Raises InputError where that is no name.
    """

    attempts = 8
    """To commit one row, or one change of the schema."""

    patience = 3
    """Attempts of them that may end before there is anything to commit: storage or catalog do not answer."""

    pause = staticmethod(_pause)

    def __init__(self, catalog: Catalog, namespace: str) -> None:
        self.name = TableName(catalog.name, split_name(namespace), AUDIT_TABLE)
        self._catalog = catalog
        self._vended: dict[str, str] = {}

    def prepare(self, *, older_than_hours: float = 24) -> None:
        """Creates database and table where they are absent, else adds the columns that are missing.

        `older_than_hours`: of the run, which an existing column of whole hours has to take. Raises
        CatalogUnavailableError, and AuditError where the table cannot be created, written to, or has a column of
        another type; nothing that was there is changed then.
        """
        try:
            table = self._load_or_create()
            self._refuse_unwritable(table)
            columns.refuse_fraction(table.schema(), str(self.name), older_than_hours)
            self._evolve(table)
        except (AuditError, CatalogUnavailableError):
            raise
        except Exception as error:
            raise self._failed("cannot be made ready", error) from error

    def write(self, row: AuditRow) -> None:
        """Appends the row, once. Raises AuditError where it is not recorded, or nobody can tell."""
        try:
            self._record(row)
        except AuditError:
            raise
        except Exception as error:
            raise self._failed(f"the row of {row.database_name} is not recorded", error) from error

    def rows(self, run_id: str | None = None) -> list[dict[str, Any]]:
        """Rows by column name, of one run or of all, oldest first; times in UTC, `diagnostic_details` as JSON text.

        Raises AuditError, also where there is no table.
        """
        try:
            scan = self._load().scan(columns.equal({} if run_id is None else {"run_id": run_id}))
            found: list[dict[str, Any]] = scan.to_arrow().to_pylist()
        except Exception as error:
            raise self._failed("cannot be read", error) from error
        return sorted(found, key=lambda row: (row["start_time"], row["run_id"], row["database_name"]))

    # Getting ready.

    def _load(self) -> Table:
        table = self._catalog.load(self.name)
        self._vended = {key: str(value) for key, value in table.io.properties.items()}
        return table

    def _load_or_create(self) -> Table:
        try:
            return self._load()
        except UnknownTableError:
            self._create_database()
            self._create_table()
        try:
            return self._load()
        except UnknownTableError as error:
            raise AuditError(
                f"the audit table {self.name}: the name is taken by something that is no Iceberg table",
                field=str(self.name),
                hint="rename it, or name another database in audit.namespace",
            ) from error

    def _create_database(self) -> None:
        """Each level of the namespace, since some catalogs want the parents to be there."""
        from pyiceberg.exceptions import NamespaceAlreadyExistsError

        inner = self._catalog.pyiceberg
        for depth in range(1, len(self.name.namespace) + 1):
            level = self.name.namespace[:depth]
            try:
                if not inner.namespace_exists(self.name.namespace) and not inner.namespace_exists(level):
                    inner.create_namespace(level)
            except NamespaceAlreadyExistsError:
                continue
            except Exception as error:
                # Another run may have been first, which SQL catalogs tell by the database's own error.
                if not self._exists(level):
                    what = ".".join(quote_part(part) for part in (self.name.catalog, *level))
                    raise self._failed(f"its database {what} cannot be created", error) from error

    def _exists(self, namespace: tuple[str, ...]) -> bool:
        try:
            return self._catalog.pyiceberg.namespace_exists(namespace)
        except Exception:  # noqa: BLE001  # the error that made us ask is the one that is told
            return False

    def _create_table(self) -> None:
        from pyiceberg.exceptions import TableAlreadyExistsError

        try:
            self._catalog.pyiceberg.create_table(self.name.identifier, columns.new_schema(), properties=_PROPERTIES)
        except TableAlreadyExistsError:
            return
        except Exception as error:  # noqa: BLE001  # told, unless the table is there
            # The answer may have been lost, or another run's table be there: then it is as if we had found it.
            try:
                self._load()
            except LakehouseError:
                raise self._failed("cannot be created", error) from error

    def _refuse_unwritable(self, table: Table) -> None:
        """Looks at what a commit of ours could not do, before anything depends on it."""
        from lakehouse_maintenance.iceberg.lossless import lost_paths
        from lakehouse_maintenance.iceberg.metadata import read_metadata

        if table.metadata.format_version > 2:
            raise AuditError(
                f"the audit table {self.name} has format version {table.metadata.format_version}; ours is 2",
                field=str(self.name),
                hint="name another database in audit.namespace",
            )
        if self._catalog.client_side_commits:
            raw = read_metadata(self._catalog.storage_of(table), str(self.name), table.metadata_location).raw
            lost = lost_paths(raw, table.metadata.model_dump(mode="json", by_alias=True))
            if lost:
                raise AuditError(
                    f"the audit table {self.name}: a commit through this catalog would drop {', '.join(lost[:3])} "
                    "from its metadata",
                    field=str(self.name),
                    hint="name another database in audit.namespace",
                )

    def _evolve(self, table: Table) -> None:
        """Adds missing columns and widens narrow ones; another run may do so at the same time."""
        from lakehouse_maintenance.audit.staging import stage
        from lakehouse_maintenance.iceberg.answers import Answer, answer

        last: Exception | None = None
        for attempt in range(1, self.attempts + 1):
            lacking = self._lacking(table.schema())
            if not lacking:
                return
            change = stage(table, partial(columns.change, lacking))
            assert change is not None, "columns are lacking"
            try:
                change.commit(self._catalog)
            except Exception as error:  # noqa: BLE001  # told, unless the columns are there
                # Whatever the answer: what counts is how the table stands when it is loaded again.
                last = error
                if answer(error, client_side=self._catalog.client_side_commits) is Answer.DENIED:
                    break
                self.pause(attempt)
            table = self._load()
        lacking = self._lacking(self._load().schema())
        if lacking:
            raise self._failed(f"columns cannot be added or widened ({', '.join(lacking)})", last)

    def _lacking(self, schema: Schema) -> tuple[str, ...]:
        return columns.lacking(schema, str(self.name))

    # Writing.

    def _record(self, row: AuditRow) -> None:
        """Attempts until one is seen in the table.

        No row comes twice: each attempt requires the branch to stand where it was staged from, so that the first which
        arrives makes void those before and after it, and each begins by looking whether one has.
        """
        from lakehouse_maintenance.iceberg.answers import Answer, answer

        tried = False
        failures = 0
        lost: Exception | None = None
        last: Exception | None = None
        for attempt in range(1, self.attempts + 1):
            try:
                table = self._load()
                if tried and self._is_there(table, row):
                    return
                change = self._append(table, row)
            except AuditError as error:
                last = error
                break  # the table does not take such rows
            except Exception as error:  # noqa: BLE001  # storage, catalog or driver: told when no attempt is left
                last = error
                failures += 1
                if failures == self.patience:
                    break
                self.pause(attempt)
                continue
            tried = True
            try:
                change.commit(self._catalog)
            except Exception as error:  # noqa: BLE001  # as above
                last = error
                said = answer(error, client_side=self._catalog.client_side_commits)
                if said is Answer.LOST:
                    lost = error
                elif said is Answer.DENIED:
                    break
                self.pause(attempt)
            else:
                return
        if tried and self._is_there_after_all(row, lost):
            return
        raise self._not_recorded(row, last, lost)

    def _append(self, table: Table, row: AuditRow) -> Change:
        """One row, staged. Raises AuditError where the table has changed so that it does not fit any more."""
        from lakehouse_maintenance.audit.staging import stage

        lacking = self._lacking(table.schema())
        if lacking:
            raise self._failed(f"columns are missing or too narrow ({', '.join(lacking)})", None)
        summary = {"lakehouse-maintenance.run-id": columns.text(row.run_id), "lakehouse-maintenance.action": OPERATION}
        data = columns.arrow(table.schema(), row)
        change = stage(table, lambda staged: staged.append(data, snapshot_properties=summary))
        assert change is not None, "a row changes the table"
        return change

    def _is_there(self, table: Table, row: AuditRow) -> bool:
        """By the row itself: the snapshot of an attempt may have expired since."""
        names = ("run_id", "catalog_name", "database_name")
        same = columns.equal({name: getattr(row, name) for name in names})
        ends = table.scan(same, selected_fields=("end_time",)).to_arrow()["end_time"].to_pylist()
        return row.end_time in ends

    def _is_there_after_all(self, row: AuditRow, lost: Exception | None) -> bool:
        try:
            return self._is_there(self._load(), row)
        except Exception as error:
            # Of a request that a gateway sent twice we may have seen the second answer: no answer is a sure no.
            raise self._not_recorded(row, error, lost or error) from error

    def _not_recorded(self, row: AuditRow, last: Exception | None, lost: Exception | None) -> AuditError:
        if lost is not None:
            what = f"it is not known whether the row of {row.database_name} is recorded"
            return self._failed(what, lost, hint=f"look for run {row.run_id} in the table")
        return self._failed(f"the row of {row.database_name} is not recorded", last)

    # Errors.

    def _failed(self, what: str, error: Exception | None, *, hint: str | None = None) -> AuditError:
        """The error for a user, secrets masked."""
        hint = hint or "check that this account may create and write the audit table, or set audit in lakehouse.yaml"
        name = f"the audit table {self.name}"
        if isinstance(error, LakehouseError):
            cause, hint = error.message.removeprefix(f"{name}: "), error.hint or hint
        else:
            cause = f"{type(error).__name__}: {error}" if error is not None else ""
        secrets = masker_for({**self._vended, **self._catalog.properties})
        text = ": ".join(part for part in (name, what, cause) if part)
        return AuditError(shortened(secrets.mask(text)), field=str(self.name), hint=hint)
