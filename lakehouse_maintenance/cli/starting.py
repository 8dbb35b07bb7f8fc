"""`init`: a `lakehouse.yaml` for one catalog, after its connection was tried."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakehouse_maintenance.cli import rendering
from lakehouse_maintenance.cli.requests import pairs
from lakehouse_maintenance.cli.session import Session
from lakehouse_maintenance.model.errors import CatalogUnavailableError, ConfigurationError, InputError
from lakehouse_maintenance.model.listing import Incomplete
from lakehouse_maintenance.model.names import quote_part

if TYPE_CHECKING:
    from lakehouse_maintenance.config import Scaffold


def start(session: Session, catalog: str, property_texts: Sequence[str]) -> int:
    """Writes the file where the other verbs look for it. Nothing is written unless the catalog answers.

    Values are written as in the file: `${NAME}` takes an environment variable and stays a reference, `$${` is a
    plain `${`. Relative paths start from the working directory, as on any command line.
    """
    if not catalog.strip():
        raise InputError("--catalog is empty", field="--catalog", hint="name it as tables shall be called")
    path = _new_file(session.config)
    given = pairs(property_texts, "--property")
    written = {**_known(catalog), **given}
    if not written:
        raise InputError(
            f"there is no --property, and PyIceberg's own configuration knows no catalog {catalog}",
            field="--property",
            hint="write PyIceberg's properties: --property type=sql --property uri=sqlite:///catalog.db "
            "--property warehouse=file:///data/warehouse",
        )
    properties = _resolved(session, catalog, written)
    databases = _databases(catalog, properties)
    scaffold = _scaffold(catalog, written, properties, databases, path)
    _write(path, scaffold.text)
    here = "" if path == Path("lakehouse.yaml").absolute() else f" --config {shlex.quote(str(path))}"
    data: dict[str, Any] = {
        "config": str(path),
        "catalog": catalog,
        "databases": databases,
        "environment": [*scaffold.environment],
        "next": [f"lakehouse-maintenance{here} {verb}" for verb in ("doctor", "health", "plan", "maintain")],
    }
    session.show(data, rendering.started)
    return 0


def _new_file(config: str | Path | None) -> Path:
    from lakehouse_maintenance.config.loader import FILE_NAME, VARIABLE

    path = Path(config or os.environ.get(VARIABLE) or FILE_NAME).expanduser().absolute()
    if path.exists():
        raise ConfigurationError(
            f"{path} exists: it is never overwritten",
            field="config",
            hint="name another file with --config, or add the catalog to this one by hand",
        )
    if not path.parent.is_dir():
        raise ConfigurationError(f"there is no folder {path.parent}", field="config", hint="create it first")
    return path


def _known(catalog: str) -> dict[str, str]:
    """What PyIceberg's own configuration (its file, its environment variables) says, as it is written in ours."""
    from lakehouse_maintenance.catalogs import known_properties
    from lakehouse_maintenance.config.environment import escape

    return {key: escape(value) for key, value in known_properties(catalog).items()}


def _resolved(session: Session, catalog: str, written: Mapping[str, str]) -> dict[str, str]:
    """Properties with references filled in and paths made absolute; their secrets are masked from here on."""
    from lakehouse_maintenance.config import config_from_mapping

    config = config_from_mapping({"catalogs": {catalog: dict(written)}}, base=Path.cwd())
    session.hide(config.masker)
    return {key: str(value) for key, value in config.catalogs[catalog].properties().items()}


def _databases(catalog: str, properties: Mapping[str, str]) -> list[str]:
    from lakehouse_maintenance.catalogs import open_catalog

    opened = open_catalog(catalog, properties)
    listed = opened.databases()
    if isinstance(listed, Incomplete):
        raise CatalogUnavailableError(
            listed.why, field=f"catalogs.{catalog}.uri", hint="check address, credentials and permissions"
        )
    others = () if listed.items else opened.other_names()
    if others:
        raise CatalogUnavailableError(
            f"there are no databases of a catalog {catalog} there, and tables of {', '.join(others)}",
            field="--catalog",
            hint=f"a SQL catalog goes by the name that its writer gave it: --catalog {others[0]}",
        )
    return [".".join(quote_part(part) for part in namespace) for namespace in listed.items]


def _scaffold(
    catalog: str, written: Mapping[str, str], properties: Mapping[str, str], databases: Sequence[str], path: Path
) -> Scaffold:
    """The file's text, tried out: it loads, and gives the very properties that the connection was tried with."""
    from lakehouse_maintenance.config import config_from_mapping, render_config
    from lakehouse_maintenance.config.reading import parse_document

    is_here = path.parent == Path.cwd()
    references = {key: text for key, text in written.items() if "${" in text.replace("$${", "")}
    plain = {key: text.replace("$${", "${") for key, text in written.items()}
    scaffold = render_config(
        catalog, plain if is_here else {**properties, **references}, databases, references=references
    )
    document = parse_document(scaffold.text, str(path))
    loaded = config_from_mapping(document.data, base=path.parent, environment={**os.environ, **scaffold.environment})
    found = {key: str(value) for key, value in loaded.catalogs[catalog].properties().items()}
    if found != properties:
        different = sorted(key for key in found.keys() | properties.keys() if found.get(key) != properties.get(key))
        raise InputError(
            f"the property {different[0]} would not mean the same in {path}",
            field=f"--property {different[0]}",
            hint="write an absolute path",
        )
    return scaffold


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror or error}", field="config", hint="name another with --config"
        ) from error
