"""Merging the layers of policies, key by key. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from lakehouse_maintenance.config.policies import Policies, Policy
from lakehouse_maintenance.model.names import split_name

Name = tuple[str, ...]


def merge_policies(*layers: Policy) -> Policy:
    """One policy of several layers, the nearest last. Mappings merge key by key; lists and triggers are replaced."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = _merged(merged, _given(layer))
    return Policy.model_validate(merged)


@dataclass(frozen=True, slots=True)
class PolicyIndex:
    """The layers by the parts of their names, however a name was quoted, with or without its catalog."""

    default: Policy
    databases: dict[Name, Policy]
    tables: dict[Name, Policy]

    @classmethod
    def build(cls, policies: Policies, catalogs: Sequence[str]) -> PolicyIndex:
        """`catalogs`: names of all catalogs and Delta groups. Raises InputError where a key is not a name."""
        return cls(
            policies.default,
            {full_name(key, catalogs, 2): layer for key, layer in policies.databases.items()},
            {full_name(key, catalogs, 3): layer for key, layer in policies.tables.items()},
        )

    def of_database(self, name: Name) -> Policy:
        """`name`: catalog and namespace."""
        layer = self.databases.get(name)
        return merge_policies(self.default) if layer is None else merge_policies(self.default, layer)

    def written_for_database(self, name: Name) -> dict[str, Any]:
        """What the layers of a database write, key by key as in the file, and no default beside it."""
        layer = self.databases.get(name)
        written = _given(self.default)
        return written if layer is None else _merged(written, _given(layer))

    def of_table(self, name: Name) -> Policy:
        """`name`: catalog, namespace and table."""
        layers = [self.default, self.databases.get(name[:-1]), self.tables.get(name)]
        return merge_policies(*(layer for layer in layers if layer is not None))


def full_name(key: str, catalogs: Sequence[str], parts: int) -> Name:
    """The parts of a policy's key, with the catalog put before it where it is left out and there is only one.

    `parts`: 2 for a database, 3 for a table. Raises InputError where the key is not a name.
    """
    name = split_name(key)
    if len(name) == parts - 1 and len(catalogs) == 1 and name[0] != catalogs[0]:
        return (catalogs[0], *name)
    return name


def _given(model: BaseModel) -> dict[str, Any]:
    """Only what was written, as values; a default that nobody wrote must not cover a farther layer's value."""
    given = {}
    for name in model.model_fields_set:
        value = getattr(model, name)
        given[name] = _given(value) if isinstance(value, BaseModel) else value
    return given


def _merged(base: Mapping[str, Any], nearer: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in nearer.items():
        present = merged.get(key)
        if isinstance(value, Mapping) and isinstance(present, Mapping):
            merged[key] = _merged(present, value)
        else:
            merged[key] = dict(value) if isinstance(value, Mapping) else value
    return merged
