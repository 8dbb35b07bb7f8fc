"""Row lineage of format version 3 through a rewrite (Iceberg spec: Row Lineage).

A row keeps its id and the number of the commit that last changed it. Neither is stored where a file is first written:
readers inherit them from the file's place in the table. A rewrite moves rows, so its outputs hold both as columns of
their own. Rows of files from before the upgrade to version 3 have neither: their columns stay null, and the commit
gives them ids.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_maintenance.engines.embedded_iceberg.schema import LAST_UPDATED_ID, ROW_ID
from lakehouse_maintenance.model.errors import UnsupportedError
from lakehouse_maintenance.model.files import LiveFile

_COLUMNS = tuple(
    pa.field(name, pa.int64(), metadata={b"PARQUET:field_id": str(field_id).encode()})
    for name, field_id in (("_row_id", ROW_ID), ("_last_updated_sequence_number", LAST_UPDATED_ID))
)


def with_lineage(schema: pa.Schema, table: str) -> pa.Schema:
    """The schema with the two columns after its own. Raises UnsupportedError where a column has such a name."""
    for column in _COLUMNS:
        if column.name in schema.names:
            raise UnsupportedError(
                f"the table has a column {column.name}, a name that row lineage needs in its files",
                field=table,
                hint="rename the column",
            )
    return pa.schema([*schema, *_COLUMNS])


def filled(batch: pa.RecordBatch, file: LiveFile, start: int) -> pa.RecordBatch:
    """The batch with what its rows inherit in the two columns, which are its last.

    The batch holds the file's rows from position `start` on, deleted ones too: they take ids as the others do.
    A value that stands in the file counts. Without a first row id of the file both are null, whatever stands there.
    """
    rows = batch.num_rows
    own = batch.columns[:-2]
    ids, updated = batch.columns[-2:]
    if file.first_row_id is None:
        return pa.RecordBatch.from_arrays([*own, *(pa.nulls(rows, pa.int64()) for _ in _COLUMNS)], schema=batch.schema)
    first = file.first_row_id + start
    ids = pc.coalesce(ids, pa.array(np.arange(first, first + rows, dtype=np.int64)))
    # The data sequence number: of an output of a rewrite, that of the rows it holds.
    updated = pc.coalesce(updated, pa.scalar(file.sequence_number, pa.int64()))
    return pa.RecordBatch.from_arrays([*own, ids, updated], schema=batch.schema)
