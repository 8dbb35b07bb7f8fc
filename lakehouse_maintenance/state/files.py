"""Files that survive a crash, and a lock between processes that use one file system."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.state.backend import FIELD

LOCK_SECONDS = 30.0
"""How long a writer waits for the lock. It is held for a few writes to the disk, so longer means that its holder is
stopped, or the disk is stuck."""


@contextmanager
def file_lock(descriptor: int, path: Path) -> Iterator[None]:
    """Exclusive `flock` on an open file. The descriptor must be this call's own: that holds between threads too.

    Polled rather than blocked, so that a stopped holder ends in StorageError and not in a process that hangs.
    """
    give_up = time.monotonic() + LOCK_SECONDS
    pause = 0.0005
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            if time.monotonic() >= give_up:
                raise StorageError(
                    f"{path} has been locked by another process for {LOCK_SECONDS:.0f} seconds",
                    field=FIELD,
                    hint="a process that uses this state is stopped or its disk is stuck: end it",
                ) from error
        time.sleep(pause)
        pause = min(pause * 2, 0.02)
    try:
        yield
    finally:
        # Closing alone would not do: a child forked meanwhile shares the lock through its copy of the descriptor.
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def write_all(descriptor: int, content: bytes) -> None:
    """`os.write` until everything is written: a single call may write less."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems cannot, and say so; they order their names by themselves.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, durably."""
    if path.is_dir():
        return
    if path != path.parent:
        make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync_folder(path.parent)
