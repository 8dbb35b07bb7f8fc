"""Metadata of format version 3 where PyIceberg writes it in this process.

PyIceberg 0.12 reads, changes and checks such metadata, and refuses only to write it. One opened catalog object is
taught to; PyIceberg itself stays as it is. What its models do not know would be lost without a word, so that nobody
may commit without the comparison of `iceberg.lossless`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as PyIcebergCatalog
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata


def teach(inner: PyIcebergCatalog) -> bool:
    """Makes this catalog write metadata of version 3; False, and nothing done, where it has other ways of writing."""
    from pyiceberg.catalog import MetastoreCatalog

    if not isinstance(inner, MetastoreCatalog) or type(inner)._write_metadata is not MetastoreCatalog._write_metadata:
        return False
    taught: Any = inner
    taught._write_metadata = write_metadata
    if hasattr(taught, "_write_metadata_no_exist_check"):
        # Glue, for S3 Tables: its storage has no listing, by which PyIceberg asks whether a file exists.
        taught._write_metadata_no_exist_check = _write_over
    return True


def write_metadata(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
    """Writes a new metadata file, of any version, as PyIceberg does. Raises ValueError without `next-row-id`."""
    _write(metadata, io, metadata_path, overwrite=False)


def _write_over(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
    _write(metadata, io, metadata_path, overwrite=True)


def _write(metadata: TableMetadata, io: FileIO, metadata_path: str, *, overwrite: bool) -> None:
    from pyiceberg.serializers import ToOutputFile

    document: Any = metadata
    if metadata.format_version >= 3:
        if getattr(metadata, "next_row_id", None) is None:
            # Nothing is written yet: the catalog refuses, and the table is as it was.
            raise ValueError("metadata of format version 3 needs next-row-id")
        document = _Document(metadata)
    ToOutputFile.table_metadata(document, io.new_output(metadata_path), overwrite=overwrite)


class _Document:
    """Metadata as PyIceberg's writer asks for it, with the serialisation that all its models have."""

    def __init__(self, metadata: TableMetadata) -> None:
        self._metadata = metadata

    def model_dump_json(self, exclude_none: bool = True) -> str:
        from pyiceberg.typedef import IcebergBaseModel

        return IcebergBaseModel.model_dump_json(self._metadata, exclude_none=exclude_none)
