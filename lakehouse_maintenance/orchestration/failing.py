"""From our errors to Dagster's failures: one description that says what and what to do, and whether to try again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import dagster as dg

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import CatalogUnavailableError, LakehouseError, NotFoundError, StorageError
from lakehouse_maintenance.orchestration.naming import meta

if TYPE_CHECKING:
    from lakehouse_maintenance.config import LakehouseConfig

Metadata = Mapping[str, dg.MetadataValue]


def failure(error: LakehouseError, config: LakehouseConfig | None = None) -> dg.Failure:
    """The failure for an error. Only what may pass by itself is left to a retry policy: stores and catalogs."""
    text = f"{error.message} ({error.hint})" if error.hint else error.message
    passing = isinstance(error, StorageError | CatalogUnavailableError) and not isinstance(error, NotFoundError)
    return failed(text, Status.FAILED, config, {meta("error"): dg.MetadataValue.text(error.code)}, retry=passing)


def failed(
    text: str, status: Status, config: LakehouseConfig | None, metadata: Metadata | None = None, *, retry: bool = False
) -> dg.Failure:
    """A failure with the status in its metadata. `config`: its secrets are taken out of the text."""
    return dg.Failure(
        description=text if config is None else config.masker.mask(text),
        metadata={**(metadata or {}), meta("status"): dg.MetadataValue.text(status.value)},
        allow_retries=retry,
    )
