"""`${NAME}` and `${NAME:-default}` in values; `$${` stands for a plain `${`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakehouse_maintenance.model.errors import ConfigurationError

Key = tuple[str | int, ...]

# The escape comes first, so that "$${" is never read as "$" and a reference.
_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}|\$\{")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


@dataclass(slots=True)
class Substituted:
    """`data`: the tree with its values filled in. `variables`: by path, the variables that a value took."""

    data: Any
    variables: dict[Key, tuple[str, ...]] = field(default_factory=dict)
    problems: list[ConfigurationError] = field(default_factory=list)


def substitute(data: Any, environment: Mapping[str, str]) -> Substituted:
    """Fills in every text value of a tree; an unset variable without default is a problem that names it and the key.

    As in a shell, a variable that is set to nothing takes the default too.
    """
    result = Substituted(None)
    result.data = _filled(data, (), environment, result)
    return result


def escape(text: str) -> str:
    """The text as it has to be written, so that nothing in it is taken for a reference."""
    return text.replace("${", "$${")


def _filled(value: Any, path: Key, environment: Mapping[str, str], result: Substituted) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, (*path, key), environment, result) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, (*path, number), environment, result) for number, item in enumerate(value)]
    if not isinstance(value, str) or "${" not in value:
        return value
    names: list[str] = []

    def fill(match: re.Match[str]) -> str:
        if match.group(0) == "$${":
            return "${"
        reference = None if match.group(1) is None else _NAME.fullmatch(match.group(1))
        if reference is None:
            result.problems.append(_problem(path, "holds ${ without the name of a variable", None))
            return ""
        name, default = reference.groups()
        names.append(name)
        found = environment.get(name)
        if found is None and default is None:
            result.problems.append(_problem(path, f"needs the environment variable {name}, which is not set", name))
            return ""
        return default if default is not None and not found else found or ""

    filled = _REFERENCE.sub(fill, value)
    if names:
        result.variables[path] = tuple(names)
    return filled


def _problem(path: Key, what: str, name: str | None) -> ConfigurationError:
    key = ".".join(str(part) for part in path)
    hint = "write ${NAME} or ${NAME:-default}; for a plain ${ write $${"
    if name is not None:
        hint = f"set {name}, or write a default: ${{{name}:-…}}"
    return ConfigurationError(f"{key} {what}", field=key, hint=hint)
