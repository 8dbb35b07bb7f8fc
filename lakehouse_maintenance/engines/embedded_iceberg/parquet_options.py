"""The table properties `write.parquet.*` as options of pyarrow's writer (Iceberg: TableProperties, Parquet).

Columns are named there by Iceberg's dotted names and in Parquet by paths of their own. As in Iceberg's writers, a
property about a column that is not there does nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakehouse_maintenance.engines.embedded_iceberg.statistics import Leaf
from lakehouse_maintenance.model.errors import InputError

_BLOOM = "write.parquet.bloom-filter-enabled.column."
_BLOOM_FPP = "write.parquet.bloom-filter-fpp.column."
_BLOOM_NDV = "write.parquet.bloom-filter-ndv.column."
_BLOOM_MOST = "write.parquet.bloom-filter-max-bytes"
_DICTIONARY = "write.parquet.dict-encoding-enabled.column."
_STATISTICS = "write.parquet.stats-enabled.column."
_PAGE_ROWS = "write.parquet.page-row-limit"
_PAGE_VERSION = "write.parquet.page-version"
_LEAST_BLOOM_BYTES = 32


def writer_options(
    properties: Mapping[str, str],
    leaves: Sequence[Leaf],
    paths: Sequence[str],
    dictionary: tuple[str, ...] | bool,
    rows: int,
) -> dict[str, Any]:
    """Keyword arguments of pyarrow's ParquetWriter.

    `paths`: of the leaves in Parquet. `dictionary`: paths worth one, which the table's properties overrule.
    `rows`: of a row group, as many as a Bloom filter has to tell apart at most. Raises InputError for a property that
    cannot be read.
    """
    options: dict[str, Any] = {
        "max_rows_per_page": whole(properties, _PAGE_ROWS, 20_000),
        "data_page_version": _page_version(properties),
        "use_dictionary": _dictionary(properties, leaves, paths, dictionary),
        # Readers skip pages by it; Iceberg's own writers leave one too.
        "write_page_index": True,
    }
    silent = {name for name, flag in _by_column(properties, _STATISTICS).items() if flag.strip().lower() == "false"}
    if silent:
        options["write_statistics"] = [
            path for leaf, path in zip(leaves, paths, strict=True) if leaf.name not in silent
        ] or False
    blooms = _blooms(properties, leaves, paths, rows)
    if blooms:
        options["bloom_filter_options"] = blooms
    return options


def parquet_paths(schema: pa.Schema) -> list[str]:
    """Of every leaf in the file's order."""

    def visit(one: pa.Field, path: str) -> list[str]:
        kind = one.type
        if pa.types.is_struct(kind):
            return [
                leaf for i in range(kind.num_fields) for leaf in visit(kind.field(i), f"{path}.{kind.field(i).name}")
            ]
        if pa.types.is_list(kind):
            return visit(kind.value_field, f"{path}.list.element")
        if pa.types.is_map(kind):
            key, value = f"{path}.key_value.key", f"{path}.key_value.value"
            return [*visit(kind.key_field, key), *visit(kind.item_field, value)]
        return [path]

    return [leaf for field in schema for leaf in visit(field, field.name)]


def whole(properties: Mapping[str, str], name: str, default: int, *, least: int = 0) -> int:
    """The property's whole number. Raises InputError naming it."""
    if name not in properties:
        return default
    text = properties[name].strip()
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise InputError(f"the table's property {name} is {text!r}", field=name, hint="set it to a whole number")
    return int(text)


def _page_version(properties: Mapping[str, str]) -> str:
    text = properties.get(_PAGE_VERSION, "v1").strip().lower()
    if text not in ("v1", "v2"):
        raise InputError(f"the table's property {_PAGE_VERSION} is {text!r}", field=_PAGE_VERSION, hint="v1 or v2")
    return "1.0" if text == "v1" else "2.0"


def _by_column(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in properties.items() if name.startswith(prefix)}


def _dictionary(
    properties: Mapping[str, str], leaves: Sequence[Leaf], paths: Sequence[str], chosen: tuple[str, ...] | bool
) -> list[str] | bool:
    asked = {name: flag.strip().lower() == "true" for name, flag in _by_column(properties, _DICTIONARY).items()}
    if not any(leaf.name in asked for leaf in leaves):
        return list(chosen) if isinstance(chosen, tuple) else chosen
    default = set(chosen) if isinstance(chosen, tuple) else set(paths if chosen else ())
    found = [path for leaf, path in zip(leaves, paths, strict=True) if asked.get(leaf.name, path in default)]
    return found or False


def _blooms(
    properties: Mapping[str, str], leaves: Sequence[Leaf], paths: Sequence[str], rows: int
) -> dict[str, dict[str, Any]]:
    """Filters as large as the distinct values need (of each column at most `rows`), and no larger than allowed."""
    wanted = {name for name, flag in _by_column(properties, _BLOOM).items() if flag.strip().lower() == "true"}
    most = whole(properties, _BLOOM_MOST, 1 << 20, least=_LEAST_BLOOM_BYTES)
    found: dict[str, dict[str, Any]] = {}
    for leaf, path in zip(leaves, paths, strict=True):
        if leaf.name not in wanted or pa.types.is_boolean(leaf.kind):
            continue
        fpp = _probability(properties, _BLOOM_FPP + leaf.name)
        distinct = whole(properties, _BLOOM_NDV + leaf.name, max(rows, 1), least=1)
        # A split block filter of b bits takes -8 n / ln(1 - fpp^(1/8)) of them for n values, rounded up to a power
        # of two: half of what is allowed is sure to stay within it. (Parquet specification: Bloom filter.)
        room = most if most & (most - 1) == 0 else 1 << (most.bit_length() - 1)
        fitting = int(room * -math.log(1 - fpp ** (1 / 8)) * 0.999)
        found[path] = {"ndv": max(1, min(distinct, fitting)), "fpp": fpp}
    return found


def _probability(properties: Mapping[str, str], name: str) -> float:
    text = properties.get(name, "0.01").strip()
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise InputError(f"the table's property {name} is {text!r}", field=name, hint="set it between 0 and 1")
    return value
