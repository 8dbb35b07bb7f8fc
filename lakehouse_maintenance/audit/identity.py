"""Who and what a run is, for the audit: the source's runtime identity columns."""

from __future__ import annotations

from collections.abc import Mapping

VARIABLES = {
    "runtime_compute_id": "IOMETE_COMPUTE_ID",
    "runtime_compute_namespace": "IOMETE_COMPUTE_NAMESPACE",
    "runtime_domain": "IOMETE_DOMAIN",
    "runtime_user": "SPARK_USER",
    "external_job_id": "IOMETE_EXTERNAL_JOB_ID",
    "platform_started_by": "IOMETE_JOB_STARTED_BY",
}
"""Column → environment variable (seed 000, Runtime Identity Fields)."""


def runtime_identity(environ: Mapping[str, str], *, spark_app_id: str | None = None) -> dict[str, str | None]:
    """Values of the identity columns by name, `spark_app_id` first, in the source's order.

    A variable that is not set, or blank, gives None. `spark_app_id`: of the Spark context where the Spark engine runs;
    None otherwise, whatever the environment says.
    """
    found = {column: environ.get(variable, "").strip() or None for column, variable in VARIABLES.items()}
    return {"spark_app_id": (spark_app_id or "").strip() or None, **found}
