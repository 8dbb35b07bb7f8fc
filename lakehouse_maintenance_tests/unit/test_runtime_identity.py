"""Identity columns of the audit: which environment variable fills which."""

from __future__ import annotations

import pytest

from lakehouse_maintenance.audit import runtime_identity
from lakehouse_maintenance.model.folders import AuditRow

EVERY = {
    "SPARK_USER": "hasan",
    "IOMETE_JOB_STARTED_BY": "fde_admin",
    "IOMETE_EXTERNAL_JOB_ID": "3e9342e7-89d3-42f8-a603-e00b783cca17",
    "IOMETE_COMPUTE_ID": "afceb977-cd1e-4ff8-89e3-2f7876436ecf",
    "IOMETE_COMPUTE_NAMESPACE": "spark-resources-1",
    "IOMETE_DOMAIN": "fde",
}


def test_every_variable_has_its_column() -> None:
    assert runtime_identity(EVERY) == {
        "spark_app_id": None,
        "runtime_compute_id": "afceb977-cd1e-4ff8-89e3-2f7876436ecf",
        "runtime_compute_namespace": "spark-resources-1",
        "runtime_domain": "fde",
        "runtime_user": "hasan",
        "external_job_id": "3e9342e7-89d3-42f8-a603-e00b783cca17",
        "platform_started_by": "fde_admin",
    }


def test_columns_are_those_of_the_row_in_its_order() -> None:
    names = list(runtime_identity({}))
    assert names == list(AuditRow.__slots__)[1 : 1 + len(names)]


@pytest.mark.parametrize("blank", ["", " ", "\t\n"])
def test_what_is_blank_or_missing_is_null(blank: str) -> None:
    assert set(runtime_identity({}).values()) == {None}
    assert set(runtime_identity(dict.fromkeys(EVERY, blank), spark_app_id=blank).values()) == {None}


def test_the_sparks_id_comes_from_its_context_alone() -> None:
    environ = {**EVERY, "SPARK_APP_ID": "spark-of-the-platform", "SPARK_APPLICATION_ID": "another"}
    assert runtime_identity(environ)["spark_app_id"] is None
    assert runtime_identity(environ, spark_app_id="spark-ffbd")["spark_app_id"] == "spark-ffbd"
