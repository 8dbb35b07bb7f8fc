"""The tables of a state in PostgreSQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection, Executable, Table

_RIGHTS = {"layout": ("SELECT",), "key_values": ("SELECT", "INSERT", "UPDATE"), "journal": ("SELECT", "INSERT")}


@dataclass(frozen=True)
class Tables:
    """In one schema, whose name is quoted wherever it stands."""

    schema: str
    layout: Table
    key_values: Table
    journal: Table

    @classmethod
    def of(cls, schema: str) -> Tables:
        """Their definitions. No I/O."""
        import sqlalchemy as sa

        metadata = sa.MetaData(schema=schema)
        name = sa.Text(collation="C")
        return cls(
            schema,
            sa.Table(
                "layout",
                metadata,
                sa.Column("id", sa.SmallInteger, sa.CheckConstraint("id = 1"), primary_key=True, autoincrement=False),
                sa.Column("version", sa.Integer, nullable=False),
            ),
            sa.Table(
                "key_values",
                metadata,
                sa.Column("name", name, primary_key=True),
                sa.Column("key", sa.LargeBinary, nullable=False),
                sa.Column("version", sa.Text, nullable=False),
                sa.Column("trail", sa.Text, nullable=False),
                sa.Column("value", sa.LargeBinary, nullable=False),
            ),
            sa.Table(
                "journal",
                metadata,
                sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
                sa.Column("entry", sa.Uuid, nullable=False, unique=True),
                sa.Column("day", name, nullable=False),
                sa.Column("run", name, nullable=False),
                sa.Column(
                    "written", sa.DateTime(timezone=True), server_default=sa.func.clock_timestamp(), nullable=False
                ),
                sa.Column("line", sa.LargeBinary, nullable=False),
                sa.Index("journal_day", "day", "id"),
                sa.Index("journal_run", "run", "id"),
            ),
        )

    def quoted(self, table: str) -> str:
        """`"schema"."table"`."""
        schema = self.schema.replace('"', '""')
        return f'"{schema}"."{table}"'

    def exist(self, connection: Connection) -> bool:
        """Whether the layout is there; it is created in one transaction, so one table tells."""
        import sqlalchemy as sa

        return connection.execute(sa.select(sa.func.to_regclass(self.quoted("layout")))).scalar_one() is not None

    def create(self, connection: Connection) -> None:
        """What is missing. The schema only where it is not there: else no right to create one is needed."""
        import sqlalchemy as sa

        known = sa.text("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = :name")
        if connection.execute(known, {"name": self.schema}).scalar_one_or_none() is None:
            connection.execute(sa.schema.CreateSchema(self.schema))
        self.layout.metadata.create_all(connection)

    def rights_query(self, *, exists: bool, migrates: bool) -> Executable:
        """Selects what the user may not do and needs to, as text: to use the tables, to bring their layout up to date,
        or to create them."""
        import sqlalchemy as sa

        if not exists:
            return sa.text(
                "SELECT CASE WHEN n.oid IS NULL THEN 'CREATE on the database' ELSE 'CREATE on the schema' END"
                " FROM (SELECT 1) one LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = :name WHERE NOT"
                " CASE WHEN n.oid IS NULL THEN has_database_privilege(current_database(), 'CREATE')"
                " ELSE has_schema_privilege(n.oid, 'CREATE') AND has_schema_privilege(n.oid, 'USAGE') END"
            ).bindparams(name=self.schema)
        wanted = [(table, right) for table, rights in _RIGHTS.items() for right in rights]
        wanted += [("layout", "UPDATE")] if migrates else []
        checks = [
            sa.select(sa.literal(f"{right} on {table}")).where(
                sa.not_(sa.func.has_table_privilege(self.quoted(table), right))
            )
            for table, right in wanted
        ]
        return sa.union_all(*checks)
