"""Reading the JSON files of a Delta log: commits, log compactions, v2 checkpoints in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby

from lakehouse_maintenance.delta.actions import Action
from lakehouse_maintenance.delta.listing import LogListing
from lakehouse_maintenance.delta.parsing import parse_lines
from lakehouse_maintenance.model.errors import NotFoundError
from lakehouse_maintenance.storage import ObjectInfo, Storage

WHOLE_BELOW = 1 << 20
"""Smaller files are read whole and ahead, 16 at a time; larger ones piece by piece."""

PIECE = 4 << 20
LONGEST_LINE = 64 << 20
"""Bytes. A longer line is no action that a writer would commit, and would be held in memory as a whole."""


def read_actions(
    storage: Storage, listing: LogListing, files: Iterable[ObjectInfo]
) -> Iterator[tuple[ObjectInfo, Iterator[Action]]]:
    """The actions of each file, in the order asked for. Every file's actions must be taken before the next file.

    Memory: what is read ahead, one line and one action. Raises TableUnreadableError that names the file, also for one
    that is gone or has another size than the listing said; StorageError where the store failed.
    """
    for is_small, run in groupby(files, key=lambda file: file.size < WHOLE_BELOW):
        if is_small:
            yield from _whole(storage, listing, list(run))
        else:
            for file in run:
                yield file, _parsed(listing, file, _pieces(storage, listing, file))


def _whole(
    storage: Storage, listing: LogListing, files: list[ObjectInfo]
) -> Iterator[tuple[ObjectInfo, Iterator[Action]]]:
    read = storage.read_many(file.location for file in files)
    for file in files:
        try:
            _, data = next(read)
        except NotFoundError as error:
            raise gone(listing, file) from error
        yield file, _parsed(listing, file, [data])


def _pieces(storage: Storage, listing: LogListing, file: ObjectInfo) -> Iterator[bytes]:
    for start in range(0, file.size, PIECE):
        try:
            yield storage.read(file.location, start, min(PIECE, file.size - start))
        except NotFoundError as error:
            raise gone(listing, file) from error


def committed_ms(data: bytes) -> int | None:
    """The time in a commit's `commitInfo`, by the clock of whoever wrote it. `data`: the commit, or its beginning."""
    for line in data.split(b"\n"):
        if b'"commitInfo"' not in line:
            continue
        try:
            info = json.loads(line)["commitInfo"]
            for name in ("inCommitTimestamp", "timestamp"):
                if isinstance(info.get(name), int):
                    return int(info[name])
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            continue  # cut off, or another action that has the word in it
    return None


def gone(listing: LogListing, file: ObjectInfo) -> Exception:
    """The error for a file that was listed and cannot be found any more."""
    return listing.unreadable("it went while the log was read; look again", listing.name_of(file))


def _parsed(listing: LogListing, file: ObjectInfo, pieces: Iterable[bytes]) -> Iterator[Action]:
    name = listing.name_of(file)
    if not file.size:
        raise listing.unreadable("it is empty", name)
    try:
        yield from parse_lines(listing.root, _lines(pieces, file.size))
    except ValueError as error:
        raise listing.unreadable(str(error), name) from error


def _lines(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    read = 0
    begun: list[bytes] = []
    length = 0
    for piece in pieces:
        read += len(piece)
        *ends, rest = piece.split(b"\n")
        for end in ends:
            yield b"".join([*begun, end])
            begun, length = [], 0
        begun.append(rest)
        length += len(rest)
        if length > LONGEST_LINE:
            raise ValueError(f"it has a line of more than {LONGEST_LINE} bytes")
    if read != size:
        raise ValueError(f"{read} bytes were read of {size} listed: it changed while the log was read")
    yield b"".join(begun)
