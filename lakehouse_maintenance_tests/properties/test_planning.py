"""What holds of every plan: a rewrite never leaves more files, gains what it says, and is not asked for twice."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lakehouse_maintenance.model.files import LiveFile
from lakehouse_maintenance.model.health import TableHealth
from lakehouse_maintenance.model.snapshots import RefFact, SnapshotFact
from lakehouse_maintenance.planning.compaction import output_files, recheck
from lakehouse_maintenance.planning.expiry import expired_snapshots
from lakehouse_maintenance.planning.rewrite_options import RewriteOptions
from lakehouse_maintenance.planning.score import score
from lakehouse_maintenance_tests.planning_facts import MB, Table, data_file, delete_file, rewritten

TARGET = 100 * MB


@st.composite
def rewrite_options(draw, *, group_targets: int = 20) -> RewriteOptions:
    """Groups hold `group_targets` files of the target size or more, as any setting in use does (the default: 200)."""
    return RewriteOptions(
        TARGET,
        int(TARGET * draw(st.sampled_from([0.75, 0.5, 0.9]))),
        int(TARGET * draw(st.sampled_from([1.8, 1.3, 3.0]))),
        min_input_files=draw(st.integers(1, 8)),
        max_file_group_size_bytes=TARGET * draw(st.sampled_from([group_targets, 1000])),
        rewrite_all=draw(st.booleans()),
        delete_file_threshold=draw(st.sampled_from([1, 2, 5, (1 << 31) - 1])),
        delete_ratio_threshold=draw(st.sampled_from([0.1, 0.3, 1.0])),
    )


PARTITIONS = [("[]", 0), ("[1]", 0), ("[]", 1)]
# In hundredths of a megabyte: small ones, ones around every border, and oversized ones.
SIZES = st.one_of(st.integers(0, 8_000), st.integers(5_000, 20_000), st.integers(0, 150_000))
FILES = st.tuples(st.sampled_from(PARTITIONS), SIZES, st.integers(0, 1000), st.sampled_from("PPPPA"))
DELETES = st.tuples(
    st.sampled_from(PARTITIONS), st.none() | st.integers(0, 15), st.integers(1, 1000), st.integers(0, 9)
)


@st.composite
def tables(draw) -> Table:
    """Up to three partitions of two specs, deletes for files and for partitions, files that cannot be rewritten."""
    data = [
        data_file(
            f"f{number}",
            size / 100,
            partition=partition,
            spec=spec,
            form="AVRO" if form == "A" else "PARQUET",
            records=records,
        )
        for number, ((partition, spec), size, records, form) in enumerate(draw(st.lists(FILES, max_size=16)))
    ]
    deletes = [
        delete_file(
            f"d{number}",
            of=None if of is None else f"f{of}",
            partition=partition,
            spec=spec,
            records=records,
            equality=of is None and kind < 3,
        )
        for number, ((partition, spec), of, records, kind) in enumerate(draw(st.lists(DELETES, max_size=5)))
    ]
    return Table(tuple(data), tuple(deletes))


JITTER = st.lists(st.floats(0.9, 1.1), min_size=4, max_size=4)


@given(tables(), rewrite_options(), JITTER)
def test_a_second_plan_finds_nothing(before, options, jitter):
    after = rewritten(before, before.plan(options), lambda n: jitter[n % len(jitter)])
    assert not after.plan(options).groups


@given(tables(), rewrite_options(group_targets=1), JITTER)
def test_it_ends_even_with_the_smallest_groups(before, options, jitter):
    """Groups about as small as one file leave remainders that the next plan may merge; files only get fewer."""
    current = before
    for _ in range(len(before.data) + len(before.deletes) + 1):
        plan = current.plan(options)
        if not plan.groups:
            return
        following = rewritten(current, plan, lambda n: jitter[n % len(jitter)])
        assert (len(following.data), _applied(following)) < (len(current.data), _applied(current)) or (
            len(following.data) <= len(current.data) and _applied(following) < _applied(current)
        )
        current = following
    raise AssertionError("still planning")


@given(tables(), rewrite_options())
def test_each_group_gains_and_never_leaves_more_files(before, options):
    by_path = {file.path: file for file in before.data}
    seen: set[str] = set()
    for group in before.plan(options).groups:
        paths = {file.path for file in group.files}
        assert len(paths) == len(group.files)
        assert not paths & seen
        seen |= paths
        assert 1 <= group.expected_files <= len(group.files)
        assert group.expected_files < len(group.files) or any(file.deletes for file in group.files)
        assert {by_path[path].partition_id for path in paths} == {(group.spec_id, group.partition)}
        assert len(group.files) == 1 or group.bytes <= options.max_file_group_size_bytes


@given(tables(), rewrite_options(), JITTER)
def test_what_is_promised_comes_true(before, options, jitter):
    plan = before.plan(options)
    after = rewritten(before, plan, lambda n: jitter[n % len(jitter)])
    assert len(before.data) - len(after.data) == plan.fewer_files
    reaching_before = {d.identity for d in before.deletes if _reaches_any(before, d)}
    assert len(reaching_before - {d.identity for d in after.deletes}) == plan.fewer_deletes


@given(tables(), rewrite_options(), st.randoms(use_true_random=False))
def test_order_and_reading_again_change_nothing(before, options, random):
    shuffled = list(before.data)
    random.shuffle(shuffled)
    plan = before.plan(options)
    assert replace(before, data=tuple(shuffled)).plan(options) == plan
    current = {file.path: file for file in before.data}
    for group in plan.groups:
        assert recheck(group, current, before.index, before.state, options) == group


@given(tables(), rewrite_options(), st.sets(st.integers(0, 24)))
def test_rechecking_only_ever_drops(before, options, vanished):
    current = {file.path: file for n, file in enumerate(before.data) if n not in vanished}
    for group in before.plan(options).groups:
        left = recheck(group, current, before.index, before.state, options)
        if left is None:
            continue
        assert {file.path for file in left.files} <= {file.path for file in group.files} & current.keys()
        assert left.expected_files < len(left.files) or any(file.deletes for file in left.files)


@given(st.integers(0, 50 * TARGET), st.integers(0, 10 * TARGET), rewrite_options())
def test_more_bytes_never_become_fewer_files(size, more, options):
    assert output_files(size, options) <= output_files(size + more, options)


@given(rewrite_options())
def test_options_survive_the_plan_file(options):
    assert RewriteOptions.from_text(options.as_text()) == options


SYMPTOMS = ("small_files", "delete_files", "deleted_rows", "manifests", "expired_snapshots")


@given(
    st.fixed_dictionaries({name: st.integers(0, 10**6) for name in SYMPTOMS}),
    st.integers(0, 10**6),
    st.integers(0, 10**9),
    st.sampled_from(SYMPTOMS),
    st.integers(0, 10**6),
)
def test_more_of_a_symptom_never_scores_higher(symptoms, data_files, records, grown, by):
    symptoms["small_files"] = min(symptoms["small_files"], data_files)
    health = TableHealth("t", data_files=data_files, records=records, **symptoms)
    assert 0 <= score(health) <= 100
    assert score(replace(health, **{grown: symptoms[grown] + by})) <= score(health)


class ExpirePolicy:
    """The two fields of a policy that expiry reads."""

    def __init__(self, older_than, retain_last):
        self.older_than = older_than
        self.retain_last = retain_last


@st.composite
def histories(draw) -> tuple[list[SnapshotFact], list[RefFact]]:
    """Snapshots with earlier ones as parents (some expired), branches and tags with and without own retention."""
    count = draw(st.integers(1, 12))
    snapshots = []
    for number in range(1, count + 1):
        parent = draw(st.none() | st.integers(0, number - 1))
        snapshots.append(SnapshotFact(number, parent, 100 * number + draw(st.integers(-150, 150))))
    maybe = st.none() | st.integers(0, 1500)
    refs = [RefFact("main", "branch", draw(st.integers(1, count)), None, draw(maybe), draw(st.none() | st.just(2)))]
    for number in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["branch", "tag"]))
        own = (draw(maybe), draw(maybe), draw(st.none() | st.integers(1, 4))) if kind == "branch" else (draw(maybe),)
        refs.append(RefFact(f"r{number}", kind, draw(st.integers(1, count)), *own))
    return snapshots, refs


@given(histories(), st.integers(0, 1500), st.integers(1, 5), st.integers(0, 500), st.integers(0, 3))
def test_longer_retention_only_ever_keeps_more(history, age, keep, longer, more):
    snapshots, refs = history
    now = 1300

    def gone(older_than_ms: int, retain_last: int) -> set[int]:
        properties = {
            "history.expire.max-snapshot-age-ms": str(older_than_ms),
            "history.expire.min-snapshots-to-keep": str(retain_last),
        }
        return set(expired_snapshots(snapshots, refs, ExpirePolicy(None, None), properties, now).snapshot_ids)

    assert gone(age + longer, keep + more) <= gone(age, keep)


@given(histories(), st.integers(0, 1500), st.integers(1, 5))
def test_heads_that_stay_are_kept(history, age, keep):
    snapshots, refs = history
    rules = {"history.expire.max-snapshot-age-ms": str(age), "history.expire.min-snapshots-to-keep": str(keep)}
    expired = expired_snapshots(snapshots, refs, ExpirePolicy(None, None), rules, 1300)
    heads = {ref.snapshot_id for ref in refs if ref.name not in expired.refs}
    assert not heads & set(expired.snapshot_ids)
    assert "main" not in expired.refs


def _reaches_any(table: Table, delete: LiveFile) -> bool:
    index = table.index
    return any(delete in (*index.position_deletes_for(file), *index.equality_deletes_for(file)) for file in table.data)


def _applied(table: Table) -> int:
    """Pairs of data file and delete that a reader meets."""
    state = table.state
    return sum(len(table.index.equality_deletes_for(file)) for file in table.data) + sum(
        1
        for file in table.data
        for delete in table.index.position_deletes_for(file)
        if delete.referenced_data_file is not None
        or state.snapshot_times[delete.snapshot_id] >= state.snapshot_times[file.snapshot_id]
    )
