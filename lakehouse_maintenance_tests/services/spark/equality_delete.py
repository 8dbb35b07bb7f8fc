"""Writes an Iceberg equality delete through Spark's Java process: SQL never writes one, streaming engines do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from lakehouse_maintenance_tests.services.spark.session import Spark


class _JavaLong(int):
    """py4j sends an int that fits 32 bits as java.lang.Integer, which a bigint key refuses.

    It finds out by asking `value <= 2**31 - 1`; answering no makes it send a Long.
    """

    def __le__(self, other: object) -> bool:
        return False


def write_equality_delete(
    spark: Spark,
    table: str,
    keys: Sequence[str],
    rows: Sequence[Mapping[str, object]],
    partition: Sequence[object] | None = None,
) -> None:
    """Commits one equality delete file of `keys` with `rows` to an Iceberg table given in Spark's quoting.

    `keys`: full names; a row has structs as mappings. `partition`: its values in the order of the current spec; None
    for an unpartitioned table.
    """
    java = spark.java
    iceberg = java.org.apache.iceberg
    opened = iceberg.spark.Spark3Util.loadIcebergTable(spark.session._jsparkSession, table)
    schema, spec = opened.schema(), opened.spec()
    names = java.java.util.ArrayList()
    for key in keys:
        names.add(key)
    key_schema = schema.select(names)
    ids = spark.session.sparkContext._gateway.new_array(java.int, len(keys))
    for position, key in enumerate(keys):
        ids[position] = schema.findField(key).fieldId()
    values = None
    if partition is not None:
        values = iceberg.PartitionData(spec.partitionType())
        for position, value in enumerate(partition):
            values.put(position, value)

    parquet = iceberg.FileFormat.PARQUET
    files = iceberg.io.OutputFileFactory.builderFor(opened, 1, 1).format(parquet).suffix("eq-deletes").build()
    output = files.newOutputFile() if values is None else files.newOutputFile(spec, values)
    builder = iceberg.data.GenericFileWriterFactory.Builder(opened).dataFileFormat(parquet).deleteFileFormat(parquet)
    factory = builder.equalityFieldIds(ids).equalityDeleteRowSchema(key_schema).build()
    writer = factory.newEqualityDeleteWriter(output, spec, values)
    for row in rows:
        writer.write(_record(java, key_schema.asStruct(), row))
    writer.close()
    opened.newRowDelta().addDeletes(writer.toDeleteFile()).commit()


def _record(java: Any, struct: Any, row: Mapping[str, object]) -> Any:
    record = java.org.apache.iceberg.data.GenericRecord.create(struct)
    for field in struct.fields():
        record.setField(field.name(), _value(java, field.type(), row[field.name()]))
    return record


def _value(java: Any, kind: Any, value: object) -> object:
    """As Iceberg's generic writers take it; py4j has no way to send a float."""
    name = kind.toString()
    if isinstance(value, Mapping):
        return _record(java, kind.asStructType(), value)
    if isinstance(value, int) and name == "long":
        return _JavaLong(value)
    if isinstance(value, Decimal):
        return java.java.math.BigDecimal(str(value))
    if isinstance(value, datetime):
        times = java.java.time
        zoned = value.tzinfo is not None
        return times.OffsetDateTime.parse(value.isoformat()) if zoned else times.LocalDateTime.parse(value.isoformat())
    if isinstance(value, date):
        return java.java.time.LocalDate.parse(value.isoformat())
    if isinstance(value, time):
        return java.java.time.LocalTime.parse(value.isoformat())
    if isinstance(value, UUID):
        return java.java.util.UUID.fromString(str(value))
    if isinstance(value, bytes):
        return bytearray(value) if name.startswith("fixed") else java.java.nio.ByteBuffer.wrap(bytearray(value))
    return value
