"""Policies: what makes an action due, and within which bounds it runs.

Every field has the value that counts where no layer of `policies` sets it. None leaves the decision to the table's
own property, and then to Iceberg's or Delta's default.
"""

from __future__ import annotations

import dataclasses
import re
from datetime import time
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema, field_validator
from pydantic import model_validator as after_all

from lakehouse_maintenance.config.base import Duration, Section, Size, TimeOfDay, TimeZone, refuse, written
from lakehouse_maintenance.config.options import REWRITE_OPTIONS, check_rewrite_options
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.health import TableHealth
from lakehouse_maintenance.model.intervals import parse_duration, parse_size, write_size
from lakehouse_maintenance.model.nearest import suggestion
from lakehouse_maintenance.model.properties import check_settable

EngineChoice = Literal["auto", "embedded", "spark"]

_NO_MEASURES = {
    *("format_version", "snapshot_id", "oldest_snapshot_ms", "newest_snapshot_ms", "score"),
    *("orphans_counted_ms", "measured_at_ms"),
}
MEASURES: tuple[str, ...] = tuple(
    field.name
    for field in dataclasses.fields(TableHealth)
    if field.type in ("int", "int | None") and field.name not in _NO_MEASURES
)
"""The numbers of a table's health that a trigger can look at."""


def _measure(value: Any) -> str:
    name = str(value)
    if name not in MEASURES:
        raise InputError(f"{name!r} is no number of a table's health", hint=suggestion(name, MEASURES))
    return name


Measure = Annotated[str, written(_measure), WithJsonSchema({"type": "string", "enum": list(MEASURES)})]


class Trigger(Section):
    """Due when `of` reaches `base + scale * size`."""

    of: Measure = Field(description="The number of a table's health that is looked at.", examples=["small_files"])
    base: float = Field(ge=0, allow_inf_nan=False, description="What it must reach on any table.", examples=[20])
    scale: float = Field(
        default=0,
        ge=0,
        allow_inf_nan=False,
        description="How much more with the table's size.",
        examples=[0.1],
    )
    size: Measure | None = Field(
        default=None, description="The number of a table's health that `scale` multiplies.", examples=["data_files"]
    )

    @after_all(mode="after")
    def _scale_has_a_size(self) -> Trigger:
        if self.scale > 0 and self.size is None:
            raise refuse("a trigger has a scale and no size to multiply it with", "add size, such as size: data_files")
        return self

    @property
    def measures(self) -> tuple[str, ...]:
        """Every number of the health that this trigger looks at."""
        return (self.of,) if self.size is None else (self.of, self.size)


OVERLAP = Trigger(of="overlapping_files", base=20, scale=0.3, size="data_files")
"""One more trigger of compaction where the strategy sorts and no trigger is written (IM-15)."""


ANY_TO_SET = Trigger(of="properties_to_set", base=1)
"""Properties that the policy wants are set whenever one is not: what they are is written there already."""


def _one_or_many(value: Any) -> Any:
    return (value,) if isinstance(value, dict | Trigger) else value


Triggers = Annotated[tuple[Trigger, ...], BeforeValidator(_one_or_many)]


@dataclasses.dataclass(frozen=True, slots=True)
class MinGain:
    """The least that an action must gain: fewer `files`, or as many `bytes` to read less; one of them is set."""

    files: int | None = None
    bytes: int | None = None

    def __str__(self) -> str:
        if self.files is not None:
            return "1 file" if self.files == 1 else f"{self.files} files"
        return write_size(self.bytes or 0) if (self.bytes or 0) >= 1024 else f"{self.bytes or 0} bytes"


def _min_gain(value: Any) -> MinGain:
    if isinstance(value, MinGain):
        return value
    text = str(value).strip()
    files = re.fullmatch(r"([0-9]{1,18})\s+files?", text)
    if files is not None:
        return MinGain(files=int(files.group(1)))
    # A number alone could be either.
    if not re.fullmatch(r"[0-9]*", text):
        try:
            return MinGain(bytes=parse_size(text))
        except InputError:
            pass
    raise InputError(f"{text!r} is not a gain", hint="write files or a size, such as 5 files, 1GB")


Gain = Annotated[
    MinGain,
    written(_min_gain),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "examples": ["5 files", "1GB"]}),
]


def _option_text(value: Any) -> str:
    if value is None:
        raise InputError("an option has no value", hint="write a value, or leave the option out")
    return str(value).lower() if isinstance(value, bool) else str(value)


OptionText = Annotated[str, written(_option_text)]


class RewriteDataFiles(Section):
    """Compaction of data files."""

    trigger: Triggers = Field(
        default=(
            Trigger(of="small_files", base=20, scale=0.1, size="data_files"),
            Trigger(of="delete_files", base=10, scale=0.05, size="data_files"),
        ),
        description="When it is due: one trigger or a list, of which any is enough; `[]`: never by itself. Where "
        "nothing is written and the strategy is `sort` or `zorder`, `{of: overlapping_files, base: 20, scale: 0.3, "
        "size: data_files}` is one more.",
        examples=[{"of": "small_files", "base": 20, "scale": 0.1, "size": "data_files"}],
    )
    min_gain: Gain = Field(
        default=MinGain(files=5), description="A plan that gains less is not made.", examples=["5 files", "1GB"]
    )
    cooldown: Duration = Field(
        default=parse_duration("1h"), description="Time between two runs on one table.", examples=["1h"]
    )
    settle: Duration = Field(
        default=parse_duration("0s"),
        description="Files younger than this, and partitions written to within it, are left for later.",
        examples=["30 minutes"],
    )
    strategy: Literal["binpack", "sort", "zorder"] = Field(
        default="binpack", description="How rows are laid out in the new files.", examples=["binpack"]
    )
    sort_order: str | None = Field(
        default=None,
        description="Order for `sort` (unset: the table's own), columns for `zorder`.",
        examples=["user_id ASC NULLS LAST"],
    )
    verification: Literal["metadata", "rows"] = Field(
        default="metadata",
        description="What is held against each other after a commit: row counts and files, or also a hash over all "
        "rewritten rows, which reads them once more before and after.",
        examples=["rows"],
    )
    options: dict[str, OptionText] = Field(
        default_factory=dict,
        description="Iceberg's options of rewrite_data_files by its names; sizes may be written as `128MB`. Known: "
        + ", ".join(f"`{name}`" for name in REWRITE_OPTIONS)
        + ".",
        examples=[{"target-file-size-bytes": "128MB"}],
    )


class RewritePositionDeleteFiles(Section):
    """Merging of small position delete files, and dropping of those that reach no data file."""

    trigger: Triggers = Field(
        default=(
            Trigger(of="position_delete_files", base=50, scale=0.1, size="data_files"),
            Trigger(of="dangling_delete_files", base=10),
        ),
        description="When it is due: one trigger or a list, of which any is enough; `[]`: never by itself.",
        examples=[{"of": "position_delete_files", "base": 50, "scale": 0.1, "size": "data_files"}],
    )


class ExpireSnapshots(Section):
    """Expiry of snapshots; for retention the longer of policy and table property wins."""

    trigger: Triggers = Field(
        default=(Trigger(of="expired_snapshots", base=10),),
        description="When it is due: one trigger or a list, of which any is enough; `[]`: never by itself.",
        examples=[{"of": "expired_snapshots", "base": 10}],
    )
    older_than: Duration | None = Field(
        default=parse_duration("5 days"),
        description="Younger snapshots are kept; null: `history.expire.max-snapshot-age-ms` alone.",
        examples=["5 days"],
    )
    retain_last: int | None = Field(
        default=10,
        ge=0,
        description="So many of the newest are kept; null: `history.expire.min-snapshots-to-keep` alone.",
        examples=[10],
    )
    allow_short_retention: bool = Field(
        default=False, description="Lets a cutoff pass that is nearer than the longest reader.", examples=[False]
    )


class RewriteManifests(Section):
    """Clustering of manifests."""

    trigger: Triggers = Field(
        default=(Trigger(of="manifests", base=100),),
        description="When it is due: one trigger or a list, of which any is enough; `[]`: never by itself.",
        examples=[{"of": "manifests", "base": 100}],
    )


class PruneMetadata(Section):
    """Removal of old versions of a table's metadata.json that its metadata log names."""

    trigger: Triggers = Field(
        default=(Trigger(of="prunable_metadata_files", base=10),),
        description="When it is due: one trigger or a list, of which any is enough; `[]`: never by itself.",
        examples=[{"of": "prunable_metadata_files", "base": 10}],
    )
    keep: int | None = Field(
        default=None,
        ge=1,
        description="Previous versions that stay; null: `write.metadata.previous-versions-max` (100 where unset).",
        examples=[20],
    )
    set_properties: bool = Field(
        default=False,
        description="Lets it set `write.metadata.previous-versions-max` to `keep`, without which no fewer can stay, "
        "and `write.metadata.delete-after-commit.enabled` to true.",
        examples=[True],
    )


class SetProperties(Section):
    """Table properties that the policy wants to be set; those of any other meaning than upkeep are refused."""

    values: dict[str, OptionText] = Field(
        default_factory=dict,
        description="Properties and their values: names that begin with `write.`, `commit.`, `history.` or `read.`.",
        examples=[{"write.metadata.delete-after-commit.enabled": True}],
    )
    advised: bool | tuple[str, ...] = Field(
        default=False,
        description="Whether what `health` advises is set: all of it, or these properties. A retention that the table "
        "sets itself is never changed by it.",
        examples=[True, ["commit.manifest-merge.enabled"]],
    )

    @field_validator("values")
    @classmethod
    def _are_settable(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            try:
                check_settable(name, text)
            except InputError as error:
                raise refuse(error.message, error.hint or "") from None
        return value


class RemoveOrphanFiles(Section):
    """Removal of files that no table refers to."""

    trigger: Triggers = Field(
        default=(Trigger(of="orphan_bytes", base=1 << 30),),
        description="What makes it due before `every` is over: one trigger or a list on what was last counted; `[]`: "
        "nothing does.",
        examples=[{"of": "orphan_bytes", "base": 1 << 30}],
    )
    every: Duration | None = Field(
        default=parse_duration("7 days"), description="How often; null: never by itself.", examples=["7 days"]
    )
    older_than: Duration = Field(
        default=parse_duration("3 days"), description="Younger files are kept.", examples=["3 days"]
    )
    allow_short_retention: bool = Field(
        default=False, description="Lets `older_than` be nearer than 24 hours.", examples=[False]
    )
    removal: Literal["delete", "quarantine"] = Field(
        default="delete",
        description="Delete, or move aside, to be restored or purged later.",
        examples=["quarantine"],
    )
    purge_after: Duration = Field(
        default=parse_duration("30 days"), description="How long quarantine keeps the files.", examples=["30 days"]
    )
    prefix_mismatch_mode: Literal["ERROR", "IGNORE", "DELETE"] = Field(
        default="ERROR",
        description="What becomes of a file whose path equals a reference in all but scheme or bucket: stop, keep it, "
        "or take it for an orphan.",
        examples=["IGNORE"],
    )
    equal_schemes: dict[str, str] = Field(
        default_factory=dict,
        description="Schemes that mean the same: an alias, or several with commas, and the name that counts.",
        examples=[{"oss,cosn": "s3"}],
    )
    equal_authorities: dict[str, str] = Field(
        default_factory=dict,
        description="Buckets or hosts that mean the same: aliases and the name that counts.",
        examples=[{"lake-alias": "lake"}],
    )
    dropped_tables: tuple[str, ...] = Field(
        default=(),
        description="Table-uuids of tables that were dropped and whose files nobody needs: their metadata files are "
        "orphans like others, and protect nothing.",
        examples=[["9c12d441-03fe-4693-9a96-a0705ddf69c1"]],
    )
    review: bool = Field(default=False, description="Whether somebody must approve each plan.", examples=[True])


def _with_scheme(value: str) -> str:
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]|file:/+[^/]", value):
        raise refuse(f"{value!r} has no scheme and bucket", "write the whole path, such as s3://bucket/folder")
    return value


class UntrackedFolders(Section):
    """Removal of table folders that no table of the catalog owns."""

    every: Duration | None = Field(
        default=parse_duration("7 days"), description="How often; null: never by itself.", examples=["7 days"]
    )
    older_than: Duration = Field(
        default=parse_duration("24h"),
        description="Folders with a younger object are kept. An application.json has its own.",
        examples=["24h"],
    )
    max_candidates: int = Field(
        default=10,
        ge=0,
        description="With more candidates than this in a database nothing is removed. An application.json has its own.",
        examples=[10],
    )
    exclude_paths: tuple[Annotated[str, AfterValidator(_with_scheme)], ...] = Field(
        default=(),
        description="Paths with scheme and bucket; what equals, contains or lies in one is kept. Added to those of an "
        "application.json.",
        examples=[["s3://bucket/warehouse/manual_archive"]],
    )
    review: bool = Field(
        default=True,
        description="Whether somebody must approve each plan. Runs of an application.json ask for it only where it is "
        "written.",
        examples=[True],
    )
    removal: Literal["quarantine", "delete"] = Field(
        default="quarantine",
        description="Move aside, to be restored or purged later, or delete. Runs of an application.json delete where "
        "nothing is written.",
        examples=["quarantine"],
    )
    purge_after: Duration = Field(
        default=parse_duration("30 days"), description="How long quarantine keeps a folder.", examples=["30 days"]
    )


class Vacuum(Section):
    """Vacuum of Delta tables; for retention the longer of policy and table property wins."""

    every: Duration | None = Field(
        default=parse_duration("7 days"), description="How often; null: never by itself.", examples=["7 days"]
    )
    retention: Duration = Field(
        default=parse_duration("168h"),
        description="Files that left the table more recently are kept.",
        examples=["168h"],
    )


class Budget(Section):
    """What triggered work may cost; it is spent on the tables with the best gain for their cost."""

    bytes_per_day: Size | None = Field(
        default=None, description="Bytes that may be read for rewriting in a day; null: no limit.", examples=["1TB"]
    )


class Window(Section):
    """When triggered work may start. What a person asks for does not wait for it."""

    start: TimeOfDay = Field(default=time(0, 0), description="Time of day at which it opens.", examples=["01:00"])
    duration: Duration = Field(
        default=parse_duration("24h"), description="How long it stays open, at most 24h.", examples=["5h"]
    )
    timezone: TimeZone = Field(default="UTC", description="Time zone of `start`.", examples=["Europe/Berlin"])

    @field_validator("duration")
    @classmethod
    def _fits_a_day(cls, value: Any) -> Any:
        if not parse_duration("0") < value <= parse_duration("24h"):
            raise refuse("a window is open for more than nothing and at most 24h", "write a duration such as 5h")
        return value


class Policy(Section):
    """The policy of one table, database, or of all; one layer sets what it names, and the nearest layer wins."""

    rewrite_data_files: RewriteDataFiles = Field(
        default_factory=RewriteDataFiles, description="Compaction of data files."
    )
    expire_snapshots: ExpireSnapshots = Field(default_factory=ExpireSnapshots, description="Expiry of snapshots.")
    rewrite_manifests: RewriteManifests = Field(
        default_factory=RewriteManifests, description="Clustering of manifests."
    )
    rewrite_position_delete_files: RewritePositionDeleteFiles = Field(
        default_factory=RewritePositionDeleteFiles, description="Merging of position delete files."
    )
    prune_metadata: PruneMetadata = Field(
        default_factory=PruneMetadata, description="Removal of old versions of the metadata."
    )
    set_properties: SetProperties = Field(
        default_factory=SetProperties, description="Table properties that are to be set."
    )
    remove_orphan_files: RemoveOrphanFiles = Field(
        default_factory=RemoveOrphanFiles, description="Removal of files that no table refers to."
    )
    untracked_folders: UntrackedFolders = Field(
        default_factory=UntrackedFolders, description="Removal of table folders that no table owns; set by database."
    )
    vacuum: Vacuum = Field(default_factory=Vacuum, description="Vacuum of Delta tables.")
    budget: Budget | None = Field(
        default=None,
        description="What triggered work may cost; null: no limit.",
        examples=[{"bytes_per_day": "1TB"}],
    )
    window: Window | None = Field(
        default=None,
        description="When triggered work may start; null: at any time.",
        examples=[{"start": "01:00", "duration": "5h", "timezone": "UTC"}],
    )
    engine: EngineChoice = Field(
        default="auto", description="Who does the data work; `auto`: what `engine.use` says.", examples=["embedded"]
    )


class Policies(Section):
    """Layers of policies: the default, then the database's, then the table's; the nearest wins, key by key."""

    default: Policy = Field(default_factory=Policy, description="The policy of every table.")
    databases: dict[str, Policy] = Field(
        default_factory=dict,
        description="Policies of databases, by `catalog.database`.",
        examples=[{"main.analytics": {"expire_snapshots": {"older_than": "30 days"}}}],
    )
    tables: dict[str, Policy] = Field(
        default_factory=dict,
        description="Policies of tables, by `catalog.database.table`.",
        examples=[{"main.analytics.events": {"rewrite_data_files": {"strategy": "sort"}}}],
    )


def check_options(policy: Policy, field: str) -> list[InputError]:
    """What is wrong with the options in one layer; they are checked one by one, so that all are told."""
    problems = []
    for name, value in policy.rewrite_data_files.options.items():
        try:
            check_rewrite_options({name: value}, field=f"{field}.rewrite_data_files.options")
        except InputError as error:
            problems.append(error)
    return problems
