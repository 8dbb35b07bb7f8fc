"""`CURRENT_DATE` and `CURRENT_TIMESTAMP` in a filter's text."""

from __future__ import annotations

import pytest

from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.planning.moment import resolve_moments

NOW = 1_772_368_245_678  # 2026-03-01T12:30:45.678 UTC


@pytest.mark.requirement("IM-01")
@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        ("day >= CURRENT_DATE", "day >= '2026-03-01'"),
        ("day >= current_date - 1", "day >= '2026-02-28'"),
        ("day >= Current_Date()-30", "day >= '2026-01-30'"),
        ("day < CURRENT_DATE + 7 AND x = 1", "day < '2026-03-08' AND x = 1"),
        ("day < CURRENT_DATE - 7 + 1", "day < '2026-02-23'"),
        ("at > CURRENT_TIMESTAMP - 1", "at > '2026-02-28T12:30:45.678+00:00'"),
        ("a in (CURRENT_DATE, CURRENT_DATE - 1)", "a in ('2026-03-01', '2026-02-28')"),
        ("a = 'CURRENT_DATE - 1'", "a = 'CURRENT_DATE - 1'"),
        ("a = 'it''s CURRENT_DATE' and b = CURRENT_DATE", "a = 'it''s CURRENT_DATE' and b = '2026-03-01'"),
        ('"current_date" = CURRENT_DATE', "\"current_date\" = '2026-03-01'"),
        ("s.current_date = 1 and my_current_date = 2", "s.current_date = 1 and my_current_date = 2"),
        ("current_date.x = 1 and current_dates = 2", "current_date.x = 1 and current_dates = 2"),
        ("x = 'open CURRENT_DATE", "x = 'open '2026-03-01'"),
    ],
)
def test_moments(text: str, resolved: str) -> None:
    assert resolve_moments(text, NOW) == resolved


def test_a_moment_beyond_the_calendar() -> None:
    with pytest.raises(InputError, match="no date between") as told:
        resolve_moments("day > CURRENT_DATE - 99999999", NOW)
    assert told.value.field == "where"
    with pytest.raises(InputError, match="no date between"):
        resolve_moments("day > CURRENT_TIMESTAMP + 99999999999999999999", NOW)


def test_a_number_with_a_fraction_is_left_to_the_parser() -> None:
    assert resolve_moments("d = CURRENT_DATE - 7.5", NOW) == "d = '2026-03-01' - 7.5"
