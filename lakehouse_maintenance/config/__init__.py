"""What users write: `lakehouse.yaml` as typed values, with secrets that never show."""

from lakehouse_maintenance.config.connections import CatalogConfig, DeltaGroup, Source
from lakehouse_maintenance.config.loader import config_from_mapping, load_config
from lakehouse_maintenance.config.merging import merge_policies
from lakehouse_maintenance.config.models import LakehouseConfig, mask
from lakehouse_maintenance.config.options import REWRITE_OPTIONS, check_rewrite_options
from lakehouse_maintenance.config.policies import MinGain, Policy, Trigger
from lakehouse_maintenance.config.scaffold import Scaffold, render_config
from lakehouse_maintenance.config.secrets import Masker

__all__ = [
    "REWRITE_OPTIONS",
    "CatalogConfig",
    "DeltaGroup",
    "LakehouseConfig",
    "Masker",
    "MinGain",
    "Policy",
    "Scaffold",
    "Source",
    "Trigger",
    "check_rewrite_options",
    "config_from_mapping",
    "load_config",
    "mask",
    "merge_policies",
    "render_config",
]
