"""Runs an action in a process that is killed at its n-th call, runs the next one, and looks whether all is well.

A `Scenario` is a few functions of a module (a forked child gets them by name):
  - `build(place)` makes the lakehouse once and returns what is expected of it ever after, in a form of its own;
  - `act(place)` is the action under test; it is given the same files at the same place before each kill;
  - `follow(place)` is the next run: as a user would start it, after the dead run's leases have ended;
  - `look(place)` returns what there is, before the action and again before that run;
  - `check(place, expected, course)` returns a line for everything that is wrong in the end;
  - `again(place)` is called whenever files were put back: where the store has given them new times that matter.
See scenarios.py for those that exist.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from lakehouse_maintenance_tests.interrupted.counting import Counting, install
from lakehouse_maintenance_tests.interrupted.places import Place
from lakehouse_maintenance_tests.interrupted.warm import Ended, WarmProcess

SEED = "interrupt everywhere"
WHEN = ("before", "after")
LATER = timedelta(hours=1)
"""By so much the clock of leases is ahead in the next run: those of the dead run have ended."""


@dataclass(frozen=True, slots=True)
class Course:
    """`before` the action and `between` it and the next run: what `look` returned; `told`: what `follow` returned."""

    before: Any
    between: Any
    told: Any


@dataclass(frozen=True, slots=True)
class Scenario:
    """See the module's text. `follow` without a value is `act` again.

    `only_changing`: `kills` leaves out calls that change nothing. A process that is killed at one leaves what it would
    have left killed at the change before, so with hundreds of files nothing more is learned from them.
    """

    name: str
    build: Callable[[Place], Any]
    act: Callable[[Place], Any]
    look: Callable[[Place], Any]
    check: Callable[[Place, Any, Course], list[str]]
    follow: Callable[[Place], Any] | None = None
    again: Callable[[Place], Any] | None = None
    only_changing: bool = False


@dataclass(frozen=True, slots=True)
class Kill:
    """Where to kill: at the `n`-th call, counted from 1, `before` it or `after` it has had its effect."""

    n: int
    when: str

    def __str__(self) -> str:
        return f"{self.when} call {self.n}"


@dataclass(frozen=True, slots=True)
class Found:
    """What one kill led to. `call`: the name of the call; `problems`: empty where all is well."""

    kill: Kill
    call: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"killed {self.kill} ({self.call}): " + "; ".join(self.problems)


@dataclass
class Prepared:
    """A scenario that has been built at a place, and can be run there again and again."""

    scenario: Scenario
    place: Place
    warm: WarmProcess
    expected: Any = field(default=None, init=False)
    before: Any = field(default=None, init=False)
    calls: list[str] = field(default_factory=list, init=False)

    def build(self) -> None:
        """Builds, keeps a copy, and counts the calls of a run that nobody kills, which must be well, too."""
        self.place.clear()
        self.expected = self.warm.run(self.scenario.build, self.place).result()
        self._keep()
        problems = self.after()
        assert not problems, f"{self.scenario.name}: wrong without any kill: {problems}"

    def calls_of(self) -> list[str]:
        """Names of the calls of an action that nobody kills, in their order."""
        self._reset()
        names: list[str] = self.warm.run(_counted, self.scenario.act, self.place).result()
        return names

    def _reset(self) -> None:
        self.place.reset()
        if self.scenario.again is not None:
            self.warm.run(self.scenario.again, self.place).result()

    def _keep(self) -> None:
        self.place.keep()
        self.before = self.warm.run(self.scenario.look, self.place).result()
        self.calls = self.calls_of()

    def recovery(self, kill: Kill) -> Prepared:
        """What a kill left, as the state from which the next run, killed in its turn, starts each time."""
        self.kill_at(kill.n, kill.when)
        place = replace(self.place, kept=f"{kill.when}-{kill.n}", ahead=self.place.ahead + LATER)
        scenario = replace(
            self.scenario,
            name=f"recovery of {self.scenario.name} killed {kill}",
            act=self.scenario.follow or self.scenario.act,
        )
        made = Prepared(scenario, place, self.warm)
        made.expected = self.expected
        made._keep()
        return made

    def point(self, name: str, number: int, when: str) -> Kill:
        """The `number`-th call of this name, counted from 1."""
        found = [n for n, call in enumerate(self.calls, 1) if call == name]
        return Kill(found[number - 1], when)

    def kills(self) -> list[Kill]:
        """Every point at which the action can be killed: see `Scenario.only_changing`."""
        every = [Kill(n, when) for n in range(1, len(self.calls) + 1) for when in WHEN]
        if not self.scenario.only_changing:
            return every
        return [kill for kill in every if self.calls[kill.n - 1].startswith(CHANGING)]

    def sample(self, size: int) -> list[Kill]:
        """Some of them, the same each time: see `sample`."""
        return sample(self.calls, size, f"{SEED}: {self.scenario.name}")

    def kill_at(self, n: int, when: str = "before") -> Ended:
        """Runs the action on fresh files and kills it there."""
        self._reset()
        return self.warm.run(_killed, self.scenario.act, self.place, n, when)

    def after(self) -> list[str]:
        """The next run, and what is wrong after it."""
        ended = self.warm.run(_followed, self.scenario, self.place, self.expected, self.before)
        if ended.error is not None or ended.killed:
            return [f"the next run failed: {ended.error}\n{ended.said}"]
        problems: list[str] = ended.value
        return problems

    def interrupt(self, kill: Kill) -> Found:
        """One kill, the next run, and what came of it."""
        ended = self.kill_at(kill.n, kill.when)
        if not ended.killed and ended.error is not None:
            return Found(kill, "not reached", (f"the action failed: {ended.error}\n{ended.said}",))
        # With threads a run may have a call more or less: one that ended unkilled must be as well as any other.
        call = str(ended.value) if ended.killed else "not reached"
        return Found(kill, call, tuple(self.after()))

    def interrupt_all(self, kills: Sequence[Kill]) -> list[Found]:
        """All that went wrong. Raises AssertionError where the action was hardly ever killed."""
        found = [self.interrupt(kill) for kill in kills]
        missed = [one for one in found if one.call == "not reached"]
        assert len(missed) <= 1 + len(found) // 10, f"{len(missed)} of {len(found)} kills were not reached"
        return [one for one in found if one.problems]


CHANGING = (
    *("file: create", "file: close", "delete:", "catalog: commit", "catalog: create", "state:"),
    *("storage: put", "storage: copy", "storage: link"),
    *("vendor: Put", "vendor: Copy", "vendor: Delete", "vendor: Complete"),
)


def sample(calls: Sequence[str], size: int, seed: str) -> list[Kill]:
    """A seeded choice: two thirds at calls that change something, the rest at any."""
    dice = random.Random(seed)
    points = [Kill(n, when) for n in range(1, len(calls) + 1) for when in WHEN]
    changing = [kill for kill in points if calls[kill.n - 1].startswith(CHANGING)]
    chosen = dice.sample(changing, min(len(changing), -(-size * 2 // 3)))
    others = [kill for kill in points if kill not in chosen]
    chosen += dice.sample(others, min(len(others), size - len(chosen)))
    return sorted(chosen, key=lambda kill: (kill.n, kill.when))


@contextmanager
def prepared(scenario: Scenario, place: Place) -> Iterator[Prepared]:
    """Built, with a warm process of its own."""
    warm = WarmProcess()
    try:
        made = Prepared(scenario, place, warm)
        made.build()
        yield made
    finally:
        warm.close()


def _counted(act: Callable[[Place], Any], place: Place) -> list[str]:
    counting = Counting()
    install(counting)
    act(place)
    return counting.names


def _killed(act: Callable[[Place], Any], place: Place, n: int, when: str) -> None:
    install(Counting(n, when))
    act(place)


def _followed(scenario: Scenario, place: Place, expected: Any, before: Any) -> list[str]:
    later = replace(place, ahead=place.ahead + LATER)
    between = scenario.look(later)
    told = (scenario.follow or scenario.act)(later)
    return scenario.check(later, expected, Course(before, between, told))
