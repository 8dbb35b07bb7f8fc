"""Which of a million listed paths does any of a million references mean? Answered in a few bytes a reference.

Paths are kept as 64-bit hashes of their forms (model/forms.py), sorted, in runs that are spilled to an unnamed file.
Two paths of the same hash count as one: that keeps a file too many about once in 10^7 comparisons of a million with a
million, and can never make a referenced file look unreferenced.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.forms import forms
from lakehouse_maintenance.model.locations import FAMILIES, Location

if TYPE_CHECKING:
    import numpy as np

_RUN = 1 << 20
"""Hashes of one run, and so many are held in memory while they are gathered."""

_FOLDERS = 1 << 16
"""Folders whose normal form is remembered."""


class Spelling:
    """The forms of a path, under the schemes and authorities that were declared equal.

    `equal_schemes`, `equal_authorities`: an alias, or several with commas between them, → the name that counts
    (Iceberg: `remove_orphan_files`).
    """

    def __init__(
        self, equal_schemes: Mapping[str, str] | None = None, equal_authorities: Mapping[str, str] | None = None
    ) -> None:
        self._schemes = _aliases(equal_schemes)
        self._authorities = _aliases(equal_authorities)

    def forms(self, path: str) -> tuple[str, ...]:
        """Texts of which any two paths share one if they may be the same file."""
        return forms(self.declared(path))

    def declared(self, path: str) -> str:
        """The path with its scheme and authority replaced by those they were declared equal to."""
        if not self._schemes and not self._authorities:
            return path
        scheme, separator, rest = path.partition("://")
        if not separator:
            return path
        authority, slash, key = rest.partition("/")
        return f"{self._schemes.get(scheme, scheme)}://{self._authorities.get(authority, authority)}{slash}{key}"

    def everywhere(self, places: Iterable[Location]) -> tuple[Location, ...]:
        """The places, and each under every other scheme and authority that means the same."""
        found: dict[Location, None] = {}
        for place in places:
            found[place] = None
            home = Location.parse(self.declared(place.text))
            schemes = [home.scheme, *(one for one, name in self._schemes.items() if _family(name) == home.family)]
            hosts = [home.authority, *(one for one, name in self._authorities.items() if name == home.authority)]
            for scheme in schemes:
                for host in hosts:
                    with suppress(InputError):  # such as S3 without a bucket
                        found[Location.parse(f"{scheme}://{host}/{home.key}")] = None
        return tuple(found)

    def as_json(self) -> dict[str, dict[str, str]]:
        """What was declared, one alias a key: the arguments that make it again."""
        return {"equal_schemes": self._schemes, "equal_authorities": self._authorities}


def _family(scheme: str) -> str:
    return FAMILIES.get(scheme.lower(), scheme.lower())


def _aliases(pairs: Mapping[str, str] | None) -> dict[str, str]:
    return {alias.strip(): name for names, name in (pairs or {}).items() for alias in names.split(",") if alias.strip()}


class PathHasher:
    """Hashes of a path's forms. Most paths have one form, and share their folder with many others."""

    def __init__(self, spelling: Spelling) -> None:
        self._spelling = spelling
        self._folders: dict[str, int] = {}

    def __call__(self, path: str) -> tuple[int, ...]:
        """One hash for each form; two paths that may be the same file share one."""
        folder, _, name = path.rpartition("/")
        known = self._folders.get(folder)
        if known is None or "%" in name or name in _ODD_NAMES:
            return self._slowly(path, folder, name)
        return (hash((known, name)),)

    def each(self, paths: Iterable[str], append: Callable[[int], None]) -> None:
        """All hashes of all paths, in one go: this is where the time goes."""
        folders = self._folders
        for path in paths:
            folder, _, name = path.rpartition("/")
            known = folders.get(folder)
            if known is None or "%" in name or name in _ODD_NAMES:
                for number in self._slowly(path, folder, name):
                    append(number)
            else:
                append(hash((known, name)))

    def _slowly(self, path: str, folder: str, name: str) -> tuple[int, ...]:
        forms = self._spelling.forms(path)
        is_plain = folder and "%" not in path and "//" not in folder[folder.find("://") + 3 :]
        if is_plain and name not in _ODD_NAMES and len(forms) == 1:
            if len(self._folders) >= _FOLDERS:
                self._folders.clear()
            self._folders[folder] = hash(forms[0].rpartition("/")[0])
        return tuple(_hash(form) for form in forms)


_ODD_NAMES = frozenset(("", ".", ".."))


def _hash(form: str) -> int:
    folder, _, name = form.rpartition("/")
    return hash((hash(folder), name))


class HashRuns:
    """A set of 64-bit numbers on disk: gathered in any order, then asked in batches."""

    def __init__(self) -> None:
        self._gathered = array("q")
        self._runs: list[np.ndarray[Any, Any]] = []

    def gather(self) -> Callable[[int], None]:
        """Takes one number; to be asked for again after at most a few thousand numbers, so that runs are spilled."""
        if len(self._gathered) >= _RUN:
            self._spill()
        return self._gathered.append

    def contains(self, numbers: Sequence[int]) -> list[bool]:
        """For each number whether it was added. What is added later counts from then on."""
        import numpy as np

        if self._gathered:
            self._spill()
        wanted = np.array(numbers, dtype=np.int64)
        # In their order the search walks through each run once; in any other it jumps about in all of its memory.
        order = np.argsort(wanted)
        wanted = wanted[order]
        found = np.zeros(len(wanted), dtype=bool)
        for run in self._runs:
            at = np.searchsorted(run, wanted)
            at[at == len(run)] = 0
            found |= run[at] == wanted
        answers = np.empty(len(found), dtype=bool)
        answers[order] = found
        return answers.tolist()

    def close(self) -> None:
        """Gives the disk back."""
        self._runs.clear()
        self._gathered = array("q")

    def _spill(self) -> None:
        import numpy as np

        run = np.sort(np.frombuffer(self._gathered, dtype=np.int64))
        with tempfile.TemporaryFile() as file:
            run.tofile(file)
            file.flush()
            # The mapping keeps the unnamed file; nothing is left behind, however the process ends.
            self._runs.append(np.memmap(file, dtype=np.int64, mode="r", shape=run.shape))
        self._gathered = array("q")


class ReferenceIndex:
    """References of many tables, asked for listed paths in batches. A context manager: it holds files on disk."""

    def __init__(self, spelling: Spelling | None = None) -> None:
        self.spelling = Spelling() if spelling is None else spelling
        self._hasher = PathHasher(self.spelling)
        self._runs = HashRuns()
        self._keys = HashRuns()
        self._has_keys = False
        self.references = 0

    def add(self, paths: Sequence[str]) -> None:
        """Paths that something references, a few thousand at a time."""
        self.references += len(paths)
        self._hasher.each(paths, self._runs.gather())

    def add_elsewhere(self, paths: Iterable[str]) -> None:
        """Paths under another scheme or authority than what will be asked for; see `mismatched`."""
        append = self._keys.gather()
        for path in paths:
            number = _key_hash(self.spelling.declared(path))
            if number is not None:
                append(number)
                self._has_keys = True

    def referenced(self, paths: Sequence[str]) -> list[bool]:
        """For each path whether a reference may mean it."""
        numbers: list[int] = []
        self._hasher.each(paths, numbers.append)
        if len(numbers) == len(paths):
            return self._runs.contains(numbers)
        hashes = [self._hasher(path) for path in paths]
        found = iter(self._runs.contains([number for each in hashes for number in each]))
        return [True in [next(found) for _ in each] for each in hashes]

    def mismatched(self, paths: Sequence[str]) -> list[bool]:
        """For each path whether a reference equals it in all but scheme or authority (prefix_mismatch_mode)."""
        if not self._has_keys:
            return [False] * len(paths)
        numbers = [_key_hash(self.spelling.declared(path)) for path in paths]
        return [
            found and number is not None
            for found, number in zip(self._keys.contains([n or 0 for n in numbers]), numbers, strict=True)
        ]

    def close(self) -> None:
        """Gives the disk back."""
        self._runs.close()
        self._keys.close()

    def __enter__(self) -> ReferenceIndex:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _key_hash(path: str) -> int | None:
    try:
        return hash(Location.parse(path).collapsed.key)
    except InputError:
        return None
