"""Is it the same file? Every spelling under which a path could name one object (known traps: "Is it the same path?").

Equal text proves too little before a deletion: one engine writes `file:/x` where another writes `file:///x`, `s3a://`
for `s3://`, clients collapse `//`, and some writers encode what others do not. Two paths are taken for one file as soon
as any of their forms are equal, which errs on the side of keeping. Symbolic links of local folders are followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from urllib.parse import unquote

from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.locations import Location


def forms(path: str) -> tuple[str, ...]:
    """The path normalised; and, where that is another text, with `//` collapsed and percent codes decoded once."""
    plain = _normal(path)
    if "//" not in plain[plain.find("://") + 3 :] and "%" not in plain:
        return (plain,)
    return tuple(dict.fromkeys((plain, _collapsed(plain), _collapsed(unquote(plain)))))


def _normal(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    if not slash or name in ("", ".", ".."):
        return _parsed(path)
    return f"{_folder(folder)}/{name}"


@lru_cache(maxsize=4096)
def _folder(folder: str) -> str:
    # "s3:/", "file://": the path was a bucket or a root and nothing more, and has no folder to speak of.
    return _parsed(folder) if not folder.endswith((":", "/")) and folder else folder


def _parsed(path: str) -> str:
    try:
        location = Location.parse(path).resolved
    except InputError:
        return path
    return f"{location.family}://{location.authority}/{location.key}"


def _collapsed(plain: str) -> str:
    scheme, separator, rest = plain.partition("://")
    return scheme + separator + "/".join(part for part in rest.split("/") if part)


class FormIndex:
    """Paths looked up by any of their forms."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths: dict[str, list[str]] = {}
        for path in paths:
            for form in forms(path):
                self._paths.setdefault(form, []).append(path)

    def __bool__(self) -> bool:
        return bool(self._paths)

    def named_by(self, reference: str) -> Iterator[str]:
        """Paths that the reference may mean."""
        for form in forms(reference):
            yield from self._paths.get(form, ())
