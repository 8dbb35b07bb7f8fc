"""A whole run on every kind of state: what it is about to remove is durable before the first call that removes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.config import config_from_mapping
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.planning.expiring import ExpiryRequest
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance.removal import remover
from lakehouse_maintenance.removal.lists import open_lists, read_list
from lakehouse_maintenance.state import State, open_configured
from lakehouse_maintenance_tests.engine.tables import ids, many_small_files
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory
from lakehouse_maintenance_tests.services.states import Place, new_place

TABLE = "main.db.t"
EVERYTHING = Request(
    actions=(Action.EXPIRE_SNAPSHOTS,),
    expiry=ExpiryRequest(older_than=timedelta(0), retain_last=1, allow_short_retention=True),
)


def configured(place: Place, properties: dict[str, str]) -> Lakehouse:
    config = config_from_mapping(
        {
            "catalogs": {"main": properties},
            "state": {"url": place.url, "properties": place.properties, "cache": str(place.scratch / "cache")},
        },
        base=place.scratch,
    )
    return Lakehouse(config, open_configured(config.state))


@pytest.mark.requirement("RS-08")
def test_intent_and_list_are_durable_before_the_first_deletion(
    place: Place, sql_catalog: SqlCatalogFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, properties = sql_catalog()
    many_small_files(catalog, commits=4)
    before = ids(catalog)
    deleted: list[int] = []
    real = remover.delete_batch

    def looking_first(storage: Any, locations: Sequence[Location]) -> Any:
        # As another host would see it, or the next run after a kill.
        state = place.open()
        held = state.leases.current(TABLE)
        assert held is not None
        assert {intent.run_id for intent in state.journal.open_intents(TABLE)} == {held.run_id}
        listed = {
            candidate.path
            for head in open_lists(state, TABLE)
            for candidates in read_list(state, head)
            for candidate in candidates
        }
        assert {location.local_path for location in locations} <= {Location.parse(path).local_path for path in listed}
        deleted.append(len(locations))
        return real(storage, locations)

    monkeypatch.setattr(remover, "delete_batch", looking_first)
    outcome = configured(place, properties).maintain((TABLE,), EVERYTHING).tables[0]
    assert [action.status for action in outcome.actions] == [Status.DONE]
    assert sum(deleted) > 0
    assert ids(catalog) == before
    state = place.open()
    assert state.journal.open_intents(TABLE) == []
    assert open_lists(state, TABLE) == []
    assert state.leases.current(TABLE) is None
    phases = [each.phase for each in state.journal.events(table=TABLE)]
    assert (phases[0], phases[-1]) == ("intent", "outcome")
    assert phases.count("intent") == phases.count("outcome")


class Refusing:
    """A store that cannot write values of one kind."""

    def __init__(self, inner: Any, kind: str) -> None:
        self._inner = inner
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put(self, key: str, value: bytes, expected: str | None) -> str | None:
        if key.startswith(self._kind):
            raise StorageError("the state is full", field="state.url")
        return self._inner.put(key, value, expected)  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["leases/", "open/", "open-removals/", "removals/"])
def test_nothing_is_removed_where_that_cannot_be_written(
    kind: str,
    request: pytest.FixtureRequest,
    sql_catalog: SqlCatalogFactory,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    place = new_place("folder", request, tmp_path)
    catalog, properties = sql_catalog()
    many_small_files(catalog, commits=2)
    before = set(tmp_path.rglob("*.parquet"))

    def never(*_: object) -> None:
        raise AssertionError("a deletion began")

    monkeypatch.setattr(remover, "delete_batch", never)
    ours = configured(place, properties)
    ours = Lakehouse(ours.config, State(Refusing(place.store(), kind), cache=place.scratch))
    outcome = ours.maintain((TABLE,), EVERYTHING).tables[0]
    assert outcome.status is not Status.DONE
    assert before <= set(tmp_path.rglob("*.parquet"))
