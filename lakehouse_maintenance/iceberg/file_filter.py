"""Which data files may hold rows that a `where` is true for (IM-01). It chooses files, never rows.

Inclusive projection (Iceberg spec: Scan Planning): a file is left out only where its partition tuple, or its column
bounds and counts, prove that no row of it can match. An own evaluator: PyIceberg's raises on bounds of other lengths,
takes a 32-bit float for another number than its literal, and knows nothing of how Java partitioned times before 1970.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyiceberg.expressions import BoundTerm
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, extract_field_ids, visit
from pyiceberg.schema import Schema
from pyiceberg.types import FloatType, NestedField, UUIDType

from lakehouse_maintenance.iceberg.column_facts import Facts, PartitionFacts, bounds_facts
from lakehouse_maintenance.iceberg.fields import DELETED, STATISTICS
from lakehouse_maintenance.iceberg.filter_text import bind_filter
from lakehouse_maintenance.iceberg.manifests import ManifestFile, ManifestReader
from lakehouse_maintenance.iceberg.metadata import Metadata
from lakehouse_maintenance.model.files import LiveFile

_OTHER_STATISTICS = STATISTICS - {
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
}
_MOST_REMEMBERED = 100_000


class FileFilter:
    """The files of one table that may hold matching rows. Raises InputError of field `where` when it is made."""

    def __init__(self, metadata: Metadata, where: str) -> None:
        schema = Schema.model_validate(metadata.current_schema)
        self._bound = bind_filter(where, schema)
        self._field_ids = extract_field_ids(self._bound)
        self._partitions = {spec_id: PartitionFacts(schema, fields) for spec_id, fields in metadata.specs.items()}
        self._remembered: dict[tuple[int, str], bool] = {}

    def choose(self, reader: ManifestReader, manifests: Iterable[ManifestFile]) -> Iterator[tuple[LiveFile, bool]]:
        """Each live file, in the order of `ManifestReader.live_files`, and whether it may hold matching rows.

        Bounds are read only of manifests with a file that its partition does not rule out; one manifest at a time.
        """
        for manifest, files in reader.live_files_by_manifest(manifests):
            verdicts = [self._by_partition(file) for file in files]
            if any(verdicts) and not self._is_decided_by_partition(manifest.spec_id):
                entries = reader.entries(manifest, _OTHER_STATISTICS).records
                records = (entry["data_file"] for entry in entries if entry["status"] != DELETED)
                verdicts = [
                    verdict and self._by_all(file, record)
                    for file, verdict, record in zip(files, verdicts, records, strict=True)
                ]
            yield from zip(files, verdicts, strict=True)

    def _is_decided_by_partition(self, spec_id: int) -> bool:
        partitions = self._partitions.get(spec_id)
        return partitions is not None and all(map(partitions.decides, self._field_ids))

    def _by_partition(self, file: LiveFile) -> bool:
        verdict = self._remembered.get(file.partition_id)
        if verdict is None:
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            verdict = visit(self._bound, _MayMatch(lambda field: self._partition_facts(field, file)))
            self._remembered[file.partition_id] = verdict
        return verdict

    def _by_all(self, file: LiveFile, record: dict[str, Any]) -> bool:
        if record["record_count"] == 0:
            return False

        def facts(field: NestedField) -> list[Facts]:
            bounds = bounds_facts(field.field_type, field.field_id, record)
            return [*self._partition_facts(field, file), bounds]

        return visit(self._bound, _MayMatch(facts))

    def _partition_facts(self, field: NestedField, file: LiveFile) -> list[Facts]:
        partitions = self._partitions.get(file.spec_id)
        return [] if partitions is None else partitions.of(field.field_id, file.partition)


class _MayMatch(BoundBooleanExpressionVisitor[bool]):
    """False only where the facts rule out every row. `facts`: all that is known of a column in the file."""

    def __init__(self, facts: Callable[[NestedField], list[Facts]]) -> None:
        self._facts = facts

    def _all(self, term: BoundTerm, may: Callable[[Facts], bool]) -> bool:
        return all(map(may, self._facts(term.ref().field)))

    def visit_true(self) -> bool:
        return True

    def visit_false(self) -> bool:
        return False

    def visit_not(self, child_result: bool) -> bool:
        raise ValueError("NOT was rewritten when the filter was bound")

    def visit_and(self, left_result: bool, right_result: bool) -> bool:
        return left_result and right_result

    def visit_or(self, left_result: bool, right_result: bool) -> bool:
        return left_result or right_result

    def visit_is_null(self, term: BoundTerm) -> bool:
        return self._all(term, lambda facts: facts.nulls)

    def visit_not_null(self, term: BoundTerm) -> bool:
        return self._all(term, lambda facts: facts.values or facts.nans)

    def visit_is_nan(self, term: BoundTerm) -> bool:
        return self._all(term, lambda facts: facts.nans)

    def visit_not_nan(self, term: BoundTerm) -> bool:
        return self._all(term, lambda facts: facts.values or facts.nulls)

    def visit_less_than(self, term: BoundTerm, literal: Literal[Any]) -> bool:
        _, high = _span(term, literal)
        return self._all(term, lambda facts: facts.values and _may_be_below(term, facts, high, inclusive=high == 0))

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> bool:
        _, high = _span(term, literal)
        return self._all(term, lambda facts: facts.values and _may_be_below(term, facts, high, inclusive=True))

    def visit_greater_than(self, term: BoundTerm, literal: Literal[Any]) -> bool:
        low, _ = _span(term, literal)
        return self._all(term, lambda facts: _may_exceed(term, facts, low, inclusive=low == 0))

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> bool:
        low, _ = _span(term, literal)
        return self._all(term, lambda facts: _may_exceed(term, facts, low, inclusive=True))

    def visit_equal(self, term: BoundTerm, literal: Literal[Any]) -> bool:
        span = _span(term, literal)
        return self._all(term, lambda facts: _may_be(facts, span))

    def visit_in(self, term: BoundTerm, literals: set[Any]) -> bool:
        spans = [_span(term, literal) for literal in literals]
        return self._all(term, lambda facts: any(_may_be(facts, span) for span in spans))

    def visit_not_equal(self, term: BoundTerm, literal: Literal[Any]) -> bool:
        span = _span(term, literal)
        return self._all(term, lambda facts: facts.nulls or facts.nans or not _is_sure(facts, span))

    def visit_not_in(self, term: BoundTerm, literals: set[Any]) -> bool:
        spans = [_span(term, literal) for literal in literals]
        return self._all(
            term, lambda facts: facts.nulls or facts.nans or not any(_is_sure(facts, span) for span in spans)
        )

    def visit_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> bool:
        return self._all(term, lambda facts: facts.values and _may_begin(facts, literal.value))

    def visit_not_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> bool:
        return self._all(term, lambda facts: facts.nulls or not _always_begins(facts, literal.value))


Span = tuple[Any, Any]


def _span(term: BoundTerm, literal: Any) -> Span:
    """What a literal may stand for. Some readers compare a 32-bit float with `0.1` as 64 bits, some as 32."""
    value = literal.value if isinstance(literal, Literal) else literal
    if isinstance(term.ref().field.field_type, FloatType):
        try:
            narrow = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            return value, value
        return min(value, narrow), max(value, narrow)
    return value, value


def _may_be_below(term: BoundTerm, facts: Facts, high: Any, *, inclusive: bool) -> bool:
    # Zero is inclusive: some readers take -0.0 for less than 0.0.
    if facts.lower is None or _has_no_order(term):
        return True
    return bool(facts.lower <= high if inclusive else facts.lower < high)


def _may_exceed(term: BoundTerm, facts: Facts, low: Any, *, inclusive: bool) -> bool:
    # Spark takes NaN for more than any number. Where nobody counted NaNs there are none, as Iceberg has it.
    return facts.some_nans or (facts.values and _may_be_above(term, facts, low, inclusive=inclusive))


def _may_be_above(term: BoundTerm, facts: Facts, low: Any, *, inclusive: bool) -> bool:
    if _has_no_order(term):
        return True
    if facts.prefix is not None:
        return bool(low[: len(facts.prefix)] <= facts.prefix)
    if facts.upper is None:
        return True
    return bool(facts.upper >= low if inclusive else facts.upper > low)


def _has_no_order(term: BoundTerm) -> bool:
    """Readers disagree on the order of UUIDs: as bytes, or as two signed numbers."""
    return isinstance(term.ref().field.field_type, UUIDType)


def _may_be(facts: Facts, span: Span) -> bool:
    low, high = span
    if not facts.values:
        return False
    if facts.bucket is not None:
        bucket, number = facts.bucket
        return bucket(low) == number
    if facts.prefix is not None and not low.startswith(facts.prefix):
        return False
    return (facts.lower is None or bool(facts.lower <= high)) and (facts.upper is None or bool(facts.upper >= low))


def _is_sure(facts: Facts, span: Span) -> bool:
    low, high = span
    # Zero is never sure: some readers take -0.0 for another number than 0.0.
    return facts.exact and low == high and bool(facts.lower == low) and not (isinstance(low, float) and low == 0)


def _may_begin(facts: Facts, prefix: Any) -> bool:
    if facts.prefix is not None:
        shorter = min(len(facts.prefix), len(prefix))
        return bool(facts.prefix[:shorter] == prefix[:shorter])
    if facts.exact:
        return bool(facts.lower.startswith(prefix))
    if facts.lower is not None and facts.lower[: len(prefix)] > prefix:
        return False
    return facts.upper is None or bool(facts.upper[: len(prefix)] >= prefix)


def _always_begins(facts: Facts, prefix: Any) -> bool:
    if facts.prefix is not None:
        return bool(facts.prefix.startswith(prefix))
    if facts.lower is None or facts.upper is None:
        return False
    return bool(facts.lower.startswith(prefix) and facts.upper.startswith(prefix))
