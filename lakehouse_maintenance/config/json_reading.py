"""Reading JSON: values as written, every key and list item with its line, no key twice."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from lakehouse_maintenance.config.reading import Document, Key
from lakehouse_maintenance.model.errors import ConfigurationError

LARGEST = 16 * 1024 * 1024
"""Bytes. A job's file is written by people: one that is larger is another file."""

# Of text that is known to be JSON.
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')


def read_json(path: Path, *, field: str) -> Document:
    """The object in a file. Raises ConfigurationError where there is none to be read; its `field` names who asked."""
    try:
        if path.is_dir():
            raise ConfigurationError(f"{path} is a folder", field=field, hint="name the file itself")
        if path.exists() and not path.is_file():
            raise ConfigurationError(f"{path} is no regular file", field=field, hint="name a file")
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else None
        raise ConfigurationError(
            f"{path} cannot be read: {why or error}", field=field, hint="check the path and its permissions"
        ) from None
    if len(content) > LARGEST:
        raise ConfigurationError(
            f"{path} is larger than {LARGEST:,} bytes", field=field, hint="name the job's own configuration"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{path} is not UTF-8 text (byte {error.start})", field=field, hint="save the file as UTF-8"
        ) from None
    return parse_json(text, str(path), field=field)


def parse_json(text: str, name: str, *, field: str) -> Document:
    """As `read_json`, for text; `name` stands for the file in messages."""

    def refuse(problem: str) -> NoReturn:
        raise ConfigurationError(
            f"{name} is not valid JSON: {problem}",
            field=field,
            hint="names and texts stand in double quotes; there are no comments, and no comma after the last item",
        ) from None

    try:
        data = json.loads(text, parse_constant=lambda word: refuse(f"{word} is no number of JSON"))
    except json.JSONDecodeError as error:
        refuse(f"line {error.lineno}, column {error.colno}: {error.msg}")
    except RecursionError:
        refuse("it is nested too deeply")
    except ValueError:
        # Python's own limit for the digits of a number.
        refuse("it holds a number with too many digits")
    if not isinstance(data, dict):
        raise ConfigurationError(
            f"{name} holds no object with fields and values", field=field, hint='write {"catalog": …, "databases": […]}'
        )
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        refuse(r"a text holds half of a surrogate pair (\ud800 to \udfff), which is no character")
    return Document(data, _lines(text, name))


@dataclass(slots=True)
class _Open:
    """An object or list whose end has not come. `at`: its current key or position; None before an object's key."""

    path: Key
    is_list: bool
    at: str | int | None


def _lines(text: str, name: str) -> dict[Key, int]:
    """The line of each key and list item. Raises ConfigurationError for a key that stands twice."""
    lines: dict[Key, int] = {}
    above: list[_Open] = []
    line, seen_to = 1, 0
    for match in _PIECE.finditer(text):
        piece = match[0]
        line += text.count("\n", seen_to, match.start())
        seen_to = match.start()
        here = above[-1] if above else None
        if piece in ("}", "]"):
            above.pop()
        elif piece == ",":
            assert here is not None, "JSON has no comma outside"
            here.at = here.at + 1 if isinstance(here.at, int) else None
        elif piece == ":":
            continue
        elif here is not None and here.at is None and not here.is_list:
            here.at = str(json.loads(piece))
            where = (*here.path, here.at)
            if where in lines:
                raise _twice(name, where, lines[where], line)
            lines[where] = line
        else:
            where = () if here is None or here.at is None else (*here.path, here.at)
            if here is not None and here.is_list:
                lines[where] = line
            if piece in ("{", "["):
                above.append(_Open(where, piece == "[", 0 if piece == "[" else None))
    return lines


def _twice(name: str, where: Key, first: int, second: int) -> ConfigurationError:
    key = ".".join(str(part) for part in where)
    shown = key if len(key) <= 200 else key[:200] + "…"
    return ConfigurationError(
        f"{name}: the field {shown} stands twice, in line {first} and line {second}",
        field=shown,
        hint="keep one of them: which of the two counts is another reader's guess",
    )
