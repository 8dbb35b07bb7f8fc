"""What every part of `lakehouse.yaml` is built from: the section, and values written for people."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import time, timedelta
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from lakehouse_maintenance.config.secrets import mask_properties, mask_url
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.intervals import (
    CalendarInterval,
    format_duration,
    parse_calendar_interval,
    parse_duration,
    parse_size,
    write_size,
)
from lakehouse_maintenance.model.names import split_name

T = TypeVar("T")


class Section(BaseModel):
    """A mapping of `lakehouse.yaml`: frozen, no unknown keys, its inputs never repeated by pydantic's own errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _empty_means_unset(cls, data: Any) -> Any:
        # `policies:` with nothing below it is what remains of a section whose lines are commented out.
        if not isinstance(data, dict):
            return data
        unset = set()
        for name, field in cls.model_fields.items():
            if NoneType not in get_args(field.annotation):
                unset |= {name, field.alias or name}
        return {key: value for key, value in data.items() if value is not None or key not in unset}

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, _shown(value)


class Properties(dict[str, str]):
    """Properties of somebody else's library; shown with their secrets masked."""

    def __repr__(self) -> str:
        return repr(mask_properties(self))

    __str__ = __repr__


def refuse(message: str, hint: str) -> PydanticCustomError:
    """The error of a value: what is wrong with it, and what is accepted."""
    # The texts travel in the context: in the template, braces of the value would be taken for placeholders.
    return PydanticCustomError("configuration", "{message}", {"message": message, "hint": hint})


def written(parse: Callable[[Any], T]) -> BeforeValidator:
    """A validator that reads what people write by `parse`, whose InputError becomes the value's error."""

    def read(value: Any) -> Any:
        if isinstance(value, dict | list):
            kind = "a mapping" if isinstance(value, dict) else "a list"
            raise refuse(f"{kind} stands where one value is expected", "write one value")
        try:
            return parse(value)
        except InputError as error:
            raise refuse(error.message, error.hint or "") from None

    return BeforeValidator(read)


def exact_name(text: str, *, least: int) -> str:
    """The text, which must be a dotted name of at least `least` parts and no pattern. Raises InputError otherwise."""
    if len(split_name(text)) < least:
        raise InputError(
            f"{text!r} is not a full name", hint="write " + ".".join(("catalog", "database", "table")[-least:])
        )
    if "*" in text:
        raise InputError(f"{text!r} is a pattern", hint="write one exact name")
    return text


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return mask_url(value)
    if type(value) is tuple:
        return tuple(_shown(item) for item in value)
    if type(value) is dict:
        return {key: _shown(item) for key, item in value.items()}
    return value


def _time_of_day(value: Any) -> time:
    if isinstance(value, time):
        return value
    match = re.fullmatch(r"([01]?[0-9]|2[0-3]):([0-5][0-9])", str(value).strip())
    if match is None:
        raise InputError(f"{value!r} is not a time of day", hint='write hours and minutes, such as "01:00"')
    return time(int(match.group(1)), int(match.group(2)))


def _time_zone(value: Any) -> str:
    from zoneinfo import ZoneInfo, available_timezones

    from lakehouse_maintenance.model.nearest import nearest

    name = str(value).strip()
    if name == "UTC":
        return name
    try:
        ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        close = nearest(name, available_timezones())
        hint = "write a name of the IANA database, such as Europe/Berlin" + (f"; nearest: {close}" if close else "")
        raise InputError(f"{name!r} is not a time zone", hint=hint) from None
    return name


def _cron(value: Any) -> str:
    fields = str(value).split()
    if len(fields) != 5 or not all(re.fullmatch(r"[0-9A-Za-z*,/\-#?]+", field) for field in fields):
        raise InputError(f"{value!r} is not a schedule", hint='write five cron fields, such as "0 12 * * 0"')
    return " ".join(fields)


def _interval(value: Any) -> CalendarInterval:
    return value if isinstance(value, CalendarInterval) else parse_calendar_interval(value)


Duration = Annotated[
    timedelta,
    written(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "examples": ["36h", "7 days"]}),
]
Size = Annotated[
    int,
    written(parse_size),
    PlainSerializer(write_size, return_type=str),
    WithJsonSchema({"type": ["string", "integer"], "examples": ["512MB", 1048576]}),
]
Interval = Annotated[
    CalendarInterval,
    written(_interval),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "examples": ["14 days", "1 month"]}),
]
TimeOfDay = Annotated[
    time,
    written(_time_of_day),
    PlainSerializer(lambda value: value.strftime("%H:%M"), return_type=str),
    WithJsonSchema({"type": "string", "examples": ["01:00"]}),
]
TimeZone = Annotated[str, written(_time_zone)]
Cron = Annotated[str, written(_cron)]
TableText = Annotated[str, written(lambda value: exact_name(str(value), least=2))]
Url = Annotated[str, Field(min_length=1), PlainSerializer(mask_url, return_type=str)]
"""A path or URL; passwords inside are masked when it is shown."""
