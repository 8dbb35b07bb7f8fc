"""The statements that write each golden table, as Spark runs them.

Each function gets a Spark whose catalog `golden` is attached and the table's full name, and leaves the table written.
Values depend on nothing but the statements; snapshot ids, file names and times differ between two runs.
"""

from __future__ import annotations

from lakehouse_maintenance_tests.services.spark.equality_delete import write_equality_delete
from lakehouse_maintenance_tests.services.spark.session import Spark


def v1_events(spark: Spark, name: str) -> None:
    spark.sql(
        f"""CREATE TABLE {name} (
          id BIGINT, ts TIMESTAMP, kind STRING,
          payload STRUCT<device: STRING, position: STRUCT<lat: DOUBLE, lon: DOUBLE>>,
          tags ARRAY<STRING>, attributes MAP<STRING, BIGINT>,
          amount DECIMAL(12, 2), raw BINARY, score FLOAT, value DOUBLE, note STRING, nothing STRING)
        USING iceberg PARTITIONED BY (days(ts), kind) TBLPROPERTIES ('format-version' = '1')"""
    )
    for insert in range(12):
        first = insert * 10
        spark.sql(
            f"""INSERT INTO {name} SELECT id,
              TIMESTAMP '2024-03-01 22:00:00' + make_interval(0, 0, 0, 0, CAST(id AS INT)),
              element_at(array('click', 'view', 'sign up', CAST(NULL AS STRING)),
                         CAST(CASE WHEN id % 10 < 5 THEN 1 WHEN id % 10 < 8 THEN 2 ELSE 3 + {insert} % 2 END AS INT)),
              IF(id % 7 = 0, NULL, named_struct('device', concat('d', id % 3), 'position',
                 IF(id % 5 = 0, NULL, named_struct('lat', id / 3, 'lon', -id / 7)))),
              IF(id % 4 = 0, NULL, array('a', CAST(NULL AS STRING), CAST(id AS STRING))),
              IF(id % 6 = 0, NULL, map('x', id, concat('k', id % 4), NULL)),
              CAST(id * 1.25 - 20 AS DECIMAL(12, 2)), CAST(concat('raw', id) AS BINARY),
              CASE WHEN id % 9 = 0 THEN CAST('NaN' AS FLOAT) ELSE CAST(id / 3 AS FLOAT) END,
              CASE WHEN id % 11 = 0 THEN CAST('NaN' AS DOUBLE) WHEN id % 13 = 0 THEN -0.0D ELSE id / 7 END,
              IF(id % 10 = 1, concat('note ', id), NULL), NULL
            FROM range({first}, {first + 10}, 1, 1)"""
        )


def v1_respec(spark: Spark, name: str) -> None:
    spark.sql(
        f"""CREATE TABLE {name} (id BIGINT, kind STRING, day DATE) USING iceberg
        PARTITIONED BY (kind, day) TBLPROPERTIES ('format-version' = '1')"""
    )
    columns = "id, concat('k', id % 2), DATE '2024-01-01'"
    for first in (0, 10, 20):
        spark.sql(f"INSERT INTO {name} SELECT {columns} FROM range({first}, {first + 10}, 1, 1)")
    spark.sql(f"ALTER TABLE {name} DROP PARTITION FIELD kind")
    for first in (30, 40, 50):
        spark.sql(f"INSERT INTO {name} SELECT {columns} FROM range({first}, {first + 10}, 1, 1)")
    spark.sql(f"DELETE FROM {name} WHERE id = 35")


def v2_mor(spark: Spark, name: str) -> None:
    spark.sql(
        f"""CREATE TABLE {name} (id BIGINT, category STRING, amount DECIMAL(10, 2), at TIMESTAMP)
        USING iceberg PARTITIONED BY (bucket(2, id)) TBLPROPERTIES ('format-version' = '2',
          'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read',
          'write.merge.mode' = 'merge-on-read', 'write.delete.granularity' = 'partition')"""
    )

    def insert(first: int) -> None:
        spark.sql(
            f"""INSERT INTO {name} SELECT id, concat('c', id % 3), CAST(id * 0.5 AS DECIMAL(10, 2)),
              TIMESTAMP '2024-05-01 00:00:00' + make_interval(0, 0, 0, 0, 0, CAST(id AS INT))
            FROM range({first}, {first + 20}, 1, 1)"""
        )

    for first in range(0, 160, 20):
        insert(first)
    spark.sql(f"DELETE FROM {name} WHERE id % 10 = 3")
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.granularity' = 'file')")
    spark.sql(f"DELETE FROM {name} WHERE id % 10 = 4 AND id < 100")
    spark.sql(f"UPDATE {name} SET category = 'updated', amount = amount + 1 WHERE id % 25 = 7")
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.granularity' = 'partition')")
    spark.sql(
        f"""MERGE INTO {name} t USING (SELECT id * 30 AS id, CAST(id AS INT) % 2 = 0 AS gone FROM range(0, 8)) s
        ON t.id = s.id WHEN MATCHED AND s.gone THEN DELETE WHEN MATCHED THEN UPDATE SET category = 'merged'
        WHEN NOT MATCHED THEN INSERT (id, category, amount, at) VALUES (s.id, 'new', NULL, NULL)"""
    )
    insert(300)


def v2_evolved(spark: Spark, name: str) -> None:
    spark.sql(
        f"""CREATE TABLE {name} (id INT, region STRING, ratio FLOAT, price DECIMAL(9, 2), note STRING, code STRING,
          st STRUCT<a: INT, b: STRING, n: STRUCT<p: FLOAT, q: INT>>,
          items ARRAY<STRUCT<x: INT, y: STRING>>, lookup MAP<STRING, STRUCT<k: INT, w: DOUBLE>>)
        USING iceberg TBLPROPERTIES ('format-version' = '2', 'write.delete.mode' = 'merge-on-read',
          'write.metadata.compression-codec' = 'gzip')"""
    )
    for first in (0, 10):
        spark.sql(
            f"""INSERT INTO {name} SELECT CAST(id AS INT), concat('r', id % 2), CAST(id / 3 AS FLOAT), 1.25,
              concat('old ', id), concat('code-', id),
              IF(id % 7 = 0, NULL, named_struct('a', CAST(id AS INT), 'b', IF(id % 5 = 0, NULL, 'b'),
                'n', IF(id % 3 = 0, NULL, named_struct('p', CAST(id AS FLOAT), 'q', 1)))),
              array(named_struct('x', CAST(id AS INT), 'y', 'y'), NULL),
              map('u', named_struct('k', 1, 'w', 0.5D), CAST(id AS STRING), NULL)
            FROM range({first}, {first + 10}, 1, 1)"""
        )
    for change in (
        "ALTER COLUMN id TYPE BIGINT",
        "ALTER COLUMN ratio TYPE DOUBLE",
        "ALTER COLUMN price TYPE DECIMAL(18, 2)",
        "DROP COLUMN note",
        "RENAME COLUMN code TO label",
        "ALTER COLUMN label FIRST",
        "ADD COLUMN st.c STRING",
        "DROP COLUMN st.b",
        "ALTER COLUMN st.n.p TYPE DOUBLE",
        "ADD COLUMN items.element.z INT FIRST",
        "RENAME COLUMN items.element.x TO xx",
        "ADD COLUMN lookup.value.extra STRUCT<o: INT>",
        "ADD PARTITION FIELD region",
    ):
        spark.sql(f"ALTER TABLE {name} {change}")

    def insert(first: int, note: str) -> None:
        spark.sql(
            f"""INSERT INTO {name} SELECT concat('label-', id), 5000000000 + id, concat('r', id % 2), id / 3,
              1234567890.5, named_struct('a', CAST(id AS INT), 'n', named_struct('p', id / 7, 'q', 2), 'c', 'c'),
              array(named_struct('z', 9, 'xx', CAST(id AS INT), 'y', 'y2')),
              map('v', named_struct('k', 2, 'w', 1.5D, 'extra', named_struct('o', 3))) {note}
            FROM range({first}, {first + 10}, 1, 1)"""
        )

    insert(20, "")
    spark.sql(f"ALTER TABLE {name} ADD COLUMN note STRING")
    insert(30, ", concat('new ', id)")
    spark.sql(f"DELETE FROM {name} WHERE id IN (4, 5000000024)")
    spark.sql(f"ALTER TABLE {name} DROP PARTITION FIELD region")
    spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD truncate(7, label)")
    spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD bucket(2, id)")
    insert(40, ", NULL")
    insert(50, ", 'last'")


def v2_branches(spark: Spark, name: str) -> None:
    spark.sql(
        f"""CREATE TABLE {name} (id BIGINT, name STRING) USING iceberg
        TBLPROPERTIES ('format-version' = '2', 'write.delete.mode' = 'merge-on-read')"""
    )
    table = name.removeprefix("`golden`.")

    def insert(first: int, target: str = name) -> None:
        spark.sql(f"INSERT INTO {target} SELECT id, concat('n', id) FROM range({first}, {first + 10}, 1, 1)")

    def head() -> int:
        query = f"SELECT snapshot_id FROM {name}.refs WHERE name = 'main'"
        return int(spark.sql(query).collect()[0][0])

    for first in (0, 10, 20):
        insert(first)
    spark.sql(f"ALTER TABLE {name} CREATE TAG release RETAIN 30 DAYS")
    spark.sql(f"ALTER TABLE {name} CREATE BRANCH audit RETAIN 7 DAYS WITH SNAPSHOT RETENTION 2 SNAPSHOTS 3 DAYS")
    branch = f"{name}.branch_audit"
    insert(100, branch)
    insert(110, branch)
    spark.sql(f"DELETE FROM {branch} WHERE id = 1")
    insert(30)
    kept = head()
    insert(900)
    spark.sql(f"CALL golden.system.rollback_to_snapshot('{table}', {kept})")
    insert(40)
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    for wap_id, first in (("published", 50), ("staged", 800)):
        spark.session.conf.set("spark.wap.id", wap_id)
        insert(first)
        spark.session.conf.unset("spark.wap.id")
    spark.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('write.wap.enabled')")
    insert(60)
    spark.sql(f"CALL golden.system.publish_changes('{table}', 'published')")
    spark.sql(f"DELETE FROM {name} WHERE id % 20 = 5")


def v2_types(spark: Spark, name: str) -> None:
    spark.sql(
        f"""CREATE TABLE {name} (id INT, c_boolean BOOLEAN, c_int INT, c_long BIGINT, c_float FLOAT, c_double DOUBLE,
          c_decimal9 DECIMAL(9, 2), c_decimal18 DECIMAL(18, 3), c_decimal30 DECIMAL(30, 5),
          c_date DATE, c_timestamp TIMESTAMP, c_ntz TIMESTAMP_NTZ, c_string STRING, c_binary BINARY,
          c_list ARRAY<INT>, c_lists ARRAY<ARRAY<STRING>>, c_map MAP<STRING, INT>,
          c_maps MAP<INT, STRUCT<a: INT, b: ARRAY<DATE>>>, c_struct STRUCT<x: INT, y: STRUCT<z: STRING, t: TIMESTAMP>>,
          c_structs ARRAY<STRUCT<k: STRING, v: DECIMAL(9, 2)>>, c_deep MAP<STRING, ARRAY<MAP<INT, BINARY>>>)
        USING iceberg TBLPROPERTIES ('format-version' = '2')"""
    )

    def insert_ordinary(first: int) -> None:
        spark.sql(
            f"""INSERT INTO {name} SELECT CAST(id AS INT), id % 2 = 0, CAST(id AS INT), id * 10000000000,
              CAST(id / 3 AS FLOAT), id / 7, CAST(id / 4 AS DECIMAL(9, 2)), CAST(id / 8 AS DECIMAL(18, 3)),
              CAST(-id / 16 AS DECIMAL(30, 5)),
              DATE '2024-02-28' + CAST(id AS INT),
              TIMESTAMP '2024-02-28 23:59:59.999999' + make_interval(0, 0, 0, CAST(id AS INT)),
              TIMESTAMP_NTZ '2024-03-31 02:30:00.000001' + make_interval(0, 0, 0, 0, CAST(id AS INT)), concat('s', id),
              CAST(concat('b', id) AS BINARY), sequence(0, CAST(id % 3 AS INT)),
              array(array('p', 'q'), array(CAST(id AS STRING))),
              map('k', CAST(id AS INT)), map(CAST(id AS INT), named_struct('a', 1, 'b', array(DATE '2020-01-01'))),
              named_struct('x', CAST(id AS INT), 'y', named_struct('z', 'z', 't', TIMESTAMP '2001-01-01 00:00:00')),
              array(named_struct('k', 'k', 'v', CAST(1.5 AS DECIMAL(9, 2)))), map('d', array(map(1, X'00FF')))
            FROM range({first}, {first + 5}, 1, 1)"""
        )

    insert_ordinary(0)
    spark.sql(f"INSERT INTO {name} (id) VALUES (100), (NULL)")
    spark.sql(
        f"""INSERT INTO {name} (id, c_int, c_long, c_float, c_double, c_decimal9, c_decimal18, c_decimal30, c_date,
          c_timestamp, c_ntz) VALUES
        (200, -2147483648, -9223372036854775808, CAST('-Infinity' AS FLOAT), CAST('-Infinity' AS DOUBLE), -9999999.99,
         -999999999999999.999, -9999999999999999999999999.99999, DATE '0001-01-01', TIMESTAMP '0001-01-01 00:00:00',
         TIMESTAMP_NTZ '0001-01-01 00:00:00'),
        (201, 2147483647, 9223372036854775807, CAST('Infinity' AS FLOAT), CAST('Infinity' AS DOUBLE), 9999999.99,
         999999999999999.999, 9999999999999999999999999.99999, DATE '9999-12-31',
         TIMESTAMP '9999-12-31 23:59:59.999999', TIMESTAMP_NTZ '9999-12-31 23:59:59.999999'),
        (202, 0, 0, CAST('NaN' AS FLOAT), CAST('NaN' AS DOUBLE), 0, 0, 0, DATE '1969-12-31',
         TIMESTAMP '1969-12-31 23:59:59.999999', TIMESTAMP_NTZ '1969-12-31 23:59:59.999999'),
        (203, 0, 0, CAST(-0.0D AS FLOAT), -0.0D, 0, 0, 0, DATE '1970-01-01', TIMESTAMP '1970-01-01 00:00:00',
         TIMESTAMP_NTZ '1970-01-01 00:00:00')"""
    )
    spark.sql(
        f"""INSERT INTO {name} (id, c_list, c_lists, c_map, c_maps, c_struct, c_structs, c_deep) VALUES
        (300, array(NULL, 1), array(NULL, array(NULL, 'x')), map('n', NULL), map(1, NULL),
         named_struct('x', NULL, 'y', NULL), array(NULL, named_struct('k', NULL, 'v', NULL)), map('n', NULL)),
        (301, NULL, array(array('x'), NULL), map('a', 1, 'b', NULL), map(2, named_struct('a', NULL, 'b', NULL)),
         named_struct('x', 1, 'y', named_struct('z', NULL, 't', NULL)), array(NULL),
         map('a', array(NULL, map(1, NULL, 2, X'')))),
        (302, array(NULL), NULL, NULL, map(3, named_struct('a', 3, 'b', array(NULL))), NULL, NULL, map('b', array()))"""
    )
    spark.sql(
        f"""INSERT INTO {name} (id, c_string, c_binary, c_list, c_lists, c_map, c_maps, c_structs, c_deep)
        VALUES (400, '', X'', array(), array(array()), map(), map(), array(), map())"""
    )
    spark.sql(
        f"INSERT INTO {name} (id, c_string, c_map) VALUES (500, 'äöü 漢字 🧊 \"quoted\" it''s', map('ключ', 1, '', 2))"
    )
    insert_ordinary(600)
    insert_ordinary(700)


def v2_required(spark: Spark, name: str) -> None:
    spark.sql(
        f"""CREATE TABLE {name} (id BIGINT NOT NULL, name STRING NOT NULL, region STRING,
          address STRUCT<street: STRING NOT NULL, zip: INT NOT NULL, door: STRING>,
          owner STRUCT<first: STRING NOT NULL, born: DATE> NOT NULL)
        USING iceberg PARTITIONED BY (region) TBLPROPERTIES ('format-version' = '2')"""
    )
    for first in range(0, 60, 10):
        spark.sql(
            f"""INSERT INTO {name} SELECT id, concat('name ', id),
              CASE CAST(id % 3 AS INT) WHEN 0 THEN NULL WHEN 1 THEN 'north east' ELSE 'a/b' END,
              IF(id % 4 = 0, NULL, named_struct('street', concat('s', id), 'zip', CAST(id AS INT), 'door', NULL)),
              named_struct('first', 'f', 'born', IF(id % 2 = 0, NULL, DATE '1980-02-29'))
            FROM range({first}, {first + 10}, 1, 1)"""
        )


def v3_dv(spark: Spark, name: str) -> None:
    spark.sql(
        f"""CREATE TABLE {name} (id BIGINT, category STRING, amount DOUBLE) USING iceberg PARTITIONED BY (category)
        TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read',
          'write.update.mode' = 'merge-on-read', 'write.merge.mode' = 'merge-on-read')"""
    )
    for first in range(0, 100, 20):
        spark.sql(
            f"""INSERT INTO {name} SELECT id, concat('c', id % 2), id / 3 FROM range({first}, {first + 20}, 1, 1)"""
        )
    spark.sql(f"DELETE FROM {name} WHERE id % 10 = 3")
    spark.sql(f"DELETE FROM {name} WHERE id % 10 = 6 AND id < 60")
    spark.sql(f"UPDATE {name} SET amount = -1 WHERE id % 20 = 11")


def v2_equality(spark: Spark, name: str) -> None:
    spark.sql(f"CREATE TABLE {name} (id BIGINT, category STRING) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    for first in (0, 10, 20, 30):
        spark.sql(f"INSERT INTO {name} SELECT id, concat('c', id % 2) FROM range({first}, {first + 10}, 1, 1)")
    write_equality_delete(spark, name.replace("`", ""), ["id"], [{"id": 3}, {"id": 14}, {"id": 27}])
    spark.sql(f"INSERT INTO {name} VALUES (14, 'again')")


def v2_statistics(spark: Spark, name: str) -> None:
    table = name.removeprefix("`golden`.")
    spark.sql(
        f"""CREATE TABLE {name} (id BIGINT, category STRING) USING iceberg PARTITIONED BY (category)
        TBLPROPERTIES ('format-version' = '2')"""
    )
    spark.sql(f"ALTER TABLE {name} WRITE ORDERED BY id")
    for round_ in range(2):
        for first in (0, 10):
            spark.sql(
                f"""INSERT INTO {name} SELECT id, concat('c', id % 2)
                FROM range({round_ * 20 + first}, {round_ * 20 + first + 10}, 1, 1)"""
            )
        spark.sql(f"CALL golden.system.compute_table_stats(table => '{table}')")
    spark.sql(f"CALL golden.system.compute_partition_stats(table => '{table}')")


def v2_formats(spark: Spark, name: str) -> None:
    spark.sql(f"CREATE TABLE {name} (id BIGINT, name STRING) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    for position, file_format in enumerate(("parquet", "avro", "orc", "parquet")):
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.format.default' = '{file_format}')")
        first = position * 10
        spark.sql(f"INSERT INTO {name} SELECT id, concat('n', id) FROM range({first}, {first + 10}, 1, 1)")


def orders(spark: Spark, name: str) -> None:
    spark.sql(
        f"""CREATE TABLE {name} (id BIGINT, day DATE, total DECIMAL(10, 2)) USING iceberg PARTITIONED BY (months(day))
        TBLPROPERTIES ('format-version' = '2', 'write.metadata.compression-codec' = 'gzip')"""
    )
    for first in (0, 10, 20):
        spark.sql(
            f"""INSERT INTO {name} SELECT id, DATE '2024-01-25' + CAST(id AS INT), CAST(id * 1.1 AS DECIMAL(10, 2))
            FROM range({first}, {first + 10}, 1, 1)"""
        )


def orders_2(spark: Spark, name: str) -> None:
    _two_inserts(spark, name, "'write.data.path' = 's3://golden/elsewhere/orders_2'")


def order_items(spark: Spark, name: str) -> None:
    _two_inserts(spark, name, "'write.object-storage.enabled' = 'true'")


def _two_inserts(spark: Spark, name: str, properties: str) -> None:
    spark.sql(
        f"""CREATE TABLE {name} (id BIGINT, name STRING) USING iceberg
        TBLPROPERTIES ('format-version' = '2', {properties})"""
    )
    for first in (0, 10):
        spark.sql(f"INSERT INTO {name} SELECT id, concat('n', id) FROM range({first}, {first + 10}, 1, 1)")
