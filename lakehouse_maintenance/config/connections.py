"""Where tables and files are: catalogs, groups of Delta tables, ingestion sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from lakehouse_maintenance.config.base import Interval, Properties, Section, TableText, Url, refuse
from lakehouse_maintenance.config.secrets import mask_properties, mask_property
from lakehouse_maintenance.model.intervals import parse_calendar_interval, parse_duration
from lakehouse_maintenance.model.nearest import suggestion

CATALOG_TYPES = ("sql", "rest", "hive", "glue", "dynamodb", "bigquery", "in-memory")


def _property_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, dict | list):
        raise refuse(
            "properties are flat: their names hold the dots", "write one line a property, such as s3.region: x"
        )
    if value is None:
        raise refuse("the property has no value", "write a value, or leave the property out")
    return value


PropertyText = Annotated[str, BeforeValidator(_property_text)]
PropertyMap = Annotated[
    dict[str, PropertyText],
    AfterValidator(Properties),
    PlainSerializer(mask_properties, return_type=dict[str, Any]),
]
"""Properties of another library, with secrets masked when they are shown."""


def _catalog_type(value: str) -> str:
    if value not in CATALOG_TYPES:
        raise refuse(f"{value!r} is no type of catalog", suggestion(value, CATALOG_TYPES))
    return value


class CatalogConfig(BaseModel):
    """PyIceberg's properties of one catalog, by its names; any property of PyIceberg may stand here."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)
    __pydantic_extra__: dict[str, PropertyText]

    type: Annotated[PropertyText, AfterValidator(_catalog_type)] | None = Field(
        default=None,
        description="Kind of catalog: " + ", ".join(f"`{name}`" for name in CATALOG_TYPES) + ".",
        examples=["sql"],
    )
    uri: PropertyText | None = Field(
        default=None,
        description="Address of the catalog; `sqlite:///relative.db` lies beside the file.",
        examples=["sqlite:///catalog.db", "https://catalog.example.com"],
    )
    warehouse: PropertyText | None = Field(
        default=None,
        description="Where tables without a location of their own lie; for REST catalogs, the warehouse's name.",
        examples=["file:///data/warehouse", "s3://lake/warehouse"],
    )
    auth: dict[str, Any] | None = Field(
        default=None,
        description="PyIceberg's nested settings for signing in to a REST catalog.",
        examples=[{"type": "basic", "basic": {"username": "me", "password": "${PASSWORD}"}}],
    )

    @model_validator(mode="after")
    def _can_be_found(self) -> CatalogConfig:
        if self.type is None and self.uri is None and "py-catalog-impl" not in (self.model_extra or {}):
            raise refuse("the catalog has neither type nor uri", "write PyIceberg's properties, at least type and uri")
        return self

    def properties(self) -> dict[str, Any]:
        """PyIceberg's properties with their real values; every value is text, but for `auth`."""
        declared = {name: getattr(self, name) for name in ("type", "uri", "warehouse", "auth")}
        return {name: value for name, value in declared.items() if value is not None} | (self.model_extra or {})

    @model_serializer(mode="wrap")
    def _masked(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in mask_properties(handler(self)).items() if value is not None}

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, value if name is None else mask_property(name, value)


class DeltaGroup(Section):
    """A group of Delta tables; it stands where a catalog stands in names."""

    roots: tuple[Url, ...] = Field(
        default=(), description="Folders that are scanned for `_delta_log`.", examples=[["s3://lake/delta/"]]
    )
    tables: dict[str, Url] = Field(
        default_factory=dict,
        description="Locations of single tables by name.",
        examples=[{"orders": "s3://lake/orders"}],
    )
    storage_options: PropertyMap = Field(
        default_factory=Properties,
        description="Options for storage by the keys of deltalake.",
        examples=[{"AWS_REGION": "eu-central-1"}],
    )


def _clean_source(value: Any) -> Any:
    # Plain YAML readers of version 1.1 take OFF for false.
    if value is False:
        return "OFF"
    return value.upper() if isinstance(value, str) else value


class Source(Section):
    """A landing folder whose files are moved or deleted when every stream that reads it has processed them."""

    path: Url = Field(description="The landing folder.", examples=["s3://landing/clicks/"])
    checkpoints: tuple[Url, ...] = Field(
        default=(),
        description="Checkpoints of every stream that reads this folder.",
        examples=[["s3://state/checkpoints/clicks"]],
    )
    checkpoint_roots: tuple[Url, ...] = Field(
        default=(),
        description="Folders of checkpoints where an unnamed second stream would show up.",
        examples=[["s3://state/checkpoints/"]],
    )
    clean_source: Annotated[Literal["OFF", "MOVE", "DELETE"], BeforeValidator(_clean_source)] = Field(
        default="OFF", alias="cloudFiles.cleanSource", description="What becomes of processed files.", examples=["MOVE"]
    )
    retention_duration: Interval = Field(
        default=parse_calendar_interval("30 days"),
        alias="cloudFiles.cleanSource.retentionDuration",
        description="Time after processing before a file is cleaned; more than 7 days for DELETE.",
        examples=["14 days", "1 month"],
    )
    move_destination: Url | None = Field(
        default=None,
        alias="cloudFiles.cleanSource.moveDestination",
        description="Where MOVE moves files to.",
        examples=["s3://landing/archive/clicks/"],
    )
    wait_for_completion: bool = Field(
        default=False,
        alias="cloudFiles.cleanSource.waitForCompletion",
        description="Whether a run cleans all candidates, or as many as its time allows.",
        examples=[False],
    )
    only_after_new_batch: bool = Field(
        default=True,
        description="Whether only a newly processed batch makes a run; with false each observation is one.",
        examples=[True],
    )
    prove_against: TableText | None = Field(
        default=None,
        description="Sink table: a file is cleaned only when this table's committed snapshot covers its batch.",
        examples=["main.analytics.clicks"],
    )

    @model_validator(mode="after")
    def _can_be_cleaned(self) -> Source:
        if self.clean_source == "MOVE" and self.move_destination is None:
            raise refuse(
                "cloudFiles.cleanSource is MOVE and there is no destination",
                "add cloudFiles.cleanSource.moveDestination",
            )
        if self.clean_source == "DELETE" and self.retention_duration.at_least <= parse_duration("7 days"):
            raise refuse(
                f"cloudFiles.cleanSource is DELETE with a retention of {self.retention_duration}",
                "set cloudFiles.cleanSource.retentionDuration to more than 7 days",
            )
        return self
