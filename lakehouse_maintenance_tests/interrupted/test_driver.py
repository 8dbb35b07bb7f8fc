"""The driver itself: kills are real and where they are said to be, and what goes wrong after one is seen."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from lakehouse_maintenance_tests.interrupted.conftest import Prepare
from lakehouse_maintenance_tests.interrupted.counting import Counting, install
from lakehouse_maintenance_tests.interrupted.driver import CHANGING, Kill, sample
from lakehouse_maintenance_tests.interrupted.places import Place
from lakehouse_maintenance_tests.interrupted.scenarios import COMPACTION, EXPIRY
from lakehouse_maintenance_tests.interrupted.soundness import state_of, writer
from lakehouse_maintenance_tests.interrupted.warm import WarmProcess


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def fail() -> None:
    raise ValueError("of the child")


def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def end_early() -> None:
    os._exit(7)


def remember() -> str:
    """What a run before left in this process, were it the same."""
    before = os.environ.get("REMEMBERED", "nothing")
    os.environ["REMEMBERED"] = "something"
    return before


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads where Linux shows them")
def test_a_child_begins_with_one_thread(warm: WarmProcess) -> None:
    assert warm.run(threads).result() == 1


def test_children_know_nothing_of_each_other(warm: WarmProcess) -> None:
    assert [warm.run(remember).result() for _ in range(2)] == ["nothing", "nothing"]


def test_how_a_child_ends_is_told(warm: WarmProcess) -> None:
    assert warm.run(kill_myself).killed
    failed = warm.run(fail)
    assert not failed.killed
    assert "ValueError: of the child" in str(failed.error)
    with pytest.raises(RuntimeError, match="of the child"):
        failed.result()
    ended = warm.run(end_early)
    assert not ended.killed
    assert "1792" in str(ended.error), "wait status of exit code 7"


def put_three(place: Place, n: int, when: str) -> None:
    install(Counting(n, when))
    state = state_of(place)
    for key in "abc":
        state.put(key, b"", None)


@pytest.mark.parametrize(("when", "there"), [("before", ["a"]), ("after", ["a", "b"])])
def test_a_kill_comes_before_or_after_the_effect(
    warm: WarmProcess, tmp_path: Path, when: str, there: list[str]
) -> None:
    place = Place(tmp_path)
    ended = warm.run(put_three, place, 2, when)
    assert ended.killed
    assert ended.value == "state: put"
    assert sorted(key for key in state_of(place).keys("") if len(key) == 1) == there


def test_a_sample_is_the_same_each_time_and_meets_what_changes_things() -> None:
    calls = [*["storage: read"] * 30, *["state: put"] * 5, "catalog: commit", *["delete: unlink"] * 4]
    chosen = sample(calls, 12, "seed")
    assert chosen == sample(calls, 12, "seed")
    assert chosen != sample(calls, 12, "another")
    assert len(set(chosen)) == 12
    assert sum(calls[kill.n - 1].startswith(CHANGING) for kill in chosen) >= 8
    assert len(sample(calls, 1000, "seed")) == 2 * len(calls)


def test_every_kind_of_call_counts(prepare: Prepare) -> None:
    """What the product calls differently one day would silently not be killed any more."""
    compaction = set(prepare(COMPACTION).calls)
    assert {"storage: read", "storage: stat", "file: open", "file: create", "file: close"} <= compaction
    assert {"catalog: load", "catalog: commit", "state: put", "state: journal"} <= compaction
    expiry = prepare(EXPIRY).calls
    assert {"storage: list", "catalog: databases", "catalog: tables", "catalog: locate"} <= set(expiry)
    assert expiry.count("delete: unlink") > 5
    assert expiry.count("catalog: commit") == 1


def lose_a_file(place: Place) -> None:
    """As a fault of the product would."""
    table = writer(place).load_table("db.t")
    path = next(iter(table.scan().plan_files())).file.file_path
    Path(path.removeprefix("file://")).unlink()


def test_what_is_wrong_after_a_kill_is_seen(prepare: Prepare) -> None:
    made = prepare(EXPIRY)
    kill = Kill(len(made.calls), "before")
    made.kill_at(kill.n, kill.when)
    made.warm.run(lose_a_file, made.place).result()
    problems = "\n".join(made.after())
    assert "cannot be read" in problems
    assert "referenced files are gone" in problems
    assert "no list names" in problems
