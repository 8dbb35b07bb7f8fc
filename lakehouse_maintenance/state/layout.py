"""The layout's version, and the steps from each version to the next.

A step runs before this release writes for the first time to a state of an older one; reading changes nothing. Each
version is written when its step is done. A step may run again after a crash, and at the same time on two machines, so
it uses compare-and-swap and skips what is done already. Once the version is written, processes of older releases refuse
the state, those that run included. In a folder and in PostgreSQL a step also keeps writers out while it runs; on object
storage a write that was under way may still land, which a step there has to survive.

To add a step: append it, and write down what older releases would get wrong without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakehouse_maintenance.model.errors import ConfigurationError
from lakehouse_maintenance.state.backend import FIELD
from lakehouse_maintenance.state.store import KeyValueStore


@dataclass(frozen=True, slots=True)
class Migration:
    """A step to version `to` from the one before. `apply` gets the values without any check of the version."""

    to: int
    why: str
    apply: Callable[[KeyValueStore], None]


def _values_stay(values: KeyValueStore) -> None:
    """Nothing to change."""


MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        2,
        "removal lists name an operation; a list without one means deletion, so those of version 1 hold as they are, "
        "but a release that does not know the field would delete what is to be moved",
        _values_stay,
    ),
)


def latest() -> int:
    """The version that this release writes."""
    return MIGRATIONS[-1].to


def oldest() -> int:
    """The oldest version that this release reads."""
    return MIGRATIONS[0].to - 1


def pending(version: int) -> tuple[Migration, ...]:
    """The steps that a state of the version still needs, in order."""
    return tuple(step for step in MIGRATIONS if step.to > version)


def usable(text: bytes, where: str, place: str) -> int:
    """The version that `text` holds. `where`: what holds it; `place`: the state.

    Raises ConfigurationError unless this release can use it.
    """
    found = int(text) if text.strip().isdigit() and len(text) < 20 else 0
    if oldest() <= found <= latest():
        return found
    if found > latest():
        raise ConfigurationError(
            f"the state in {place} has layout version {found}, this release knows {latest()}",
            field=FIELD,
            hint="a newer release has written it: use that release, or another state",
        )
    raise ConfigurationError(
        f"{where} holds no layout version that was ever in use",
        field=FIELD,
        hint="restore it, or use another state",
    )
