"""Writes an Iceberg equality delete through Spark's Java process: SQL never writes one, streaming engines do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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

    `partition`: its values in the order of the current spec; None for an unpartitioned table.
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
        record = iceberg.data.GenericRecord.create(key_schema)
        for key in keys:
            value = row[key]
            is_long = schema.findField(key).type().toString() == "long"
            record.setField(key, _JavaLong(value) if is_long and isinstance(value, int) else value)
        writer.write(record)
    writer.close()
    opened.newRowDelta().addDeletes(writer.toDeleteFile()).commit()
