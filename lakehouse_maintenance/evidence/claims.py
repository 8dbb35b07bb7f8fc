"""Whose is this folder? All claims on storage, looked up by place: asked for every folder of a database."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from lakehouse_maintenance.evidence.owners import Look
from lakehouse_maintenance.model.folders import Claim, ClaimKind
from lakehouse_maintenance.model.locations import Location


class ClaimIndex:
    """Claims by their keys, under each way in which two places may be one (see `evidence.owners`).

    Symbolic links are followed when the index is made for the claims, and when it is asked for the folder.
    """

    def __init__(self, claims: Iterable[Claim]) -> None:
        self._claims = tuple(claims)
        spaces: dict[_Space, dict[str, list[int]]] = {}
        for number, claim in enumerate(self._claims):
            for space, key in _spelled(claim.where):
                spaces.setdefault(space, {}).setdefault(key, []).append(number)
            bare = spaces.setdefault(_bare(claim.where.family), {})
            bare.setdefault(claim.where.collapsed.key, []).append(number)
        self._families = tuple({claim.where.family: None for claim in self._claims})
        self._spaces = {space: _Keys(numbers) for space, numbers in spaces.items()}

    def meeting(self, folder: Location) -> list[Claim]:
        """All claims whose place is, contains or lies inside the folder, in their order; errs on the side of yes."""
        found: set[int] = set()
        asked = list(_spelled(folder))
        # No scheme is a spelling of another family's, and one store may be reached by both: the keys tell.
        bare = folder.collapsed.key
        asked += [(_bare(family), bare) for family in self._families if family != folder.family]
        for space, key in asked:
            keys = self._spaces.get(space)
            if keys is not None:
                found.update(keys.meeting(key))
        return [self._claims[number] for number in sorted(found)]


def claims_of(look: Look) -> list[Claim]:
    """What every visible table owns or reaches. Of a table that cannot be read, where it may: it keeps that all."""
    found: list[Claim] = []
    for owner in look.owners:
        kinds = [ClaimKind.LOCATION, *[ClaimKind.WRITE_PATH] * (len(owner.folders) - 1)]
        found += [Claim(where, owner.name, kind) for where, kind in zip(owner.folders, kinds, strict=True)]
        found += [Claim(where, owner.name, ClaimKind.FILES) for where in owner.elsewhere]
    for table in look.unread:
        found += [Claim(where, table.name, ClaimKind.LOCATION) for where in table.places]
    return found


_Space = tuple[str, str, str]
"""How the keys are spelled, the family, the bucket: only keys of one space are compared."""


def _spelled(where: Location) -> Iterator[tuple[_Space, str]]:
    """The key as it is, and as others may spell it: decoded once, on either side. Whatever lies below `a%20b` lies
    below `a b` once both are decoded."""
    yield ("decoded", where.family, where.authority), where.collapsed.key
    if "%" in where.key:
        yield ("decoded", where.family, where.authority), where.with_key(unquote(where.key)).collapsed.key
    if where.family == "file" and not where.authority:
        yield ("resolved", where.family, ""), where.resolved.collapsed.key


def _bare(family: str) -> _Space:
    return "bare", family, ""


class _Keys:
    """Keys of one space, and the numbers of the claims that have them."""

    def __init__(self, numbers: dict[str, list[int]]) -> None:
        self._numbers = numbers
        self.ordered = sorted(numbers)

    def meeting(self, key: str) -> Iterator[int]:
        """As many steps as the key has segments, and as there are keys below it."""
        for above in _above(key):
            yield from self._numbers.get(above, ())
        inside = key + "/" if key else ""
        for at in range(bisect_left(self.ordered, inside), len(self.ordered)):
            below = self.ordered[at]
            if not below.startswith(inside):
                return
            yield from self._numbers[below]


def _above(key: str) -> Iterator[str]:
    """The root, every folder above, and the key itself."""
    yield ""
    end = key.find("/")
    while end >= 0:
        yield key[:end]
        end = key.find("/", end + 1)
    if key:
        yield key
