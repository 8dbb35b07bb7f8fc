"""Is it the same file? Every spelling under which a path could name one object (known traps: "Is it the same path?").

Equal text proves too little before a deletion: one engine writes `file:/x` where another writes `file:///x`, `s3a://`
for `s3://`, clients collapse `//`, and some writers encode what others do not. Two paths are taken for one file as soon
as any of their forms are equal, which errs on the side of keeping. Symbolic links of local folders are followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from urllib.parse import unquote

from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.locations import Location


def forms(path: str) -> tuple[str, ...]:
    """The path normalised; and, where that is another text, without empty segments and with percent codes decoded
    once."""
    plain = _normal(path)
    if "//" not in plain[plain.find("://") + 3 :] and "%" not in plain and not plain.endswith("/"):
        return (plain,)
    return tuple(dict.fromkeys((plain, _collapsed(plain), _collapsed(unquote(plain)))))


def _normal(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    # "s3:/" and "file:/": what follows is a bucket or a host, and no name in a folder.
    if not slash or name in ("", ".", "..") or folder.endswith(":/"):
        return _parsed(path)
    return _folder(folder) + name


@lru_cache(maxsize=4096)
def _folder(folder: str) -> str:
    """With the one `/` that parts it from a name. `folder` may end in others, which are part of an object's key."""
    parsed = _parsed(folder + "/")
    return parsed if parsed.endswith("/") else parsed + "/"


def _parsed(path: str) -> str:
    try:
        location = Location.parse(path).resolved
    except InputError:
        return path
    return f"{location.family}://{location.authority}/{location.key}"


def _collapsed(plain: str) -> str:
    scheme, separator, rest = plain.partition("://")
    # Of a local path the authority is empty, and stays: other paths, which have but one form, begin with it too.
    authority, slash, key = rest.partition("/")
    return scheme + separator + authority + slash + "/".join(part for part in key.split("/") if part)


class FormIndex:
    """Paths looked up by any of their forms. `spell`: gives the forms, where not only those of `forms` are meant."""

    def __init__(self, paths: Iterable[str], spell: Callable[[str], tuple[str, ...]] = forms) -> None:
        self._spell = spell
        self._paths: dict[str, list[str]] = {}
        for path in paths:
            for form in spell(path):
                self._paths.setdefault(form, []).append(path)

    def __bool__(self) -> bool:
        return bool(self._paths)

    def named_by(self, reference: str) -> Iterator[str]:
        """Paths that the reference may mean."""
        for form in self._spell(reference):
            yield from self._paths.get(form, ())
