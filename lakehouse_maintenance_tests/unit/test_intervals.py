from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.intervals import (
    format_duration,
    format_size,
    parse_calendar_interval,
    parse_duration,
    parse_size,
    write_size,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7 days", timedelta(days=7)),
        ("1 day", timedelta(days=1)),
        ("36h", timedelta(hours=36)),
        ("1 day 12 hours", timedelta(hours=36)),
        ("1h30m", timedelta(minutes=90)),
        ("1 hour, 30 minutes", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        (" 2 Weeks ", timedelta(days=14)),
        ("250ms", timedelta(milliseconds=250)),
        ("0s", timedelta(0)),
        ("0", timedelta(0)),
        (0, timedelta(0)),
        (timedelta(days=2), timedelta(days=2)),
    ],
)
def test_durations(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "7", 7, "days", "7 dayz", "-1h", "1M", "1 month", "5 5 days", "1h,", "P7D", True, "9" * 400 + "d", "٣ days"],
)
def test_what_is_no_duration_names_the_forms(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_duration(text, field="policies.default.x")
    assert caught.value.field == "policies.default.x"
    assert "7 days" in str(caught.value.hint) or "1000 years" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("512MB", 536870912),
        ("512 MB", 536870912),
        ("512MiB", 536870912),
        ("1mb", 1048576),
        ("64k", 65536),
        ("1.5 GB", 1610612736),
        ("2TB", 2 << 40),
        ("17 bytes", 17),
        ("1048576", 1048576),
        (1048576, 1048576),
        ("0", 0),
    ],
)
def test_sizes_are_binary(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "big", "512 XB", "-1", "1.5", "1.5 bytes", "1e9", "1,000", False, "9999999PB"])
def test_what_is_no_size_names_the_forms(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_size(text, field="engine.memory_limit")
    assert caught.value.field == "engine.memory_limit"
    assert "512MB" in str(caught.value.hint) or "8192 PB" in str(caught.value.hint)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=300_000)))
def test_a_written_duration_reads_back(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@given(st.integers(min_value=0, max_value=(1 << 63) - 1))
def test_a_written_size_reads_back(size: int) -> None:
    assert parse_size(write_size(size)) == size


@given(st.integers(min_value=0, max_value=1 << 60))
def test_a_size_for_people_is_short_and_near(size: int) -> None:
    text = format_size(size)
    assert len(text) <= 10
    assert abs(parse_size(text) - size) <= size * 0.05


def test_formats_for_people() -> None:
    assert format_size(536870912) == "512 MB"
    assert format_size(1395864371) == "1.3 GB"
    assert format_size((1 << 30) - 1) == "1 GB"
    assert format_size(1) == "1 byte"
    assert format_duration(timedelta(hours=36)) == "1 day 12 hours"
    assert format_duration(timedelta(0)) == "0 seconds"


def test_calendar_intervals() -> None:
    combined = parse_calendar_interval("interval 1 month 2 weeks")
    assert (combined.months, combined.rest, str(combined)) == (1, timedelta(days=14), "interval 1 month 2 weeks")
    assert parse_calendar_interval("14 days").at_least == timedelta(days=14)
    assert parse_calendar_interval("1 month").at_least == timedelta(days=28)
    assert parse_calendar_interval("1 year").at_least == timedelta(days=365)
    for wrong in ("", "month", "1.5 days", "-1 day", "14", "interval"):
        with pytest.raises(InputError, match="is not an interval"):
            parse_calendar_interval(wrong)
