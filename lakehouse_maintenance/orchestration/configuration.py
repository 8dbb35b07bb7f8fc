"""Checking `lakehouse.yaml` when Dagster loads: what is wrong is said at once, and no credential has to be there."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import dagster as dg

from lakehouse_maintenance.config import LakehouseConfig, load_config
from lakehouse_maintenance.config.environment import substitute
from lakehouse_maintenance.config.loader import VARIABLE, find_config
from lakehouse_maintenance.config.reading import read_document
from lakehouse_maintenance.model.errors import ConfigurationError

_logger = logging.getLogger(__name__)

_STAND_IN = "not-set"


def checked_config(path: str | Path | None) -> LakehouseConfig | None:
    """The configuration, checked: its `path` is absolute, and texts stand in for variables that are not set.

    None where nobody named a file and the working directory has none: the definitions still load, so that a fresh
    checkout opens, and each run says what is missing. Raises DagsterInvalidDefinitionError for everything else.
    """
    try:
        if path is None and not os.environ.get(VARIABLE) and not _is_in_working_directory():
            _logger.warning("no lakehouse.yaml in %s: write one with lakehouse-maintenance init", Path.cwd())
            return None
        return _check(find_config(path, os.environ))
    except ConfigurationError as error:
        # `from None`: a chain of tracebacks would hide the one line that matters.
        raise dg.DagsterInvalidDefinitionError(told(error)) from None


def told(error: ConfigurationError) -> str:
    """Message and hint, for people; the message names the key."""
    if not error.hint or error.hint in error.message:
        return error.message
    return f"{error.message}\nHint: {error.hint}"


def _is_in_working_directory() -> bool:
    try:
        find_config(None, {})
    except ConfigurationError:
        return False
    return True


def _check(file: Path) -> LakehouseConfig:
    """As a run would load it, but with a text in place of each variable that is not set.

    Code servers need not hold the credentials that runs have. Where a key that such a variable fills is wrong with
    that text, a number for example, the error names the variable. So it does where assets are named after it.
    """
    filled = substitute(read_document(file).data, os.environ)
    unset = {problem.field for problem in filled.problems}
    if not unset or any(field.partition(".")[0] == "databases" for field in unset if field):
        return load_config(file)
    names = {name for path, names in filled.variables.items() if _dotted(path) in unset for name in names}
    try:
        config = load_config(file, environment={**dict.fromkeys(names, _STAND_IN), **os.environ})
    except ConfigurationError as error:
        if error.field in unset:
            load_config(file)
        raise
    _logger.warning("%s: not set here, and needed by runs: %s", file, ", ".join(sorted(names - os.environ.keys())))
    return config


def _dotted(path: tuple[str | int, ...]) -> str:
    return ".".join(str(part) for part in path)
