"""From the storage options of `deltalake` (object_store's keys) to the properties that Storage understands."""

from __future__ import annotations

from collections.abc import Mapping

_KEYS = {
    "aws_access_key_id": "s3.access-key-id",
    "aws_secret_access_key": "s3.secret-access-key",
    "aws_session_token": "s3.session-token",
    "aws_token": "s3.session-token",
    "aws_region": "s3.region",
    "aws_default_region": "s3.region",
    "aws_endpoint_url": "s3.endpoint",
    "aws_endpoint": "s3.endpoint",
    "azure_storage_account_name": "adls.account-name",
    "azure_account_name": "adls.account-name",
    "azure_storage_account_key": "adls.account-key",
    "azure_storage_sas_token": "adls.sas-token",
    "azure_storage_sas_key": "adls.sas-token",
    "azure_storage_client_id": "adls.client-id",
    "azure_storage_client_secret": "adls.client-secret",
    "azure_storage_tenant_id": "adls.tenant-id",
    "google_bearer_token": "gcs.oauth2.token",
}
_PREFIXES = ("", "aws_", "azure_storage_", "google_")


def from_storage_options(options: Mapping[str, str]) -> dict[str, str]:
    """Properties for `Storage.from_properties`. Keys with or without their vendor's prefix, in any case.

    Options that concern no credentials, region or endpoint are left out; keys that are properties already stay.
    """
    found: dict[str, str] = {}
    for key, value in options.items():
        if key.startswith(("s3.", "adls.", "gcs.", "client.")):
            found[key] = value
            continue
        wanted = key.lower()
        name = next((_KEYS[prefix + wanted] for prefix in _PREFIXES if prefix + wanted in _KEYS), None)
        if name is not None:
            found[name] = value
    return found
