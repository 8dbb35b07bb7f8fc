"""Reading YAML: every scalar stays the text that was written, every key has its line, no key stands twice."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakehouse_maintenance.model.errors import ConfigurationError

Key = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """`data`: mappings, lists, text and None. `lines`: of each key and list item, by its path; from 1 on."""

    data: dict[str, Any]
    lines: dict[Key, int] = field(default_factory=dict)


def read_document(path: Path) -> Document:
    """Raises ConfigurationError where the file cannot be read, or is no YAML mapping; it names line and column."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{path} is not UTF-8 text (byte {error.start})", field="config", hint="save the file as UTF-8"
        ) from None
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error.strerror or error}",
            field="config",
            hint="check the path and its permissions",
        ) from None
    return parse_document(text, str(path))


def parse_document(text: str, name: str) -> Document:
    """As `read_document`, for text; `name` stands for the file in messages."""
    import yaml

    try:
        loader = _loader_class()(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return Document({})
            lines: dict[Key, int] = {}
            _walk(node, (), lines, name, ())
            data = loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _syntax_error(name, error.problem or error.context or "", _place(mark)) from None
    except yaml.YAMLError as error:
        position = getattr(error, "position", 0)
        line = text.count("\n", 0, position) + 1
        column = position - (text.rfind("\n", 0, position) + 1) + 1
        raise _syntax_error(name, getattr(error, "reason", ""), f"line {line}, column {column}") from None
    except RecursionError:
        raise _syntax_error(name, "it is nested too deeply", "line 1, column 1") from None
    if not isinstance(data, dict):
        raise ConfigurationError(
            f"{name} holds no mapping of keys to values", field="config", hint="start with a line such as catalogs:"
        )
    return Document(data, lines)


def _loader_class() -> Any:
    import yaml

    class TextLoader(yaml.SafeLoader):
        """Leaves numbers, dates and on/off as text: the models know their types, and passwords keep their digits."""

    TextLoader.yaml_implicit_resolvers = {}
    TextLoader.add_implicit_resolver(
        "tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]
    )
    TextLoader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"^<<$"), ["<"])
    return TextLoader


def _walk(node: Any, path: Key, lines: dict[Key, int], name: str, above: tuple[int, ...]) -> None:
    import yaml

    if id(node) in above:
        raise _syntax_error(name, "an alias stands inside its own anchor", _place(node.start_mark))
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            lines[(*path, number)] = item.start_mark.line + 1
            _walk(item, (*path, number), lines, name, (*above, id(node)))
    if not isinstance(node, yaml.MappingNode):
        return
    seen: dict[str, int] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag.endswith(":null"):
            raise _syntax_error(name, "a key is no plain text", _place(key.start_mark))
        line = key.start_mark.line + 1
        where = (*path, key.value)
        if key.value in seen:
            raise ConfigurationError(
                f"{name}: the key {_dotted(where)} stands twice, in line {seen[key.value]} and line {line}",
                field=_dotted(where),
                hint="keep one of them",
            )
        seen[key.value] = line
        lines[where] = line
        _walk(value, path if key.tag.endswith(":merge") else where, lines, name, (*above, id(node)))


def _syntax_error(name: str, problem: str, place: str) -> ConfigurationError:
    # What stands in quotes is a piece of the file, and may be a piece of a password.
    told = re.sub(r"'[^']{2,}'|\"[^\"]{2,}\"", "…", problem)
    return ConfigurationError(
        f"{name} is not valid YAML: {place}: {told}",
        field="config",
        hint="mind the indentation, and quote values that start with one of * & ! % @ ` { [ or hold ': ' or ' #'",
    )


def _place(mark: Any) -> str:
    return "line 1, column 1" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"


def _dotted(path: Key) -> str:
    return ".".join(str(part) for part in path)
