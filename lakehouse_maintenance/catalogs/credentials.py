"""Whose credentials a catalog's properties hold, and whether they can list storage at all."""

from __future__ import annotations

from collections.abc import Mapping

from lakehouse_maintenance.storage.clients import flag

_CREDENTIALS = {
    "s3": (
        *("s3.access-key-id", "client.access-key-id", "s3.profile-name", "client.profile-name"),
        *("s3.role-arn", "client.role-arn", "s3.anonymous"),
    ),
    "gs": ("gcs.oauth2.token",),
    "abfs": (
        *("adls.account-key", "adls.connection-string", "adls.sas-token", "adls.client-secret"),
        *("adls.token", "adls.anon"),
    ),
}


def families_with_credentials(properties: Mapping[str, str]) -> frozenset[str]:
    """Families of storage for which the properties themselves say who we are; for others the machine would."""
    found = {family for family, keys in _CREDENTIALS.items() if any(properties.get(key) for key in keys)}
    if any(key.startswith("adls.sas-token.") and value for key, value in properties.items()):
        found.add("abfs")
    return frozenset(found)


def are_vended(own: Mapping[str, str], given: Mapping[str, str]) -> bool:
    """Whether a table's properties hold credentials that the catalog's own do not."""
    return any(own.get(key) != str(value) for key, value in given.items() if _is_secret(key))


def signs_remotely(properties: Mapping[str, str]) -> bool:
    """Whether the service wants to sign each request itself, which it does for files and for no listing."""
    return bool(properties.get("s3.signer")) or flag(properties, "s3.remote-signing-enabled")


def _is_secret(key: str) -> bool:
    return key.startswith(("s3.", "adls.", "gcs.", "client.")) and any(
        word in key for word in ("key", "token", "secret")
    )
