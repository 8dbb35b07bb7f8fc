"""Looks whether everything is there that maintenance needs: configuration, versions, catalogs, stores, state.

Nothing is changed, but for the scratch object of the write test, which is removed again. Every check is made, whatever
the others found.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import islice
from typing import TYPE_CHECKING, Any

from lakehouse_maintenance.model.errors import InputError, LakehouseError
from lakehouse_maintenance.model.listing import Incomplete
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.names import TableName, quote_part
from lakehouse_maintenance.model.nearest import suggestion

if TYPE_CHECKING:
    from lakehouse_maintenance.catalogs import Catalog
    from lakehouse_maintenance.config import LakehouseConfig
    from lakehouse_maintenance.execution.observe import Observed
    from lakehouse_maintenance.state import State
    from lakehouse_maintenance.storage import Storage

DISTRIBUTION = "lakehouse-maintenance"
EVERY = "*"
_BATCH = 100
_DATABASES_SEARCHED = 100
"""Databases that are looked through for one table to read."""


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """`detail`: what was found, without secrets. `hint`: what to do; None where all is well."""

    name: str
    ok: bool
    detail: str
    hint: str | None = None

    def as_json(self) -> dict[str, Any]:
        """One object of the `doctor` verb's result."""
        return asdict(self)


class _Failed(Exception):
    """A check that did not pass, for a reason that we found ourselves."""

    def __init__(self, detail: str, hint: str) -> None:
        super().__init__(detail)
        self.detail = detail
        self.hint = hint


def examine(
    config: LakehouseConfig, catalogs: Mapping[str, Catalog], state: State, *, write_test: bool = False
) -> list[DoctorCheck]:
    """Every check in its order. Never raises, and no text holds a secret of the configuration."""
    found = [
        _check("configuration", lambda: _configuration(config)),
        _check("versions", _versions),
    ]
    for name in catalogs:
        found += _Examination(config, catalogs, name).run(write_test=write_test)
    found += [
        _check("state: write", lambda: _state(state)),
        _check("state: leases", lambda: _leases(state)),
        _check("state: unfinished", lambda: _unfinished(state)),
    ]
    mask = config.masker.mask
    return [
        DoctorCheck(check.name, check.ok, mask(check.detail), None if check.hint is None else mask(check.hint))
        for check in found
    ]


def _check(name: str, look: Callable[[], str]) -> DoctorCheck:
    try:
        return DoctorCheck(name, True, look())
    except _Failed as failed:
        return DoctorCheck(name, False, failed.detail, failed.hint)
    except LakehouseError as error:
        where = f" ({error.field})" if error.field and isinstance(error, InputError) else ""
        return DoctorCheck(name, False, error.message + where, error.hint)
    except Exception as error:  # noqa: BLE001  # a check tells what it met, and the others go on
        return DoctorCheck(name, False, f"{type(error).__name__}: {error}", "run it again with -v")


def _configuration(config: LakehouseConfig) -> str:
    if not config.catalogs and not config.delta:
        raise _Failed(f"{config.path} names no catalog", "add one below catalogs:")
    return f"{config.path or 'made in Python'}: catalogs {', '.join(config.catalogs) or 'none'}"


def _versions() -> str:
    from packaging.requirements import Requirement

    try:
        wanted = [Requirement(text) for text in requires(DISTRIBUTION) or ()]
    except PackageNotFoundError:
        return f"Python {platform.python_version()}; {DISTRIBUTION} is not installed, so versions were not compared"
    present: list[str] = [f"Python {platform.python_version()}"]
    wrong: list[str] = []
    for requirement in wanted:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            installed = version(requirement.name)
        except PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        present.append(f"{requirement.name} {installed}")
        if not requirement.specifier.contains(installed, prereleases=True):
            wrong.append(f"{requirement.name} is {installed}, not {requirement.specifier}")
    if wrong:
        raise _Failed("; ".join(wrong), f"pip install --upgrade {DISTRIBUTION}")
    return ", ".join(present)


def _state(state: State) -> str:
    state.check_writable()
    return state.location


def _leases(state: State) -> str:
    held = state.leases.all()
    if not held:
        return "nobody works on a table now"
    return "; ".join(
        f"{info.table}: {info.owner} (run {info.run_id}) until {info.expires_at.isoformat(timespec='seconds')}"
        for info in held
    )


def _unfinished(state: State) -> str:
    """Lists that killed runs left: no fault of the installation, since the next run on the table goes on with them."""
    from lakehouse_maintenance.removal import open_lists

    tables = sorted(key.removeprefix("open-removals/") for key in state.keys("open-removals/"))
    found = [
        f"{table}: run {head.run_id}, {head.files} files ({head.action})"
        for table in tables
        for head in open_lists(state, table)
    ]
    if not found:
        return "no list of files waits to be finished"
    return f"finished by the next run on the table, unless one is at work: {'; '.join(found)}"


class _Examination:
    """The checks of one catalog; later ones use what earlier ones found, and say so where that is missing."""

    def __init__(self, config: LakehouseConfig, catalogs: Mapping[str, Catalog], name: str) -> None:
        self._config = config
        self._catalogs = catalogs
        self._name = name
        self._catalog: Catalog | None = None
        self._namespaces: tuple[tuple[str, ...], ...] = ()
        self._observed: Observed | None = None

    def run(self, *, write_test: bool) -> Iterator[DoctorCheck]:
        """In order; what cannot be reached is not examined further."""
        reached = _check(f"catalog {self._name}: reach", self._reach)
        yield reached
        if not reached.ok:
            return
        listed = _check(f"catalog {self._name}: list", self._list)
        yield listed
        if listed.ok:
            yield _check(f"catalog {self._name}: databases", self._databases)
            yield _check(f"catalog {self._name}: policies", self._policies)
            yield _check(f"catalog {self._name}: read", self._read)
        for location, folder, storage in self._stores():
            yield from _store_checks(location, folder, storage, write_test=write_test)

    def _reach(self) -> str:
        self._catalog = self._catalogs[self._name]
        return f"{self._catalog.properties.get('type') or 'catalog'} answers"

    def _list(self) -> str:
        assert self._catalog is not None, "it was reached"
        listed = self._catalog.databases()
        if isinstance(listed, Incomplete):
            raise _Failed(listed.why, "check credentials and permissions")
        self._namespaces = listed.items
        others = () if listed.items else self._catalog.other_names()
        if others:
            raise _Failed(
                f"it holds no databases of a catalog {self._name}, and tables of {', '.join(others)}",
                f"catalogs.{self._name}: name it as its writer does, {others[0]}",
            )
        return f"databases: {len(listed.items)}"

    def _databases(self) -> str:
        written = self._config.databases.get(self._name, (EVERY,))
        if EVERY in written:
            return "all databases are taken"
        known = {".".join(quote_part(part) for part in namespace) for namespace in self._namespaces}
        missing = [database for database in written if database not in known]
        if missing:
            raise _Failed(
                f"databases.{self._name} lists {', '.join(missing)}, and the catalog has none of that name",
                suggestion(missing[0], known),
            )
        return f"present: {', '.join(written)}"

    def _policies(self) -> str:
        """A policy whose name is mistyped protects nothing, and nobody would see it."""
        assert self._catalog is not None, "it was reached"
        index = self._config.policy_index
        named = [name for name in (*index.databases, *index.tables) if name[0] == self._name]
        namespaces = set(self._namespaces)
        for name in index.databases:
            if name[0] == self._name and name[1:] not in namespaces:
                known = [".".join((self._name, *namespace)) for namespace in self._namespaces]
                text = ".".join(name)
                raise _Failed(f"policies.databases.{text} names no database", suggestion(text, known))
        for name in index.tables:
            if name[0] != self._name:
                continue
            text = ".".join(quote_part(part) for part in name)
            listed = self._catalog.tables(name[1:-1]) if name[1:-1] in namespaces else None
            if isinstance(listed, Incomplete):
                raise _Failed(listed.why, "check credentials and permissions")
            tables = [] if listed is None else [str(entry.name) for entry in listed.items]
            if text not in tables:
                raise _Failed(f"policies.tables.{text} names no table", suggestion(text, tables))
        return f"every policy names something: {len(named)}"

    def _read(self) -> str:
        from lakehouse_maintenance.execution.observe import observe

        assert self._catalog is not None, "it was reached"
        name = self._some_table()
        if name is None:
            return "there is no Iceberg table to read"
        self._observed = observe(self._catalog, name)
        return f"{name}: {self._observed.metadata.location}"

    def _some_table(self) -> TableName | None:
        from lakehouse_maintenance.catalogs import TableKind

        assert self._catalog is not None, "it was reached"
        for namespace in self._namespaces[:_DATABASES_SEARCHED]:
            listed = self._catalog.tables(namespace)
            if isinstance(listed, Incomplete):
                raise _Failed(listed.why, "check credentials and permissions")
            for entry in listed.items:
                if entry.kind is TableKind.ICEBERG:
                    return entry.name
        return None

    def _stores(self) -> Iterator[tuple[Location, Location, Storage]]:
        """The warehouse, where it is a place, and where the table that was read lies: each with the folder for the
        write test, and what reaches them."""
        assert self._catalog is not None, "it was reached"
        places: list[Location] = []
        warehouse = self._catalog.properties.get("warehouse") or ""
        if "://" in warehouse or warehouse.startswith(("/", "file:")):
            place = _parsed(warehouse)
            if place is not None:
                places.append(place)
                yield place, place, self._catalog.storage()
        if self._observed is not None:
            place = _parsed(self._observed.metadata.table_location)
            if place is not None and not any(other.contains(place) for other in places):
                # Stores made for tables take nothing beside a table's data and metadata folders.
                yield place, place.child("data"), self._observed.storage


def _parsed(text: str) -> Location | None:
    try:
        return Location.parse(text)
    except InputError:
        return None


def _store_checks(location: Location, folder: Location, storage: Storage, *, write_test: bool) -> Iterator[DoctorCheck]:
    """`folder`: where the write test writes."""
    yield _check(f"store {location.text}: list", lambda: _list_one_batch(location, storage))
    yield _check(f"store {location.text}: read", lambda: _read_one_byte(location, storage))
    if write_test:
        yield _check(f"store {location.text}: write", lambda: _write_and_remove(folder, storage))


def _list_one_batch(location: Location, storage: Storage) -> str:
    batch = next(storage.list(location, batch_size=_BATCH), [])
    return f"objects: {len(batch)}{' or more' if len(batch) == _BATCH else ''}"


def _read_one_byte(location: Location, storage: Storage) -> str:
    batches = islice(storage.list(location, batch_size=_BATCH), 1)
    found = next((info for batch in batches for info in batch if info.size), None)
    if found is None:
        return "there is nothing to read"
    storage.read(found.location, 0, 1)
    return found.location.text


def _write_and_remove(location: Location, storage: Storage) -> str:
    scratch = storage.put_scratch(location)
    try:
        storage.remove_scratch(scratch)
    except LakehouseError as error:
        raise _Failed(
            f"{scratch.text} was written and cannot be removed: {error.message}",
            "maintenance needs no right to delete yet; remove this one object by hand",
        ) from error
    return "a scratch object was written and removed"
