"""Finding and loading `lakehouse.yaml`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lakehouse_maintenance.config.checks import problems
from lakehouse_maintenance.config.environment import substitute
from lakehouse_maintenance.config.models import LakehouseConfig
from lakehouse_maintenance.config.paths import resolved
from lakehouse_maintenance.config.problems import combined, problems_of
from lakehouse_maintenance.config.reading import Document, read_document
from lakehouse_maintenance.model.errors import ConfigurationError

FILE_NAME = "lakehouse.yaml"
VARIABLE = "LAKEHOUSE_MAINTENANCE_CONFIG"


def load_config(path: str | Path | None = None, *, environment: Mapping[str, str] | None = None) -> LakehouseConfig:
    """The configuration at `path`, else where LAKEHOUSE_MAINTENANCE_CONFIG points, else in the working directory.

    `environment`: what `${NAME}` is read from; the process's own by default. Raises ConfigurationError that tells
    everything found wrong; its `field` is the dotted key of the first.
    """
    variables = os.environ if environment is None else environment
    file = find_config(path, variables)
    return _config(read_document(file), str(file), file, file.parent, variables)


def config_from_mapping(
    data: Mapping[str, Any], *, base: str | Path | None = None, environment: Mapping[str, str] | None = None
) -> LakehouseConfig:
    """The configuration that a mapping with the file's keys holds, without a file; paths start from `base`."""
    folder = Path.cwd() if base is None else Path(base).absolute()
    variables = os.environ if environment is None else environment
    return _config(Document(dict(data)), "the configuration", None, folder, variables)


def find_config(path: str | Path | None, environment: Mapping[str, str]) -> Path:
    """The absolute path of the file in use. Raises ConfigurationError where there is none."""
    named = environment.get(VARIABLE) or None
    if path is not None:
        file, source = Path(path), "--config"
    elif named is not None:
        file, source = Path(named), VARIABLE
    else:
        file, source = Path(FILE_NAME), "the working directory"
    file = file.expanduser().absolute()
    if file.is_dir():
        raise ConfigurationError(
            f"{file} is a folder", field="config", hint=f"name the file itself, such as {file / FILE_NAME}"
        )
    if not file.exists():
        raise ConfigurationError(
            f"there is no configuration at {file} (from {source})",
            field="config",
            hint="write one with: lakehouse-maintenance init --catalog NAME --property k=v",
        )
    return file


def _config(
    document: Document, name: str, file: Path | None, base: Path, environment: Mapping[str, str]
) -> LakehouseConfig:
    filled = substitute(document.data, environment)
    if filled.problems:
        raise combined(filled.problems, name, document.lines)
    try:
        config = LakehouseConfig.model_validate(filled.data)
    except ValidationError as error:
        # `from None`: pydantic's own error holds the inputs, and a traceback would print its chain.
        raise combined(problems_of(error, filled.data, filled.variables), name, document.lines) from None
    found = problems(config)
    if found:
        raise combined(found, name, document.lines)
    config = resolved(config, base)
    config._path = file
    config._base = base
    return config
