"""From pydantic's errors to ours: dotted key, what was given, what is accepted, and never a secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from lakehouse_maintenance.config.models import LakehouseConfig
from lakehouse_maintenance.config.secrets import Masker, is_secret_key, property_secrets, texts_in, url_secrets
from lakehouse_maintenance.model.errors import ConfigurationError, InputError
from lakehouse_maintenance.model.nearest import suggestion

Key = tuple[str | int, ...]

_ACCEPTED = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "finite": "a number",
    "string": "text",
    "dict": "a mapping of keys to values",
    "model": "a mapping of keys to values",
    "list": "a list, such as [a, b]",
    "tuple": "a list, such as [a, b]",
}


def problems_of(
    error: ValidationError, data: Any, variables: Mapping[Key, tuple[str, ...]]
) -> list[ConfigurationError]:
    """One error a problem. `variables`: values that came from the environment.

    Unknown keys come first: a misspelt key is often why another one is missing.
    """
    masker = Masker(raw_secrets(data))
    found = []
    details = error.errors(include_url=False, include_input=False)
    for detail in sorted(details, key=lambda detail: detail["type"] != "extra_forbidden"):
        location = tuple(part for part in detail["loc"] if part != "[key]")
        found.append(_problem(detail, location, data, variables, masker))
    return found


def raw_secrets(data: Any) -> list[str]:
    """Every secret in a file's data, whether or not the rest of it is right."""
    secrets: list[str] = []
    _collect(data, secrets)
    for text in texts_in(data):
        secrets += url_secrets(text)
    return secrets


def combined(problems: Sequence[InputError], name: str, lines: Mapping[Key, int]) -> ConfigurationError:
    """One error that tells all problems; `field` and `hint` are the first's. `lines`: of keys, by their paths."""
    by_key = {".".join(str(part) for part in path): line for path, line in lines.items()}
    told = [_with_line(problem, by_key) for problem in problems]
    first = problems[0]
    if len(problems) == 1:
        return ConfigurationError(f"{name}: {told[0]}", field=first.field, hint=first.hint)
    hints = [f" ({problem.hint})" if problem.hint else "" for problem in problems]
    message = f"{name} has {len(problems)} problems:\n" + "\n".join(
        f"  - {text}{hint}" for text, hint in zip(told, hints, strict=True)
    )
    return ConfigurationError(message, field=first.field, hint=first.hint)


def _problem(
    detail: Any, location: Key, data: Any, variables: Mapping[Key, tuple[str, ...]], masker: Masker
) -> ConfigurationError:
    path = _as_written(location, data)
    key = ".".join(str(part) for part in path) or "config"
    kind = str(detail["type"])
    context = detail.get("ctx", {})
    if kind == "extra_forbidden":
        return ConfigurationError(
            f"unknown key {key}", field=key, hint=suggestion(str(path[-1]), known_keys(location[:-1]))
        )
    if kind == "missing":
        return ConfigurationError(f"{key} is missing", field=key, hint=f"add {path[-1]}")
    if kind == "configuration":
        message = str(context["message"])
        if path in variables:
            message = f"the value of {_variables(variables[path])} is not accepted"
        elif path and is_secret_key(str(path[-1])):
            message = "the value is not accepted"
        return ConfigurationError(f"{key}: {masker.mask(message)}", field=key, hint=masker.mask(str(context["hint"])))
    accepted = _ACCEPTED.get(kind.partition("_")[0])
    if kind == "literal_error":
        accepted = str(context["expected"]).replace("'", "")
    elif accepted is None or kind in ("string_too_short", "too_short", "too_long"):
        accepted = str(detail["msg"]).removeprefix("Input should be ")
    return ConfigurationError(
        f"{key} is {_given(path, data, variables, masker)}", field=key, hint=f"accepted: {accepted}"
    )


def known_keys(location: Key) -> list[str]:
    """The keys that may stand at a place of the file; none where the keys are the user's own."""
    annotation: Any = LakehouseConfig
    for part in location:
        annotation = _step(_plain(annotation), part)
    model = _plain(annotation)
    return list(_fields(model)) if _is_model(model) else []


def _step(annotation: Any, part: str | int) -> Any:
    if _is_model(annotation):
        return _fields(annotation).get(str(part))
    arguments = [argument for argument in get_args(annotation) if argument is not Ellipsis]
    return arguments[-1] if arguments else None


def _plain(annotation: Any) -> Any:
    """Without Annotated, an alias's name, or None as the other choice."""
    while True:
        arguments = [argument for argument in get_args(annotation) if argument is not NoneType]
        is_wrapped = hasattr(annotation, "__metadata__") or len(arguments) < len(get_args(annotation))
        if not is_wrapped:
            return annotation
        annotation = arguments[0]


def _fields(model: Any) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _given(path: Key, data: Any, variables: Mapping[Key, tuple[str, ...]], masker: Masker) -> str:
    value = _at(path, data)
    if path in variables:
        return _variables(variables[path])
    if value is None:
        return "empty"
    if isinstance(value, Mapping | list):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    if _is_private(path):
        return "something else"
    text = masker.mask(str(value))
    return repr(text if len(text) <= 60 else text[:60] + "…")


def _variables(names: tuple[str, ...]) -> str:
    return " and ".join(f"${{{name}}}" for name in names)


def _is_private(path: Key) -> bool:
    """Where a value may be a secret whatever its key is called: among other libraries' properties."""
    keys = [str(part) for part in path]
    if keys and is_secret_key(keys[-1]):
        return True
    of_a_catalog = keys[:1] == ["catalogs"] and keys[2:] != ["type"]
    return of_a_catalog or "storage_options" in keys or keys[:2] == ["spark", "conf"]


def _as_written(location: Key, data: Any) -> Key:
    """The path in the file: a single trigger stands there without the list that the models put around it."""
    path: list[str | int] = []
    for part in location:
        if isinstance(part, int) and isinstance(_at(tuple(path), data), Mapping):
            continue
        path.append(part)
    return tuple(path)


def _at(path: Key, data: Any) -> Any:
    for part in path:
        if isinstance(data, Mapping):
            data = data.get(part)
        elif isinstance(data, list | tuple) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return None
    return data


def _collect(data: Any, secrets: list[str]) -> None:
    if isinstance(data, Mapping):
        secrets += property_secrets({key: value for key, value in data.items() if not isinstance(value, Mapping)})
        for value in data.values():
            _collect(value, secrets)
    elif isinstance(data, list | tuple):
        for value in data:
            _collect(value, secrets)


def _with_line(problem: InputError, lines: Mapping[str, int]) -> str:
    line = lines.get(problem.field or "")
    return problem.message if line is None else f"line {line}: {problem.message}"
