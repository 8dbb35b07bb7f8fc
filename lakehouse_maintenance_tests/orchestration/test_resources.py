"""Catalog, storage and state as resources: opened when asked for, and a check that names what failed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.orchestration.connections import (
    CatalogResource,
    StateResource,
    StorageResource,
    s3_properties,
)
from lakehouse_maintenance.orchestration.resources import LakehouseResource
from lakehouse_maintenance_tests.orchestration.lake import Lake

if TYPE_CHECKING:
    from collections.abc import Callable

RESOURCES = (CatalogResource, StorageResource, StateResource, LakehouseResource)


class S3Resource(dg.ConfigurableResource["S3Resource"]):
    """The fields of dagster_aws' resource of this name."""

    use_unsigned_session: bool = False
    region_name: str | None = None
    endpoint_url: str | None = None
    max_attempts: int = 5
    profile_name: str | None = None
    use_ssl: bool = True
    verify: bool | None = None
    aws_access_key_id: str | None = None
    aws_secret_access_key: str | None = None
    aws_session_token: str | None = None


def failed(check: Callable[[], object]) -> str:
    with pytest.raises(dg.Failure) as caught:
        check()
    return caught.value.description or ""


@pytest.mark.parametrize("resource", RESOURCES)
def test_every_field_is_described(resource: type[dg.ConfigurableResource[object]]) -> None:
    assert resource.__doc__
    for name, field in resource.model_fields.items():
        assert field.description, name


def test_they_read_what_lakehouse_yaml_says(lake: Lake) -> None:
    name = lake.table_with_small_files()
    lakehouse = LakehouseResource(config_path=str(lake.config))

    told = lakehouse.check_connection()

    assert set(told) == {"state", "catalogs.main", "catalogs.main.warehouse"}
    assert "1 databases" in told["catalogs.main"]
    assert lakehouse.catalog("main").open().pointer(name) == lake.catalog.load_table(name.identifier).metadata_location
    location = Location.parse(lake.catalog.load_table(name.identifier).metadata_location)
    assert lakehouse.storage("main").open().read(location)
    assert lakehouse.state().open().location == str(lake.folder / ".lakehouse-maintenance")


def test_the_check_of_all_names_all_that_failed(lake: Lake, tmp_path: Path) -> None:
    lake.config.write_text(
        lake.config.read_text().replace(
            "catalogs:\n", "catalogs:\n  away: {type: sql, uri: 'sqlite:///no.db', warehouse: nowhere}\n"
        )
    )
    (lake.folder / ".lakehouse-maintenance").write_text("no folder")

    told = failed(LakehouseResource(config_path=str(lake.config)).check_connection)

    assert "catalogs.away.uri" in told
    assert "state.url" in told
    assert "catalogs.main:" not in told


def test_each_check_names_what_failed(lake: Lake, tmp_path: Path) -> None:
    config = str(lake.config)
    assert "catalogs.mian" in failed(CatalogResource(name="mian", config_path=config).check_connection)
    sqlite = {"type": "sql", "uri": f"sqlite:///{tmp_path}/no.db"}
    assert "catalogs.c.uri" in failed(CatalogResource(name="c", properties=sqlite).check_connection)
    nowhere = StorageResource(properties={"s3.endpoint": "http://127.0.0.1:9"}, location="s3://bucket/x/")
    assert "s3://bucket/x/" in failed(nowhere.check_connection)
    assert "location" in failed(StorageResource().check_connection)
    both = StorageResource(catalog=CatalogResource(name="main"), s3=S3Resource())
    assert "leave one of them out" in failed(both.check_connection)
    file = tmp_path / "file"
    file.write_text("")
    assert "state.url" in failed(StateResource(url=str(file)).check_connection)
    assert "no configuration" in failed(StateResource(config_path=str(tmp_path / "no.yaml")).check_connection)


def test_variables_of_the_environment_may_stand_for_any_text(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CATALOG_URI", f"sqlite:///{lake.folder}/main.db")
    monkeypatch.setenv("STATE", str(lake.folder / "state"))
    monkeypatch.setenv("SECRET", "much")
    seen: list[object] = []

    @dg.op
    def look(catalog: CatalogResource, state: StateResource, storage: StorageResource) -> None:
        seen.extend((catalog.check_connection(), state.check_connection(), storage.settings()))

    @dg.job(
        resource_defs={
            "catalog": CatalogResource(name="main", properties={"type": "sql", "uri": dg.EnvVar("CATALOG_URI")}),
            "state": StateResource(url=dg.EnvVar("STATE")),
            "storage": StorageResource(s3=S3Resource(aws_secret_access_key=dg.EnvVar("SECRET"))),
        }
    )
    def looks() -> None:
        look()

    assert looks.execute_in_process().success
    assert seen[2] == {"s3.secret-access-key": "much"}


def test_settings_of_an_s3_resource_become_those_of_storage() -> None:
    given = S3Resource(
        region_name="eu-central-1",
        endpoint_url="minio:9000",
        use_ssl=False,
        aws_access_key_id="me",
        aws_secret_access_key="secret",
        aws_session_token="token",
    )

    assert s3_properties(given) == {
        "s3.region": "eu-central-1",
        "s3.endpoint": "http://minio:9000",
        "s3.access-key-id": "me",
        "s3.secret-access-key": "secret",
        "s3.session-token": "token",
    }
    assert s3_properties(S3Resource(use_unsigned_session=True, profile_name="p")) == {
        "s3.anonymous": "true",
        "s3.profile-name": "p",
    }
    assert "verify" in failed(StorageResource(s3=S3Resource(verify=False)).open)


def test_the_s3_resource_of_dagster_aws_is_taken_where_it_is_installed() -> None:
    real = pytest.importorskip("dagster_aws.s3", reason="dagster_aws is not installed").S3Resource
    assert set(S3Resource.model_fields) <= set(real.model_fields)
    seen: list[dict[str, str]] = []

    @dg.op
    def look(storage: StorageResource) -> None:
        seen.append(storage.settings())

    @dg.job(resource_defs={"storage": StorageResource(s3=real(region_name="eu-west-1"))})
    def looks() -> None:
        look()

    assert looks.execute_in_process().success
    assert seen == [{"s3.region": "eu-west-1"}]
