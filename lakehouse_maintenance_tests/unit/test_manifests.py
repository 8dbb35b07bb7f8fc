"""Manifests that are damaged in ways that Avro does not notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse_maintenance.iceberg.manifests import ManifestReader
from lakehouse_maintenance.iceberg.metadata import read_metadata
from lakehouse_maintenance.model.errors import TableUnreadableError
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance_tests.engine.tables import many_small_files
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory


def test_a_manifest_cut_between_two_blocks_is_damaged(sql_catalog: SqlCatalogFactory) -> None:
    catalog, properties = sql_catalog()
    table = many_small_files(catalog, commits=1)
    storage = Storage.from_properties(properties)
    metadata = read_metadata(storage, "db.t", table.metadata_location)
    head = metadata.head()
    assert head is not None
    manifest = ManifestReader(storage, "db.t").manifests(head)[0]
    path = Path(manifest.path.removeprefix("file://"))
    whole = path.read_bytes()
    sync = whole[-16:]
    blocks = whole.count(sync)
    assert blocks == 3, "the header and one block an entry, as PyIceberg writes them"
    path.write_bytes(whole[: whole.rfind(sync, 0, -16) + 16])
    with pytest.raises(TableUnreadableError, match="holds 1 live files, and its manifest list counts 2"):
        list(ManifestReader(storage, "db.t").live_files([manifest]))
    with pytest.raises(TableUnreadableError, match="counts 2"):
        ManifestReader(storage, "db.t").entries(manifest)
