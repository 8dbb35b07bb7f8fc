"""Checking `lakehouse.yaml` when Dagster loads: what is wrong is said at once, and no credential has to be there."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import dagster as dg

from lakehouse_maintenance.config import LakehouseConfig, load_config
from lakehouse_maintenance.config.environment import substitute
from lakehouse_maintenance.config.loader import VARIABLE, find_config
from lakehouse_maintenance.config.reading import read_document
from lakehouse_maintenance.model.errors import ConfigurationError

_logger = logging.getLogger(__name__)


def checked_path(path: str | Path | None) -> str | None:
    """The absolute path of the configuration, whose content was checked.

    None where nobody named a file and the working directory has none: the definitions still load, so that a fresh
    checkout opens, and each run says what is missing. Raises DagsterInvalidDefinitionError for everything else.
    """
    try:
        if path is None and not os.environ.get(VARIABLE) and not _is_in_working_directory():
            _logger.warning(
                "there is no lakehouse.yaml in %s yet: write one with lakehouse-maintenance init", Path.cwd()
            )
            return None
        file = find_config(path, os.environ)
        _check(file)
    except ConfigurationError as error:
        # `from None`: a chain of tracebacks would hide the one line that matters.
        raise dg.DagsterInvalidDefinitionError(told(error)) from None
    return str(file)


def told(error: ConfigurationError) -> str:
    """Message, key and hint, for people."""
    hint = f"\nHint: {error.hint}" if error.hint else ""
    return f"{error.message}{hint}"


def _is_in_working_directory() -> bool:
    try:
        find_config(None, {})
    except ConfigurationError:
        return False
    return True


def _check(file: Path) -> None:
    """As a run would load it, but that variables without a value count as empty text.

    Code servers need not hold the credentials that runs have. Where a value that does not fit comes from such a
    variable, the error names the variable.
    """
    unset = {problem.field for problem in substitute(read_document(file).data, os.environ).problems}
    try:
        _load(file, _Lenient(os.environ) if unset else os.environ)
    except ConfigurationError as error:
        if error.field not in unset:
            raise
        load_config(file)
        raise
    if unset:
        keys = ", ".join(sorted(str(key) for key in unset))
        _logger.warning("%s: variables are not set here, and runs need them: %s", file, keys)


def _load(file: Path, environment: Mapping[str, str]) -> LakehouseConfig:
    return load_config(file, environment=environment)


class _Lenient(Mapping[str, str]):
    """Variables, of which those that are not set are empty."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def __getitem__(self, name: str) -> str:
        return self._variables.get(name, "")

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)
