"""Dagster's entry point: `workspace.yaml` points here.

The configuration is found as the command line finds it: where LAKEHOUSE_MAINTENANCE_CONFIG points, else
`lakehouse.yaml` in the working directory. Loading reads that file alone: no catalog, no storage, no credentials.
"""

from __future__ import annotations

import dagster as dg

from lakehouse_maintenance.orchestration.building import build_definitions

# In process: a run is a process of its own already, and a second one for each step would cost more than most steps.
defs = dg.Definitions.merge(build_definitions(), dg.Definitions(executor=dg.in_process_executor))
