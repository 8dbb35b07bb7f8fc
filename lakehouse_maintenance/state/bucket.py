"""The few calls that a state needs of an object store: read, list, and put under a condition. Nothing is deleted."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from lakehouse_maintenance.config.secrets import mask_url
from lakehouse_maintenance.model.errors import ConfigurationError, LakehouseError, StorageError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.state.backend import FIELD
from lakehouse_maintenance.state.swapping import UnsureError
from lakehouse_maintenance.storage.masking import masker_for

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_PROBE = "probe"
_PROBE_CONTENT = b"this object shows that conditional writes are refused where they have to be\n"
_LONGEST_CAUSE = 400


@dataclass(frozen=True, slots=True)
class Tag:
    """What a conditional put compares: the store's tag and, where the store counts them, version of an object."""

    e_tag: str | None
    version: str | None


@dataclass(frozen=True, slots=True)
class Listed:
    """An object in a listing; `name` below the state's prefix, `modified` by the store's clock."""

    name: str
    modified: datetime


class Bucket:
    """The objects below the state's URL. Names are below it, too, and plain enough to be exact in every store."""

    def __init__(self, url: str, properties: Mapping[str, str]) -> None:
        self.location = mask_url(url)
        self._mask = masker_for({**properties, FIELD: url}).mask
        place = Location.parse(url)
        path = place.key.removesuffix("/")
        segments = path.split("/") if path else []
        if any(segment in ("", ".", "..") or not segment.isprintable() for segment in segments):
            raise ConfigurationError(
                f"the path of {self.location} has an empty, '.' or '..' segment or a control character",
                field=FIELD,
                hint="write scheme://bucket/plain/path",
            )
        self._prefix = "".join(segment + "/" for segment in segments)
        self._client = self._open(place, properties, retries=True)
        self._putting = self._open(place, properties, retries=False)
        self._is_reachable = False
        self._is_proven = False

    def get(self, name: str) -> tuple[bytes, Tag] | None:
        """Content and tag; None where there is no such object."""
        import obstore

        with self._errors("read", name):
            try:
                found = obstore.get(self._client, self._prefix + name)
                content = bytes(found.bytes())
            except FileNotFoundError:
                self._prove_reachable()
                return None
            self._is_reachable = True
            return content, Tag(found.meta["e_tag"], found.meta["version"])

    def put_if(self, name: str, content: bytes, replaces: Tag | None) -> bool:
        """Write where nothing is there (None), or exactly what had that tag: True when it is written, False when it
        was refused, and never will be.

        Sent once. Raises UnsureError where it may or may not be written.
        """
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        try:
            self._put(self._putting, name, content, replaces)
        except (AlreadyExistsError, PreconditionError) as error:
            # S3 answers 409 while another put is under way, whatever becomes of that one.
            if "409 Conflict" in str(error):
                raise UnsureError from error
            return False
        except (BaseError, OSError, ValueError) as error:
            failure = self._failure("write", name, error)
            raise (UnsureError(failure) if isinstance(failure, StorageError) else failure) from error
        return True

    def inside(self, folder: str) -> Iterator[Listed]:
        """All objects below a folder, at any depth, in the store's order."""
        import obstore

        with self._errors("list", folder):
            for batch in obstore.list(self._client, prefix=self._prefix + folder):
                self._is_reachable = True
                for meta in batch:
                    yield Listed(meta["path"].removeprefix(self._prefix), meta["last_modified"])

    def folders(self, folder: str) -> list[str]:
        """The names of the folders directly in a folder."""
        import obstore

        with self._errors("list", folder):
            found = obstore.list_with_delimiter(self._client, self._prefix + folder)["common_prefixes"]
            return [path.rstrip("/").rpartition("/")[2] for path in found]

    def prove_conditions(self, *, may_write: bool = True) -> None:
        """Raise ConfigurationError for a store that writes although a put's condition does not hold: two hosts could
        both hold a lease there. Three requests, once; without `may_write` one, which writes nothing in a good store.
        """
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        if self._is_proven:
            return
        with self._errors("write", _PROBE):
            if may_write:
                with suppress(AlreadyExistsError, PreconditionError):
                    self._put(self._client, _PROBE, _PROBE_CONTENT, None)
                    # It was not there before; now it is.
                    self._put(self._client, _PROBE, _PROBE_CONTENT, None)
                    raise self._unsafe("If-None-Match")
            try:
                self._put(self._client, _PROBE, _PROBE_CONTENT, Tag(f'"{uuid.uuid4().hex}"', "1"))
            except (AlreadyExistsError, PreconditionError):
                self._is_proven = may_write
                return
            raise self._unsafe("If-Match")

    def _put(self, client: ObjectStore, name: str, content: bytes, replaces: Tag | None) -> None:
        import obstore

        if replaces is None:
            obstore.put(client, self._prefix + name, content, mode="create", use_multipart=False)
            return
        # A tag that is missing must be left out: None is refused.
        known = {"e_tag": replaces.e_tag, "version": replaces.version}
        mode = {key: value for key, value in known.items() if value is not None}
        obstore.put(client, self._prefix + name, content, mode=mode, use_multipart=False)  # type: ignore[arg-type]

    def _open(self, place: Location, properties: Mapping[str, str], *, retries: bool) -> ObjectStore:
        from lakehouse_maintenance.storage.clients import client_for

        try:
            return client_for(place, properties, retries=retries)
        except LakehouseError as error:
            hint = "check state.url and state.properties"
            raise ConfigurationError(self._mask(error.message), field=FIELD, hint=hint) from None

    def _prove_reachable(self) -> None:
        """Stores answer 404 for a bucket that does not exist, too; that must not be taken for an empty state."""
        if not self._is_reachable:
            next(self.inside(""), None)
            self._is_reachable = True

    @contextmanager
    def _errors(self, doing: str, name: str) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            raise self._failure(doing, name, error) from error

    def _failure(self, doing: str, name: str, error: Exception) -> LakehouseError:
        from obstore.exceptions import NotSupportedError, PermissionDeniedError, UnauthenticatedError

        cause = " ".join(self._mask(str(error).partition("Debug source")[0]).split())[:_LONGEST_CAUSE]
        message = f"cannot {doing} {name or 'the objects'} of the state in {self.location}: {cause}"
        explain: tuple[tuple[bool, str], ...] = (
            (
                isinstance(error, PermissionDeniedError | UnauthenticatedError),
                "check the credentials in state.properties or the environment: the state needs to read, list and write",
            ),
            (isinstance(error, FileNotFoundError) or "404 Not Found" in cause, "the bucket must exist"),
            (
                isinstance(error, NotSupportedError) or "501 Not Implemented" in cause,
                "the store has no conditional writes: keep the state elsewhere",
            ),
        )
        for fits, hint in explain:
            if fits:
                return ConfigurationError(message, field=FIELD, hint=hint)
        hint = "check the endpoint in state.properties, and that this machine reaches it"
        return StorageError(message, field=FIELD, hint=hint)

    def _unsafe(self, header: str) -> ConfigurationError:
        return ConfigurationError(
            f"the store of {self.location} ignores conditional writes ({header}): two hosts could hold one lease",
            field=FIELD,
            hint="keep the state in a store that honours them, in PostgreSQL, or in a folder",
        )
