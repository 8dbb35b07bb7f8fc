"""Counts the calls by which an action reaches outside of its process, and kills the process at one of them.

Counted are, at the level of classes and modules, so that no client has to be known:
  - storage: each call of a store (a batch of a listing is one), however it is reached; vendor: what goes through boto3;
  - delete: each file that is unlinked, each batch that an object store is asked to delete;
  - file: opening, creating and closing files through PyIceberg's FileIO, which engine and commits write with;
  - catalog: each call of a catalog, and PyIceberg's own `commit_table` and creating;
  - state: each value written, each line added to the journal.
Calls inside of other calls count too: the metadata file that a commit writes before it moves the pointer is one.

Numbers begin at 1. Threads that run beside each other share them, so the number of a call may differ from run to run;
how many there are does not.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import pathlib
import pkgutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from lakehouse_maintenance_tests.interrupted.warm import last_words

STORE = ("list", "rows", "stat", "read", "put", "copy", "put_scratch", "remove_scratch", "stat_many", "read_many")


class Point(Protocol):
    """Told before and after each call, by its name."""

    def before(self, name: str) -> int: ...

    def after(self, number: int, name: str) -> None: ...


class Counting:
    """Remembers the calls' names; kills the process where it is told to. `kill_at`: 0 for never."""

    def __init__(self, kill_at: int = 0, when: str = "before") -> None:
        self.names: list[str] = []
        self._kill_at = kill_at
        self._when = when
        self._lock = threading.Lock()

    def before(self, name: str) -> int:
        """Counts."""
        with self._lock:
            self.names.append(name)
            number = len(self.names)
            if number == self._kill_at and self._when == "before":
                _die(name)
            return number

    def after(self, number: int, name: str) -> None:
        """The effect is there; whoever called has not heard of it."""
        if number == self._kill_at and self._when == "after":
            _die(name)


def _die(name: str) -> None:
    last_words(name)
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()  # another thread must not go on while the signal is on its way


def install(point: Point) -> None:
    """Wraps the calls for the rest of this process's life."""
    _storage(point)
    _deletes(point)
    _files(point)
    _catalogs(point)
    _state(point)


def _storage(point: Point) -> None:
    for cls in _classes("lakehouse_maintenance.storage"):
        if {"list", "stat", "read"} <= vars(cls).keys() and not _is_protocol(cls) and cls.__name__ != "Storage":
            for verb in STORE:
                _wrap_method(point, cls, verb, f"storage: {verb}")


def _deletes(point: Point) -> None:
    import obstore

    _replace(obstore, "delete", lambda real: _wrapped(point, real, "delete: batch", _is_in_product))
    # A local copy is written under another name and linked to its own.
    _replace(os, "link", lambda real: _wrapped(point, real, "storage: link", _is_in_product))
    _replace(pathlib.Path, "unlink", lambda real: _wrapped(point, real, "delete: unlink", _is_in_product))
    for name in ("unlink", "remove"):
        _replace(os, name, lambda real: _wrapped(point, real, "delete: unlink", _is_in_product))
    try:
        from botocore.client import BaseClient
    except ImportError:
        return
    call = BaseClient._make_api_call

    def counted_call(self: BaseClient, operation_name: str, api_params: Any) -> Any:
        number = point.before(f"vendor: {operation_name}")
        try:
            return call(self, operation_name, api_params)
        finally:
            point.after(number, f"vendor: {operation_name}")

    BaseClient._make_api_call = counted_call


def _files(point: Point) -> None:
    from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

    create = PyArrowFile.create

    def counted_create(self: PyArrowFile, overwrite: bool = False) -> _CountedStream:
        number = point.before("file: create")
        stream = create(self, overwrite)
        point.after(number, "file: create")
        return _CountedStream(stream, point)

    PyArrowFile.create = counted_create  # type: ignore[method-assign]
    _wrap_method(point, PyArrowFile, "open", "file: open")
    _wrap_method(point, PyArrowFile, "exists", "file: exists")
    _wrap_method(point, PyArrowFileIO, "delete", "delete: FileIO")


class _CountedStream:
    """An output stream whose closing counts: until then a file may be there in part, or not at all."""

    def __init__(self, stream: Any, point: Point) -> None:
        self._stream = stream
        self._point = point

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> _CountedStream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return bool(self._stream.closed)

    def close(self) -> None:
        if self._stream.closed:
            return
        number = self._point.before("file: close")
        self._stream.close()
        self._point.after(number, "file: close")


def _catalogs(point: Point) -> None:
    from lakehouse_maintenance.catalogs.catalog import Catalog

    inside = threading.local()
    local = {"close", "storage", "storage_of"}  # no call
    for cls in [cls for cls in _classes("lakehouse_maintenance.catalogs") if issubclass(cls, Catalog)]:
        for verb, function in list(vars(cls).items()):
            if inspect.isfunction(function) and not verb.startswith("_") and verb not in local:
                _wrap_method(point, cls, verb, f"catalog: {verb}", inside)
    for module, name in (("sql", "SqlCatalog"), ("rest", "RestCatalog")):
        of_iceberg = getattr(_module(f"pyiceberg.catalog.{module}"), name)
        for verb in ("create_namespace", "create_table"):
            _wrap_method(point, of_iceberg, verb, "catalog: create")
        _wrap_method(point, of_iceberg, "commit_table", "catalog: commit")


def _state(point: Point) -> None:
    for cls in _classes("lakehouse_maintenance.state"):
        if _is_protocol(cls) or cls.__name__ == "State":
            continue
        if {"get", "put", "keys"} <= vars(cls).keys():
            _wrap_method(point, cls, "put", "state: put")
        _wrap_method(point, cls, "append" if "append" in vars(cls) else "_append", "state: journal")


def _wrap_method(point: Point, cls: type, verb: str, name: str, inside: threading.local | None = None) -> None:
    real = vars(cls).get(verb)
    if not inspect.isfunction(real):
        return
    wrapped = _wrapped(point, real, name)
    if inside is None:
        setattr(cls, verb, wrapped)
        return

    @functools.wraps(real)
    def outermost(*args: Any, **kwargs: Any) -> Any:
        if getattr(inside, "deep", False):
            return real(*args, **kwargs)
        inside.deep = True
        try:
            return wrapped(*args, **kwargs)
        finally:
            inside.deep = False

    setattr(cls, verb, outermost)


def _wrapped(
    point: Point, real: Callable[..., Any], name: str, counts: Callable[[], bool] = lambda: True
) -> Callable[..., Any]:
    if inspect.isgeneratorfunction(real):

        @functools.wraps(real)
        def each(*args: Any, **kwargs: Any) -> Iterator[Any]:
            items = real(*args, **kwargs)
            while True:
                number = point.before(name)
                try:
                    item = next(items)
                except StopIteration:
                    return
                finally:
                    point.after(number, name)
                yield item

        return each

    @functools.wraps(real)
    def one(*args: Any, **kwargs: Any) -> Any:
        if not counts():
            return real(*args, **kwargs)
        number = point.before(name)
        try:
            return real(*args, **kwargs)
        finally:
            point.after(number, name)

    return one


def _is_in_product() -> bool:
    """Called by the product's removal, not by a library's clean-up of temporary files."""
    caller = sys._getframe(2).f_globals.get("__name__", "")
    return str(caller).startswith(("lakehouse_maintenance.removal", "lakehouse_maintenance.storage"))


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Also where a module of the product has imported the function by its name."""
    real = getattr(owner, name)
    wrapped = make(real)
    setattr(owner, name, wrapped)
    for module in list(sys.modules.values()):
        if module.__name__.startswith("lakehouse_maintenance.") and getattr(module, name, None) is real:
            setattr(module, name, wrapped)


def _classes(package: str) -> list[type]:
    """Classes that the package's modules define."""
    root = _module(package)
    names = [f"{package}.{found.name}" for found in pkgutil.iter_modules(root.__path__)]
    found: dict[type, None] = {}
    for module in map(_module, names):
        for value in list(vars(module).values()):
            if inspect.isclass(value) and value.__module__ == module.__name__:
                found[value] = None
    return list(found)


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _is_protocol(cls: type) -> bool:
    return bool(getattr(cls, "_is_protocol", False))
