"""Errors a user can meet. Each names what is wrong (`field` or table) and what to do (`hint`).

`InputError` and its kinds mean that nothing was read or written (exit code 2); every other error belongs to one
table or one action, never stops the others, and ends in exit code 1.
"""

from __future__ import annotations


class LakehouseError(Exception):
    """Base of all errors raised on purpose. `code` is stable, for scripts; `message` is for people."""

    code = "error"

    def __init__(self, message: str, *, field: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.hint = hint

    def as_json(self) -> dict[str, str | None]:
        """The `error` object of the command line: code, message, field, hint."""
        return {"code": self.code, "message": self.message, "field": self.field, "hint": self.hint}

    def __str__(self) -> str:
        return self.message


class InputError(LakehouseError):
    """Bad input or configuration, found before anything was read or written."""

    code = "bad_input"


class ConfigurationError(InputError):
    """`lakehouse.yaml` (or a file it names) is missing or wrong; `field` is the dotted key."""

    code = "bad_configuration"


class UnknownTableError(InputError):
    """A table or pattern that names nothing in the configured catalogs."""

    code = "unknown_table"


class CatalogUnavailableError(InputError):
    """A catalog that cannot be reached, does not exist, or refuses our credentials."""

    code = "catalog_unavailable"


class TableError(LakehouseError):
    """One table cannot be read or maintained; the others go on. `field` is the table's name."""

    code = "table_error"


class TableUnreadableError(TableError):
    """Metadata, manifest list or manifest is missing, truncated or garbage."""

    code = "table_unreadable"


class UnsupportedError(TableError):
    """The chosen engine cannot do this safely; said before anything is touched."""

    code = "unsupported"


class StorageError(LakehouseError):
    """An object store refused or failed a call."""

    code = "storage_error"


class NotFoundError(StorageError):
    """The object does not exist."""

    code = "not_found"


class AlreadyExistsError(StorageError):
    """Something lies where a copy was to go; it was not overwritten."""

    code = "already_exists"


class ListingIncompleteError(StorageError):
    """A listing failed part-way. What was seen so far must not be taken for all there is."""

    code = "listing_incomplete"


class OccupiedError(TableError):
    """Something lies where a quarantined folder or file is to be restored to; nothing was overwritten."""

    code = "occupied"


class LeaseHeldError(TableError):
    """Another run holds the table's lease."""

    code = "lease_held"


class LeaseLostError(TableError):
    """Our lease ended or was taken over; nothing may be committed under it any more."""

    code = "lease_lost"


class CommitConflictError(TableError):
    """A definite rejection: another writer won, and what we wrote no longer fits. Nothing of ours is visible."""

    code = "commit_conflict"


class CommitUnknownError(TableError):
    """The catalog's answer was lost: the commit may or may not be visible. Nothing may be cleaned up."""

    code = "commit_unknown"


class VerificationError(TableError):
    """The table after an action is not what it has to be; `hint` names the snapshot to roll back to."""

    code = "verification_failed"


class AuditError(TableError):
    """An audit table cannot be made ready, or a row of it is not recorded; `field` is the audit table's name."""

    code = "audit_failed"
