"""Files of this machine, through the operating system: names stay exactly what the folder says."""

# pathlib normalises what it is given, and names have to stay exact.
# ruff: noqa: PTH103, PTH108, PTH116, PTH118, PTH120, PTH123

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta

from lakehouse_maintenance.model.errors import (
    AlreadyExistsError,
    InputError,
    ListingIncompleteError,
    NotFoundError,
    StorageError,
)
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage.base import EPOCH, ObjectInfo, Row, Rows
from lakehouse_maintenance.storage.scratch import CONTENT, new_copy_name, require_scratch

COPY_STEP = 8 * 1024**2
"""Bytes of a copy at a time."""

_NO_KERNEL_COPY = {errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.ETXTBSY}


class LocalStore:
    """Regular files, and symbolic links to regular files; a link to a folder is neither followed nor listed."""

    def list(self, prefix: Location, batch_size: int) -> Iterator[list[ObjectInfo]]:
        """An absent folder is empty, as in object stores; one that cannot be read fails the whole listing.

        Memory: one batch and the folders still to visit. Order is the operating system's.
        """
        folder = prefix.folder_key
        batch: list[ObjectInfo] = []
        for relative, found, is_link in _walk(prefix):
            batch.append(_info(prefix.with_key(folder + relative), found, is_link=is_link))
            if len(batch) >= batch_size:
                yield batch
                batch = []
        if batch:
            yield batch

    def rows(self, prefix: Location, batch_size: int) -> Iterator[Rows]:
        """As `list`, with nothing made for an object but its row; and those that are links."""
        start, key = prefix.root + prefix.folder_key, prefix.folder_key
        batch: list[Row] = []
        links: list[Location] = []
        for relative, found, is_link in _walk(prefix):
            batch.append((start + relative, found.st_size, found.st_mtime_ns // 1_000_000))
            if is_link:
                links.append(prefix.with_key(key + relative))
            if len(batch) >= batch_size:
                yield batch, links
                batch, links = [], []
        if batch:
            yield batch, links

    def folders(self, prefix: Location) -> Sequence[str]:
        try:
            with os.scandir(_path(prefix)) as entries:
                return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except (OSError, ValueError) as error:
            raise _not_listed(prefix, _path(prefix), error) from error

    def is_absent(self, folder: Location) -> bool:
        try:
            return not stat.S_ISDIR(os.stat(_path(folder)).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except (OSError, ValueError) as error:
            raise _failed("look for", folder, error) from error

    def stat(self, location: Location) -> ObjectInfo | None:
        try:
            found = os.stat(_path(location))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise _failed("stat", location, error) from error
        return _info(location, found) if stat.S_ISREG(found.st_mode) else None

    def read(self, location: Location, start: int, length: int | None) -> bytes:
        try:
            with open(_path(location), "rb") as file:
                if start:
                    file.seek(start)
                return file.read() if length is None else file.read(length)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise NotFoundError(f"{location.text} does not exist") from error
        except (OSError, ValueError) as error:
            raise _failed("read", location, error) from error

    def copy(self, source: ObjectInfo, target: Location) -> None:
        """Written under another name first, then linked to its own: the target is complete from its first moment.

        Links do not overwrite. Folders that lack are made. A copy that was killed leaves a file whose name says so.
        """
        path = _path(target)
        folder = os.path.dirname(path)
        try:
            os.makedirs(folder, exist_ok=True)
            unfinished = new_copy_name(target.with_key(target.key.rpartition("/")[0]))
            copied = _copy_content(_path(source.location), _path(unfinished))
        except FileNotFoundError as error:
            raise NotFoundError(f"{source.location.text} does not exist") from error
        except (OSError, ValueError) as error:
            raise _failed("copy", source.location, error) from error
        try:
            if copied != source.size:
                raise StorageError(
                    f"cannot copy {source.location.text}: {copied} of {source.size} bytes were read",
                    hint="somebody changes the file",
                )
            os.link(_path(unfinished), path)
        except FileExistsError as error:
            raise AlreadyExistsError(f"{target.text} exists already and was not overwritten") from error
        except OSError as error:
            raise StorageError(
                f"cannot copy {source.location.text}: {error.strerror or error}",
                hint="the file system must know hard links: they give a finished copy its name without overwriting",
            ) from error
        finally:
            self.remove_scratch(unfinished)
        _sync_folder(folder)

    def why_not_copied(self, source: ObjectInfo, target: ObjectInfo) -> str | None:
        return None if source.size == target.size else f"{target.size} of {source.size} bytes are there"

    def keeps_versions(self, location: Location) -> bool | None:
        """Snapshots of file systems are not seen from here."""
        return False

    def put_scratch(self, location: Location) -> None:
        try:
            with open(_path(location), "xb") as file:
                file.write(CONTENT)
        except (OSError, ValueError) as error:
            raise _failed("write", location, error) from error

    def remove_scratch(self, location: Location) -> None:
        require_scratch(location)
        try:
            os.unlink(_path(location))
        except (OSError, ValueError) as error:
            raise _failed("remove", location, error) from error


def _copy_content(source: str, target: str) -> int:
    """Bytes copied into a file that did not exist, on the disk when this returns. A failure leaves none."""
    with open(source, "rb") as reader, open(target, "xb") as writer:
        try:
            copied = _copy_in_kernel(reader.fileno(), writer.fileno())
            if copied is None:
                shutil.copyfileobj(reader, writer, COPY_STEP)
                copied = writer.tell()
            writer.flush()
            os.fsync(writer.fileno())
        except OSError:
            LocalStore().remove_scratch(Location.parse(target))
            raise
    return copied


def _copy_in_kernel(reader: int, writer: int) -> int | None:
    """None where the kernel has no such call for these file systems; nothing was copied then."""
    copied = 0
    while True:
        try:
            step = os.copy_file_range(reader, writer, COPY_STEP)
        except (OSError, AttributeError) as error:
            if copied or (isinstance(error, OSError) and error.errno not in _NO_KERNEL_COPY):
                raise
            return None
        # Some file systems, such as /proc, answer 0 where there is something to read.
        if step == 0:
            return copied or None
        copied += step


def _sync_folder(folder: str) -> None:
    """Makes names durable, where the file system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _path(location: Location) -> str:
    try:
        return location.local_path
    except InputError as error:
        raise StorageError(error.message, field=error.field, hint=error.hint) from error


def _walk(prefix: Location) -> Iterator[tuple[str, os.stat_result, bool]]:
    """Each file below the folder: its path from there, what it is, and whether it is a link."""
    base = _path(prefix)
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(os.path.join(base, folder)) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(folder + entry.name + "/")
                        continue
                    found = _file(entry)
                    if found is not None:
                        yield folder + entry.name, found, entry.is_symlink()
        except (FileNotFoundError, NotADirectoryError):
            # Nothing was ever there, or another process removed the folder since its parent was read: in both
            # cases no object lies in it now.
            continue
        except (OSError, ValueError) as error:  # ValueError: no path of this machine, such as half a surrogate pair
            raise _not_listed(prefix, os.path.join(base, folder), error) from error


def _file(entry: os.DirEntry[str]) -> os.stat_result | None:
    """None for what is no object: pipes, sockets, links to folders and to nothing, and files gone in the meantime."""
    try:
        found = entry.stat()
    except FileNotFoundError:
        return None
    except OSError:
        if entry.is_symlink():  # a loop of links
            return None
        raise
    return found if stat.S_ISREG(found.st_mode) else None


def _info(location: Location, found: os.stat_result, *, is_link: bool = False) -> ObjectInfo:
    try:
        modified = EPOCH + timedelta(microseconds=found.st_mtime_ns // 1000)
    except OverflowError:
        modified = None
    return ObjectInfo(location, found.st_size, modified, None, is_link)


def _not_listed(prefix: Location, at: str, error: OSError | ValueError) -> ListingIncompleteError:
    why = (error.strerror if isinstance(error, OSError) else None) or error
    return ListingIncompleteError(
        f"cannot list {prefix.text}: {why} at {at}",
        hint="the folder must be readable; nothing was concluded from the part that was",
    )


def _failed(what: str, location: Location, error: OSError | ValueError) -> StorageError:
    cause = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return StorageError(f"cannot {what} {location.text}: {cause}")
