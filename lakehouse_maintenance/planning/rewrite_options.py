"""The options of `rewrite_data_files`, by Iceberg's own names (Iceberg: Spark procedures, `rewrite_data_files`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from lakehouse_maintenance.config.options import JOB_ORDERS, REWRITE_OPTIONS
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.intervals import GB, MB, parse_size
from lakehouse_maintenance.model.nearest import suggestion
from lakehouse_maintenance.model.sort_orders import SortOrder

TARGET = "target-file-size-bytes"
MIN_SIZE = "min-file-size-bytes"
MAX_SIZE = "max-file-size-bytes"
MIN_INPUT = "min-input-files"
GROUP_SIZE = "max-file-group-size-bytes"
REWRITE_ALL = "rewrite-all"
DELETE_FILES = "delete-file-threshold"
DELETE_RATIO = "delete-ratio-threshold"
AT_ONCE = "max-concurrent-file-group-rewrites"
PARTIAL = "partial-progress.enabled"
MOST_COMMITS = "partial-progress.max-commits"
FAILED_COMMITS = "partial-progress.max-failed-commits"
JOB_ORDER = "rewrite-job-order"
STARTING_NUMBER = "use-starting-sequence-number"
DANGLING = "remove-dangling-deletes"
SETTLE = "settle-ms"
SPLIT = "split-oversized"
STRATEGY = "strategy"
SORT_ORDER = "sort-order"
SORT_ORDER_ID = "sort-order-id"
REORDER_ABOVE = "reorder-above-sequence-number"
REORDER_TO = "reorder-to-sequence-number"
OUTPUT_SPEC = "output-spec-id"
VERIFY_ROWS = "verify-rows"

TARGET_PROPERTY = "write.target-file-size-bytes"
DEFAULT_TARGET = 512 * MB
DEFAULT_GROUP_SIZE = 100 * GB
NEVER = (1 << 31) - 1
"""`delete-file-threshold` where it is not set: no number of delete files alone makes a file a candidate."""

HONOURED = frozenset(
    {
        *(TARGET, MIN_SIZE, MAX_SIZE, MIN_INPUT, GROUP_SIZE, REWRITE_ALL, DELETE_FILES, DELETE_RATIO),
        *(AT_ONCE, PARTIAL, MOST_COMMITS, FAILED_COMMITS, JOB_ORDER, STARTING_NUMBER, DANGLING),
    }
)
_OURS = frozenset({SETTLE, SPLIT})
"""Settings that are no options of Iceberg's: they come from the policy and from who asks."""
_WHERE_GIVEN = frozenset({OUTPUT_SPEC, VERIFY_ROWS})
"""Options that a plan's settings name only where they change something."""


@dataclass(frozen=True, slots=True)
class RewriteOptions:
    """The settings in force for one table. Sizes in bytes; `settle_ms` in milliseconds, 0 where nothing has to settle.

    Files below the minimum, above the maximum, or with too many deletes are candidates; a group is rewritten when it
    has enough of them or enough content. `split_oversized`: a file above the maximum is split also where that leaves
    more files. `max_failed_commits` counts where `partial_progress` is on.

    `sort_order`: canonical text of the order that rows get (see sort_orders), None to keep them as they are.
    `sort_order_id`: the id of this very order in the table, if it has one: files that do not carry it are out of order.
    `reorder`: files overlap too much (IM-15): those of a data sequence number above its first number, which is what
    the last such rewrite left behind, are out of order as well; its second number is the head's, for the next time.

    `output_spec_id`: the partition spec that files of other specs are brought under; None: each file keeps its own.
    `verify_rows`: rows are read and compared after the commit (IM-13).
    """

    target_file_size_bytes: int
    min_file_size_bytes: int
    max_file_size_bytes: int
    min_input_files: int = 5
    max_file_group_size_bytes: int = DEFAULT_GROUP_SIZE
    rewrite_all: bool = False
    delete_file_threshold: int = NEVER
    delete_ratio_threshold: float = 0.3
    settle_ms: int = 0
    max_concurrent_groups: int = 5
    partial_progress: bool = False
    max_commits: int = 10
    max_failed_commits: int = 10
    job_order: str = "none"
    use_starting_sequence_number: bool = True
    remove_dangling_deletes: bool = True
    split_oversized: bool = False
    strategy: str = "binpack"
    sort_order: str | None = None
    sort_order_id: int | None = None
    reorder: tuple[int, int] | None = None
    output_spec_id: int | None = None
    verify_rows: bool = False

    @classmethod
    def resolve(
        cls,
        options: Mapping[str, str],
        properties: Mapping[str, str],
        *,
        settle: timedelta = timedelta(0),
        split_oversized: bool = False,
    ) -> RewriteOptions:
        """Option over the table's `write.target-file-size-bytes` over 512 MB; minimum 75 % and maximum 180 % of it.

        Raises InputError whose `field` is the option (or property) that is unknown, unreadable, or does not fit the
        others.
        """
        for name in options:
            if name not in REWRITE_OPTIONS:
                raise InputError(
                    f"{name!r} is not an option of rewrite_data_files",
                    field=name,
                    hint=suggestion(name, REWRITE_OPTIONS),
                )
        target = _size(options, TARGET, 0) if TARGET in options else _size(properties, TARGET_PROPERTY, DEFAULT_TARGET)
        # In whole numbers, rounded down as a Java long would be.
        minimum = _size(options, MIN_SIZE, target * 3 // 4)
        maximum = _size(options, MAX_SIZE, target * 9 // 5)
        if target <= 0:
            where = TARGET if TARGET in options else TARGET_PROPERTY
            raise InputError(f"{where} is {target}", field=where, hint="write a size above 0")
        if minimum >= target:
            raise InputError(
                f"{MIN_SIZE} ({minimum}) is not below the target ({target}): all that is written would be too small",
                field=MIN_SIZE,
                hint=f"set it below {TARGET}, or leave it out for 75 % of the target",
            )
        if maximum <= target:
            raise InputError(
                f"{MAX_SIZE} ({maximum}) is not above the target ({target}): all that is written would be too large",
                field=MAX_SIZE,
                hint=f"set it above {TARGET}, or leave it out for 180 % of the target",
            )
        group_size = _size(options, GROUP_SIZE, DEFAULT_GROUP_SIZE)
        if group_size <= 0:
            raise InputError(f"{GROUP_SIZE} is {group_size}", field=GROUP_SIZE, hint="write a size above 0")
        most_commits = _count(options, MOST_COMMITS, 10, at_least=1)
        return cls(
            target_file_size_bytes=target,
            min_file_size_bytes=minimum,
            max_file_size_bytes=maximum,
            min_input_files=_count(options, MIN_INPUT, 5, at_least=1),
            max_file_group_size_bytes=group_size,
            rewrite_all=_flag(options, REWRITE_ALL),
            delete_file_threshold=_count(options, DELETE_FILES, NEVER, at_least=0),
            delete_ratio_threshold=_ratio(options, DELETE_RATIO, 0.3),
            settle_ms=settle // timedelta(milliseconds=1),
            max_concurrent_groups=_count(options, AT_ONCE, 5, at_least=1),
            partial_progress=_flag(options, PARTIAL),
            max_commits=most_commits,
            max_failed_commits=_count(options, FAILED_COMMITS, most_commits, at_least=0),
            job_order=_job_order(options),
            use_starting_sequence_number=_flag(options, STARTING_NUMBER, default=True),
            remove_dangling_deletes=_flag(options, DANGLING, default=True),
            split_oversized=split_oversized,
            output_spec_id=_count(options, OUTPUT_SPEC, 0, at_least=0) if OUTPUT_SPEC in options else None,
            verify_rows=_flag(options, VERIFY_ROWS),
        )

    def as_text(self) -> dict[str, str]:
        """For a plan and its digest: every setting by Iceberg's option name, sizes in bytes. `from_text` is inverse."""
        return {
            TARGET: str(self.target_file_size_bytes),
            MIN_SIZE: str(self.min_file_size_bytes),
            MAX_SIZE: str(self.max_file_size_bytes),
            MIN_INPUT: str(self.min_input_files),
            GROUP_SIZE: str(self.max_file_group_size_bytes),
            REWRITE_ALL: _text(self.rewrite_all),
            DELETE_FILES: str(self.delete_file_threshold),
            DELETE_RATIO: repr(self.delete_ratio_threshold),
            SETTLE: str(self.settle_ms),
            AT_ONCE: str(self.max_concurrent_groups),
            PARTIAL: _text(self.partial_progress),
            MOST_COMMITS: str(self.max_commits),
            FAILED_COMMITS: str(self.max_failed_commits),
            JOB_ORDER: self.job_order,
            STARTING_NUMBER: _text(self.use_starting_sequence_number),
            DANGLING: _text(self.remove_dangling_deletes),
            SPLIT: _text(self.split_oversized),
            **self._layout_as_text(),
            **({} if self.output_spec_id is None else {OUTPUT_SPEC: str(self.output_spec_id)}),
            **({VERIFY_ROWS: "true"} if self.verify_rows else {}),
        }

    def _layout_as_text(self) -> dict[str, str]:
        """Nothing for binpack, whose digests stay what they were."""
        if self.sort_order is None:
            return {}
        found = {STRATEGY: self.strategy, SORT_ORDER: self.sort_order}
        if self.sort_order_id is not None:
            found[SORT_ORDER_ID] = str(self.sort_order_id)
        if self.reorder is not None:
            found[REORDER_ABOVE], found[REORDER_TO] = map(str, self.reorder)
        return found

    def with_layout(self, strategy: str, order: SortOrder | None, order_id: int | None) -> RewriteOptions:
        """The same, with the order that rows get; None for binpack."""
        text = None if order is None else order.text
        return replace(self, strategy=strategy, sort_order=text, sort_order_id=order_id)

    @classmethod
    def from_text(cls, text: Mapping[str, str]) -> RewriteOptions:
        """Inverse of `as_text`. Raises InputError where a setting is missing or unreadable."""
        missing = [name for name in (*sorted(HONOURED), *sorted(_OURS)) if name not in text]
        if missing:
            raise InputError(f"the plan's options lack {missing[0]!r}", field=missing[0], hint="make the plan anew")
        settle = timedelta(milliseconds=_count(text, SETTLE, 0, at_least=0))
        given = {name: text[name] for name in HONOURED | (_WHERE_GIVEN & text.keys())}
        options = cls.resolve(given, {}, settle=settle, split_oversized=_flag(text, SPLIT))
        if SORT_ORDER not in text:
            return options
        order_id = _count(text, SORT_ORDER_ID, 0, at_least=0) if SORT_ORDER_ID in text else None
        reorder: tuple[int, int] | None = None
        if REORDER_ABOVE in text:
            to = _count(text, REORDER_TO, 0, at_least=0)
            # -1: this order was never given before.
            reorder = (-1 if text[REORDER_ABOVE] == "-1" else _count(text, REORDER_ABOVE, 0, at_least=0), to)
        return replace(
            options,
            strategy=text.get(STRATEGY, "sort"),
            sort_order=text[SORT_ORDER],
            sort_order_id=order_id,
            reorder=reorder,
        )


def _size(values: Mapping[str, str], name: str, default: int) -> int:
    return parse_size(values[name], field=name) if name in values else default


def _count(values: Mapping[str, str], name: str, default: int, *, at_least: int) -> int:
    if name not in values:
        return default
    text = values[name].strip()
    if not (text.isascii() and text.isdigit()) or int(text) < at_least:
        raise InputError(f"{name} is {text!r}", field=name, hint=f"write a whole number, {at_least} or more")
    return int(text)


def _ratio(values: Mapping[str, str], name: str, default: float) -> float:
    if name not in values:
        return default
    text = values[name].strip()
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    # "nan" is in no range either.
    if not 0 < ratio <= 1:
        raise InputError(f"{name} is {text!r}", field=name, hint="write a number above 0, 1 at most")
    return ratio


def _job_order(values: Mapping[str, str]) -> str:
    text = values.get(JOB_ORDER, "none").strip().lower()
    if text not in JOB_ORDERS:
        raise InputError(f"{JOB_ORDER} is {text!r}", field=JOB_ORDER, hint=f"one of {', '.join(JOB_ORDERS)}")
    return text


def _text(flag: bool) -> str:
    return "true" if flag else "false"


def _flag(values: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    text = values.get(name, _text(default)).strip().lower()
    if text not in ("true", "false"):
        raise InputError(f"{name} is {text!r}", field=name, hint="write true or false")
    return text == "true"
