"""Claims on storage: what each owner claims, and that a folder is not compared with every claim there is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lakehouse_maintenance.evidence import ClaimIndex, Look, Owner, Unread, claims_of
from lakehouse_maintenance.model.folders import Claim, ClaimKind
from lakehouse_maintenance.model.locations import Location


class Nothing:
    """Names no file."""

    def named(self) -> Iterator[tuple[str, str]]:
        return iter(())

    def paths(self) -> Iterator[list[str]]:
        return iter(())

    def reaching(self, meant: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
        return iter(())


class Counted(list[str]):
    """A list that counts what is taken from it."""

    taken = 0

    def __getitem__(self, at: Any) -> Any:
        self.taken += 1
        return super().__getitem__(at)


def at(*keys: str) -> tuple[Location, ...]:
    return tuple(Location.parse(f"s3://lake/{key}") for key in keys)


def test_owners_claim_their_folders_and_what_they_reach() -> None:
    table = Owner("c.db.t", "c.db", "iceberg", "1", None, at("db/t", "paths/t"), at("added"), Nothing())
    delta = Owner("g.db.d", "g.db", "delta", "1", None, at("delta/d"), at("cloned"), Nothing())
    unread = Unread("c.db.broken", "c.db", "it is broken", at("db/broken", "far/away"))
    lost = Unread("c.db.lost", "c.db", "it is lost", is_lost=True)
    claims = claims_of(Look((table, delta), (unread, lost)))
    assert [(claim.by, claim.kind, claim.where.key) for claim in claims] == [
        ("c.db.t", ClaimKind.LOCATION, "db/t"),
        ("c.db.t", ClaimKind.WRITE_PATH, "paths/t"),
        ("c.db.t", ClaimKind.FILES, "added"),
        ("g.db.d", ClaimKind.LOCATION, "delta/d"),
        ("g.db.d", ClaimKind.FILES, "cloned"),
        ("c.db.broken", ClaimKind.LOCATION, "db/broken"),
        ("c.db.broken", ClaimKind.LOCATION, "far/away"),
    ]


def test_a_folder_is_compared_with_few_of_many_claims() -> None:
    count = 30_000
    names = [f"db{number % 100}/t{number}" for number in range(count)]
    index = ClaimIndex(Claim(where, "c.db.t", ClaimKind.LOCATION) for where in at(*names))
    lists = {space: Counted(keys.ordered) for space, keys in index._spaces.items()}
    for space, keys in index._spaces.items():
        keys.ordered = lists[space]
    for folder, found in (("db7/t7", 1), ("db7/t7/data/deep", 1), ("db7/t8", 0), ("db7/nobody", 0), ("nobody", 0)):
        for family in ("s3://lake/", "oss://lake/"):
            taken = sum(keys.taken for keys in lists.values())
            assert len(index.meeting(Location.parse(family + folder))) == found
            # A search by halves, and the one key after it.
            assert sum(keys.taken for keys in lists.values()) - taken <= 2 * count.bit_length(), folder
    assert sum(keys.taken for keys in lists.values()) > 0
    assert len(index.meeting(Location.parse("s3://lake/db7"))) == count // 100


def test_links_of_this_machine_are_followed(tmp_path: Any) -> None:
    (tmp_path / "real" / "t").mkdir(parents=True)
    (tmp_path / "way").symlink_to(tmp_path / "real")
    place = Location.parse(f"file://{tmp_path}/way/t")
    index = ClaimIndex([Claim(place, "c.db.t", ClaimKind.LOCATION)])
    for folder in ("real/t", "real", "real/t/data", "way/t", "way"):
        assert index.meeting(Location.parse(f"{tmp_path}/{folder}")), folder
    assert not index.meeting(Location.parse(f"{tmp_path}/real/u"))


def test_no_claims_at_all() -> None:
    assert ClaimIndex([]).meeting(Location.parse("s3://lake/")) == []
    assert claims_of(Look(())) == []
