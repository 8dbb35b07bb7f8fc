"""How the product itself works: engine, Spark, state, audit, jobs, readers, quarantine, limits."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from lakehouse_maintenance.config.base import Cron, Duration, Properties, Section, Size, TableText, Url, refuse
from lakehouse_maintenance.config.connections import PropertyMap
from lakehouse_maintenance.config.policies import EngineChoice
from lakehouse_maintenance.model.intervals import GB, parse_duration


class EngineSettings(Section):
    """Who does the data work."""

    use: EngineChoice = Field(
        default="auto",
        description="`auto`: embedded up to `spark_above` and where it can, else spark.",
        examples=["embedded"],
    )
    memory_limit: Annotated[Size, Field(gt=0)] = Field(
        default=4 * GB, description="The most memory that the embedded engine takes for data.", examples=["4GB"]
    )
    spark_above: Annotated[Size, Field(ge=0)] = Field(
        default=200 * GB,
        description="With `auto`, tables with more to rewrite than this go to Spark.",
        examples=["200GB"],
    )


class SparkSettings(Section):
    """The Spark session."""

    master: str = Field(default="local[*]", min_length=1, description="Spark's master.", examples=["local[*]"])
    remote: Url | None = Field(
        default=None, description="A Spark Connect server; it goes before `master`.", examples=["sc://spark:15002"]
    )
    conf: PropertyMap = Field(
        default_factory=Properties,
        description="Spark's configuration.",
        examples=[{"spark.sql.shuffle.partitions": "8"}],
    )
    procedures_delete: bool = Field(
        default=False,
        description="Lets Spark's own procedures delete files, for tables too large for one machine's evidence.",
        examples=[False],
    )


class StateSettings(Section):
    """What the product remembers."""

    url: Url = Field(
        default=".lakehouse-maintenance",
        description="A folder, an object-storage URL, or `postgresql://user@host/database` (`?schema=` names its "
        "schema). Leases, cooldown and journal live there: everyone who maintains the same tables must use the same "
        "one.",
        examples=[".lakehouse-maintenance", "s3://lake/maintenance-state"],
    )
    properties: PropertyMap = Field(
        default_factory=Properties,
        description="Credentials and address of the object store, by PyIceberg's names (`s3.*`, `gcs.*`, `adls.*`); "
        "unset: where the vendor's tools look for them.",
        examples=[{"s3.endpoint": "https://minio.example.com", "s3.access-key-id": "${STATE_KEY_ID}"}],
    )
    cache: Url | None = Field(
        default=None,
        description="A folder on this machine for what is disposable. Unset: `cache` in a state folder; for other "
        "states a folder below `$XDG_CACHE_HOME`, else `~/.cache`.",
        examples=["/var/cache/lakehouse-maintenance"],
    )


class AuditSettings(Section):
    """The result tables."""

    catalog: str | None = Field(
        default=None,
        description="Catalog that holds them; unset: the catalog that the job works on.",
        examples=["main"],
    )
    namespace: str = Field(
        default="iomete_system_db",
        min_length=1,
        description="Namespace that holds them.",
        examples=["iomete_system_db"],
    )


class CompactionJob(Section):
    """The data compaction job as a Dagster job with a schedule."""

    file: str = Field(min_length=1, description="The job's own file.", examples=["application.conf"])
    schedule: Cron = Field(default="0 12 * * 0", description="Cron schedule, in UTC.", examples=["0 12 * * 0"])


class UntrackedFoldersJob(Section):
    """The untracked table folders job as a Dagster job with a schedule."""

    file: str = Field(min_length=1, description="The job's own file.", examples=["application.json"])
    schedule: Cron = Field(default="0 3 * * *", description="Cron schedule, in UTC.", examples=["0 3 * * *"])


class Jobs(Section):
    """The source jobs' own files."""

    data_compaction: CompactionJob | None = Field(
        default=None, description="The data compaction job.", examples=[{"file": "application.conf"}]
    )
    untracked_table_folders: UntrackedFoldersJob | None = Field(
        default=None, description="The untracked table folders job.", examples=[{"file": "application.json"}]
    )


class Readers(Section):
    """The reader window: nothing that a running reader may still need is let go."""

    longest: Duration = Field(
        default=parse_duration("24h"),
        description="How long the longest reader holds on to a snapshot.",
        examples=["24h"],
    )
    checkpoints: tuple[Url, ...] = Field(
        default=(),
        description="Checkpoints of streams that read tables; their offsets are a floor for expiry and vacuum.",
        examples=[["s3://state/checkpoints/reader"]],
    )


def _one_folder(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.\-]+", value) or value in (".", ".."):
        raise refuse(f"{value!r} is not a folder's name", "write one name of letters, digits, _, - and .")
    return value


class Quarantine(Section):
    """Where removed folders are kept for a while."""

    prefix: Annotated[str, AfterValidator(_one_folder)] = Field(
        default="_lakehouse_maintenance_quarantine",
        description="Name of the folder beside what is removed, in the same bucket.",
        examples=["_lakehouse_maintenance_quarantine"],
    )


class Limits(Section):
    """Limits for what a listing found; when one trips, nothing of that plan is deleted."""

    removed_share: float = Field(
        default=0.3, ge=0, le=1, description="Share of a table's files that one plan may remove.", examples=[0.3]
    )
    removed_files: int = Field(
        default=100_000, ge=0, description="Files of a table that one plan may remove.", examples=[100_000]
    )
    first_run_files: int = Field(
        default=1_000, ge=0, description="Files of a table that its first plan may remove.", examples=[1_000]
    )


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class SharedLocation(Section):
    """Two tables that share a location on purpose, and whose files are whose."""

    tables: Annotated[tuple[TableText, ...], BeforeValidator(_as_tuple)] = Field(
        min_length=2,
        max_length=2,
        description="The two tables.",
        examples=[["main.analytics.events", "main.analytics.events_copy"]],
    )
    files: dict[str, tuple[Url, ...]] = Field(
        default_factory=dict,
        description="By table, the folders whose files are its own.",
        examples=[{"main.analytics.events": ["s3://lake/analytics/events/data/"]}],
    )
