"""Does storage hold what metadata names, each file once? Asked before orphan files are removed.

Manifests and metadata files have no checksum. One with a flipped bit may still read, and name a file that is not
there: then the file that it meant is there, looks like nobody's, and must stay. So it is where a file is gone for any
other reason: what the metadata says is not so, and nothing is concluded from it. Where a bit makes one file's name
another's, that one is named twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from lakehouse_maintenance.evidence import Owner, Row, Spelling
from lakehouse_maintenance.evidence.iceberg_owners import ICEBERG, IcebergNames
from lakehouse_maintenance.evidence.index import HashRuns
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.references import ReferenceKind
from lakehouse_maintenance.storage import Storage

_OFTEN_GONE = (ReferenceKind.METADATA, ReferenceKind.VERSION_HINT)
"""Previous metadata files that engines delete and still name, and a file that need not exist."""
_BATCH = 4096


def missing_file(
    owners: Iterable[Owner],
    places: Sequence[Location],
    spelling: Spelling,
    listed: Iterable[Sequence[Row]],
    storage: Storage,
    *,
    others: bool = True,
) -> str | None:
    """A file in the places' stores that an Iceberg table's metadata names and storage does not hold, with the table.

    All snapshots count, and names are taken exactly. `listed`: everything in the places; what is named elsewhere in the
    same bucket is looked up one by one, since a flipped bit may stand in any part of a path. With `others`, one file of
    each other bucket and scheme is, too: where a bit hit the scheme, or the slash after the bucket, there is no such
    place. Memory stays flat in the number of files. Raises LakehouseError where it cannot be told.
    """
    stores = [place.with_key("") for place in places]
    there = HashRuns()
    try:
        for rows in listed:
            add = there.gather()
            for row in rows:
                add(hash(Location.parse(row[0])))
        for owner in owners:
            if owner.table_format == ICEBERG:
                for absent in _not_listed(owner, stores, spelling, there, others):
                    for location, info in storage.stat_many(absent):
                        if info is None and _is_absent(absent[location], location, storage):
                            return f"{owner.name} names {absent[location]}, which is not there"
                twice = owner.names.named_twice() if isinstance(owner.names, IcebergNames) else None
                if twice is not None:
                    return f"a snapshot of {owner.name} names {twice} twice"
    finally:
        there.close()
    return None


def _not_listed(
    owner: Owner, stores: Sequence[Location], spelling: Spelling, there: HashRuns, others: bool
) -> Iterator[dict[Location, str]]:
    """Where a file should be that was not listed, and its path as it is named."""
    named = (path for path, kind in owner.names.named() if kind not in _OFTEN_GONE)
    roots: set[Location] = set()
    while batch := list(islice(named, _BATCH)):
        found: dict[Location, str] = {}
        for path in batch:
            location = Location.parse(spelling.declared(path))
            root = location.with_key("")
            if root in stores or (others and root not in roots):
                found[location] = path
                roots.add(root)
        listed = there.contains([hash(location) for location in found])
        yield {one: path for (one, path), is_there in zip(found.items(), listed, strict=True) if not is_there}


def _is_absent(path: str, location: Location, storage: Storage) -> bool:
    """Two buckets that were declared to be one may hold other objects all the same."""
    named = Location.parse(path)
    return named == location or storage.stat(named) is None
