"""`lakehouse.yaml` as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, PrivateAttr

from lakehouse_maintenance.config.base import Section, Url
from lakehouse_maintenance.config.connections import CatalogConfig, DeltaGroup, Source
from lakehouse_maintenance.config.merging import PolicyIndex
from lakehouse_maintenance.config.policies import Policies, Policy
from lakehouse_maintenance.config.secrets import Masker, property_secrets, texts_in, url_secrets
from lakehouse_maintenance.config.settings import (
    AuditSettings,
    EngineSettings,
    Jobs,
    Limits,
    Quarantine,
    Readers,
    SharedLocation,
    SparkSettings,
    StateSettings,
)
from lakehouse_maintenance.model.names import TableName, split_name


class LakehouseConfig(Section):
    """Everything that users write in `lakehouse.yaml`; made by `load_config`, with its paths resolved."""

    catalogs: dict[str, CatalogConfig] = Field(
        default_factory=dict,
        description="Catalogs by the name that tables are called by, with PyIceberg's properties, unchanged.",
        examples=[{"main": {"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": "file:///data/warehouse"}}],
    )
    databases: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="By catalog or Delta group, the databases that Dagster shows and sensors may touch; "
        '`["*"]`: all, for sensors and partitioned assets; per-database assets exist for written names only. Verbs '
        "take these where no table is named; where a catalog has no entry, verbs take all of it, and sensors nothing.",
        examples=[{"main": ["analytics", "sales"]}],
    )
    delta: dict[str, DeltaGroup] = Field(
        default_factory=dict,
        description="Groups of Delta tables by name.",
        examples=[{"lake": {"roots": ["s3://lake/delta/"]}}],
    )
    sources: dict[str, Source] = Field(
        default_factory=dict,
        description="Landing folders by name, whose processed files are moved or deleted.",
        examples=[{"clicks": {"path": "s3://landing/clicks/"}}],
    )
    engine: EngineSettings = Field(default_factory=EngineSettings, description="Who does the data work.")
    spark: SparkSettings = Field(default_factory=SparkSettings, description="The Spark session.")
    state: StateSettings = Field(default_factory=StateSettings, description="What the product remembers.")
    audit: AuditSettings = Field(default_factory=AuditSettings, description="The result tables.")
    jobs: Jobs = Field(default_factory=Jobs, description="The source jobs' own files.")
    readers: Readers = Field(default_factory=Readers, description="The reader window.")
    volumes: dict[str, Url] = Field(
        default_factory=dict,
        description="Object-storage URLs by the volume path that stands for them.",
        examples=[{"/Volumes/main/landing/clicks": "s3://landing/clicks"}],
    )
    quarantine: Quarantine = Field(default_factory=Quarantine, description="Where removed folders are kept.")
    limits: Limits = Field(default_factory=Limits, description="Limits for what a listing found in a table.")
    shared_locations: tuple[SharedLocation, ...] = Field(
        default=(),
        description="Pairs of tables that share a location on purpose, with whose files are whose.",
        examples=[
            [
                {
                    "tables": ["main.analytics.events", "main.analytics.events_copy"],
                    "files": {"main.analytics.events": ["s3://lake/analytics/events/data/"]},
                }
            ]
        ],
    )
    policies: Policies = Field(
        default_factory=Policies,
        description="When and how tables are maintained: default, then database, then table; the nearest wins, "
        "key by key. Where a policy sets nothing, the table's own property counts, then the format's default.",
    )

    _path: Path | None = PrivateAttr(default=None)
    _base: Path = PrivateAttr(default_factory=Path.cwd)

    @property
    def path(self) -> Path | None:
        """The file, absolute; None where the configuration was made in Python."""
        return self._path

    @property
    def base(self) -> Path:
        """The folder that relative paths start from: the file's, else the working directory."""
        return self._base

    @property
    def groups(self) -> tuple[str, ...]:
        """Every first part that a table's name can have: catalogs, then groups of Delta tables."""
        return (*self.catalogs, *self.delta)

    def policy_for(self, name: TableName) -> Policy:
        """The table's policy: default, database and table merged key by key."""
        return self.policy_index.of_table((name.catalog, *name.namespace, name.table))

    def policy_for_database(self, database: str) -> Policy:
        """The policy of `catalog.database`: default and database merged. Raises InputError where it is no name."""
        return self.policy_index.of_database(split_name(database))

    def masked(self) -> dict[str, Any]:
        """Everything in force, defaults included, as it stands in a file, with every secret as `***`."""
        return self.model_dump(mode="json", by_alias=True)

    def __str__(self) -> str:
        return repr(self)

    @cached_property
    def masker(self) -> Masker:
        """Takes this configuration's secrets out of any text."""
        return Masker(_secrets(self))

    @cached_property
    def policy_index(self) -> PolicyIndex:
        """The layers of policies by name."""
        return PolicyIndex.build(self.policies, self.groups)


def mask(text: str, config: LakehouseConfig) -> str:
    """The text without any secret of the configuration: for logs, errors and reports."""
    return config.masker.mask(text)


def _secrets(config: LakehouseConfig) -> Iterator[str]:
    maps: list[dict[str, Any]] = [catalog.properties() for catalog in config.catalogs.values()]
    maps += [group.storage_options for group in config.delta.values()]
    maps += [config.spark.conf, config.state.properties]
    for properties in maps:
        yield from property_secrets(properties)
    texts = [*texts_in(maps), config.state.url, config.spark.remote or ""]
    texts += [location for group in config.delta.values() for location in (*group.roots, *group.tables.values())]
    for text in texts:
        yield from url_secrets(text)
