"""Durations and sizes as people write them: `7 days`, `36h`, `512MB`. Pure.

Sizes are binary: 1 KB = 1 KiB = 1024 bytes, as Iceberg means its default of "512 MB" (536870912 bytes).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal

from lakehouse_maintenance.model.errors import InputError

DURATION_FORMS = "a number and a unit, such as 30s, 15 minutes, 36h, 7 days, 2 weeks, or several: 1 day 12 hours"
SIZE_FORMS = "a whole number of bytes, or a number and a unit, such as 64KB, 512MB, 1.5 GB, 2TB (1 KB = 1024 bytes)"
INTERVAL_FORMS = "whole numbers and units, such as 14 days, 2 weeks, 1 month, or several: 1 month 2 days"

KB, MB, GB, TB, PB = (1 << 10, 1 << 20, 1 << 30, 1 << 40, 1 << 50)

_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_DURATION_UNITS = {
    **_MICROSECONDS,
    **{name + "s": size for name, size in _MICROSECONDS.items()},
    "us": _MICROSECONDS["microsecond"],
    "ms": _MICROSECONDS["millisecond"],
    "s": _MICROSECONDS["second"],
    "sec": _MICROSECONDS["second"],
    "secs": _MICROSECONDS["second"],
    "m": _MICROSECONDS["minute"],
    "min": _MICROSECONDS["minute"],
    "mins": _MICROSECONDS["minute"],
    "h": _MICROSECONDS["hour"],
    "hr": _MICROSECONDS["hour"],
    "hrs": _MICROSECONDS["hour"],
    "d": _MICROSECONDS["day"],
    "w": _MICROSECONDS["week"],
}
_SIZE_UNITS = {"b": 1, "byte": 1, "bytes": 1}
for _letter, _factor in (("k", KB), ("m", MB), ("g", GB), ("t", TB), ("p", PB)):
    _SIZE_UNITS |= {_letter: _factor, _letter + "b": _factor, _letter + "ib": _factor}

# ASCII digits only: \d would take digits of other scripts, which Decimal reads and people do not see.
_TERM = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)(?:\s*,\s*|\s*)")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")
_LONGEST = timedelta(days=365_000)
"""A thousand years: longer is a slip, and would not fit the calendar when it is taken from a date."""
_LARGEST = 1 << 63


def parse_duration(text: str | int | timedelta, *, field: str | None = None) -> timedelta:
    """`7 days`, `36h`, `1 day 12 hours` → timedelta, never negative. A number alone has no unit and is refused, but 0.

    Raises InputError that names the accepted forms; `field` goes into it.
    """
    if isinstance(text, timedelta):
        return _within(text, str(text), field)
    if isinstance(text, bool):
        raise _not_a_duration(text, field)
    stripped = str(text).strip()
    if stripped == "0":
        return timedelta(0)
    total = Decimal(0)
    position = 0
    while position < len(stripped):
        term = _TERM.match(stripped, position)
        # "M" alone is a month in other notations: too far from a minute to guess.
        unit = None if term is None or term.group(2) == "M" else _DURATION_UNITS.get(term.group(2).lower())
        if term is None or unit is None:
            raise _not_a_duration(text, field)
        total += Decimal(term.group(1)) * unit
        position = term.end()
    if position == 0 or stripped.endswith(","):
        raise _not_a_duration(text, field)
    if total > _LONGEST // timedelta(microseconds=1):
        raise InputError(f"{text!r} is too long a duration", field=field, hint="1000 years is the most")
    return timedelta(microseconds=int(total.to_integral_value(ROUND_HALF_EVEN)))


def format_duration(duration: timedelta) -> str:
    """`1 day 12 hours`: exact, and read back by `parse_duration` as the same duration."""
    rest = duration // timedelta(microseconds=1)
    parts: list[str] = []
    for name in ("day", "hour", "minute", "second", "millisecond", "microsecond"):
        count, rest = divmod(rest, _MICROSECONDS[name])
        if count:
            parts.append(f"{count} {name}" if count == 1 else f"{count} {name}s")
    return " ".join(parts) or "0 seconds"


def parse_until(text: str, now: datetime, *, field: str | None = None) -> datetime:
    """A duration from now on, or a date or time in ISO 8601: of UTC where it names no zone, a date as its first moment.

    Raises InputError for anything else.
    """
    stripped = text.strip()
    if stripped and (stripped[0].isdigit() and "-" not in stripped):
        return now + parse_duration(stripped, field=field)
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise InputError(
            f"{text!r} is no time", field=field, hint="write 2026-12-24, 2026-12-24T18:00+01:00, or 3 days"
        ) from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).astimezone(UTC)


def parse_size(text: str | int, *, field: str | None = None) -> int:
    """`512MB`, `64 KiB`, `1.5 GB`, `1048576` → bytes; a fraction of a byte is dropped.

    Raises InputError that names the accepted forms; `field` goes into it.
    """
    match = None if isinstance(text, bool) else _SIZE.fullmatch(str(text).strip())
    unit = None if match is None else _SIZE_UNITS.get(match.group(2).lower() or "b")
    if match is None or unit is None or (unit == 1 and "." in match.group(1)):
        raise InputError(f"{text!r} is not a size", field=field, hint=f"write {SIZE_FORMS}")
    size = Decimal(match.group(1)) * unit
    if size >= _LARGEST:
        raise InputError(f"{text!r} is too large a size", field=field, hint="it must be below 8192 PB")
    return int(size)


def format_size(size: int) -> str:
    """For people: `512 MB`, `1.3 GB`, `17 bytes`; rounded to one decimal, so not for reading back."""
    for unit, factor in (("PB", PB), ("TB", TB), ("GB", GB), ("MB", MB), ("KB", KB)):
        # From 1023.95 of the smaller unit on, one decimal would print "1024.0".
        if abs(size) >= factor - factor // 20480:
            number = f"{size / factor:.1f}".removesuffix(".0")
            return f"{number} {unit}"
    return "1 byte" if size == 1 else f"{size} bytes"


def write_size(size: int) -> str:
    """For files: `512MB`, or plain bytes where no unit divides it; `parse_size` reads the same size back."""
    for unit, factor in (("PB", PB), ("TB", TB), ("GB", GB), ("MB", MB), ("KB", KB)):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


@dataclass(frozen=True, slots=True)
class CalendarInterval:
    """Calendar months, whose length depends on where they start, and a fixed rest. `text`: as it was written."""

    months: int
    rest: timedelta
    text: str

    @property
    def at_least(self) -> timedelta:
        """The shortest that it can be: a month has 28 days or more, twelve have 365 or more."""
        years, months = divmod(self.months, 12)
        return timedelta(days=365 * years + 28 * months) + self.rest

    def __str__(self) -> str:
        return self.text


def parse_calendar_interval(text: str, *, field: str | None = None) -> CalendarInterval:
    """`14 days`, `1 month`, `1 year 2 weeks`, with `interval` before it or not. Raises InputError."""
    words = str(text).strip()
    position = 0
    leading = re.match(r"interval\s+", words, re.IGNORECASE)
    if leading is not None:
        position = leading.end()
    months = 0
    rest = timedelta(0)
    term = re.compile(r"([0-9]{1,6})\s+([A-Za-z]+)(?:\s*,\s*|\s+|$)")
    while position < len(words) or position == 0:
        match = term.match(words, position)
        unit = "" if match is None else match.group(2).lower().removesuffix("s")
        if match is None or (unit not in _MICROSECONDS and unit not in ("month", "year")):
            raise InputError(f"{text!r} is not an interval", field=field, hint=f"write {INTERVAL_FORMS}")
        count = int(match.group(1))
        if unit in ("month", "year"):
            months += count * (12 if unit == "year" else 1)
        else:
            rest += timedelta(microseconds=_MICROSECONDS[unit]) * count
        position = match.end()
    _within(timedelta(days=31 * months) + rest, words, field)
    return CalendarInterval(months, rest, words)


def _within(duration: timedelta, text: str, field: str | None) -> timedelta:
    if duration < timedelta(0):
        raise InputError(f"{text!r} is negative", field=field, hint=f"write {DURATION_FORMS}")
    if duration > _LONGEST:
        raise InputError(f"{text!r} is too long a duration", field=field, hint="1000 years is the most")
    return duration


def _not_a_duration(text: object, field: str | None) -> InputError:
    return InputError(f"{text!r} is not a duration", field=field, hint=f"write {DURATION_FORMS}")
