"""From PyIceberg's FileIO properties (`s3.*`, `client.*`, `gcs.*`, `adls.*`) to obstore clients.

Credentials come from the properties. Only where they name none does obstore look where the vendor's tools look:
environment, web identity, the machine's own role.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.model.locations import Location

if TYPE_CHECKING:
    from obstore.store import AzureStore, ClientConfig, GCSStore, ObjectStore, RetryConfig, S3Store

CONNECT_TIMEOUT = timedelta(seconds=10)
READ_TIMEOUT = timedelta(seconds=60)
"""Longest wait for the next bytes of an answer; `s3.connect-timeout` and `s3.request-timeout` (seconds) overrule."""

CALL_TIMEOUT = timedelta(minutes=15)
"""Longest a single call may take with all its bytes."""

MAX_RETRIES = 8
RETRY_TIMEOUT = timedelta(minutes=1)
FIRST_BACKOFF = timedelta(milliseconds=100)
LONGEST_BACKOFF = timedelta(seconds=10)
"""503, 429, time-outs and dropped connections are tried again, with growing pauses, before they count as failed."""


def client_for(location: Location, properties: Mapping[str, str]) -> ObjectStore:
    """The client for the location's bucket or container. No I/O. Raises StorageError for a scheme nobody serves."""
    try:
        if location.family == "s3":
            return _s3(location.authority, properties)
        if location.family == "gs":
            return _gcs(location.authority, properties)
        if location.family == "abfs":
            return _azure(location.authority, properties)
    except StorageError:
        raise
    except Exception as error:
        # obstore refuses configurations with its own errors, boto3 with others; neither is a store's answer.
        raise StorageError(
            f"cannot configure access to {location.root}: {str(error).partition('Debug source')[0].strip()}",
            hint="check the catalog's properties",
        ) from error
    raise StorageError(
        f"no storage for the scheme {location.scheme!r} of {location.text}",
        hint="file, s3 (s3a, s3n), gs (gcs) and abfs (abfss, wasb, wasbs) are supported",
    )


def _s3(bucket: str, properties: Mapping[str, str]) -> S3Store:
    from obstore.store import S3Store

    if "signer" in (properties.get("s3.signer") or "").lower():
        raise StorageError(
            "the catalog signs each request remotely, which cannot list storage",
            hint="let the catalog vend credentials, or set s3.access-key-id and s3.secret-access-key",
        )
    config: dict[str, Any] = {}
    _copy(
        properties,
        config,
        {
            "access_key_id": ("s3.access-key-id", "client.access-key-id"),
            "secret_access_key": ("s3.secret-access-key", "client.secret-access-key"),
            "session_token": ("s3.session-token", "client.session-token"),
            "region": ("s3.region", "client.region"),
        },
    )
    endpoint = _url(properties.get("s3.endpoint"))
    virtual = _flag(properties, "s3.force-virtual-addressing")
    if virtual:
        config["virtual_hosted_style_request"] = True
    if endpoint:
        # With virtual addressing, obstore takes the endpoint for the bucket's own host.
        config["endpoint"] = endpoint.replace("://", f"://{bucket}.", 1) if virtual else endpoint
    if _flag(properties, "s3.anonymous"):
        config["skip_signature"] = True
    return S3Store(
        bucket,
        config=config,  # type: ignore[arg-type]
        client_options=_options(
            endpoint,
            proxy=properties.get("s3.proxy-uri"),
            connect=properties.get("s3.connect-timeout"),
            read=properties.get("s3.request-timeout"),
        ),
        retry_config=_retries(),
        credential_provider=_s3_credentials(properties),
    )


def _s3_credentials(properties: Mapping[str, str]) -> Any:
    """A provider for profiles and assumed roles, which need the vendor's client; None for everything else."""
    profile = properties.get("s3.profile-name") or properties.get("client.profile-name")
    role = properties.get("s3.role-arn") or properties.get("client.role-arn")
    if not profile and not role:
        return None
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider, StsCredentialProvider
    except ImportError as error:
        raise StorageError(
            "a profile or a role in the catalog's properties needs boto3", hint="pip install boto3"
        ) from error
    session = boto3.Session(
        aws_access_key_id=properties.get("s3.access-key-id") or properties.get("client.access-key-id"),
        aws_secret_access_key=properties.get("s3.secret-access-key") or properties.get("client.secret-access-key"),
        aws_session_token=properties.get("s3.session-token") or properties.get("client.session-token"),
        region_name=properties.get("s3.region") or properties.get("client.region"),
        profile_name=profile,
    )
    if not role:
        return Boto3CredentialProvider(session)
    name = properties.get("s3.role-session-name") or properties.get("client.role-session-name")
    return StsCredentialProvider(session, RoleArn=role, RoleSessionName=name or "lakehouse-maintenance")


def _gcs(bucket: str, properties: Mapping[str, str]) -> GCSStore:
    from obstore.store import GCSStore

    config: dict[str, Any] = {}
    endpoint = _url(properties.get("gcs.service.host"))
    if endpoint:
        config["base_url"] = endpoint
    token = properties.get("gcs.oauth2.token")
    expires = properties.get("gcs.oauth2.token-expires-at")
    provider = None
    if token:
        expires_at = datetime.fromtimestamp(int(expires) / 1000, UTC) if expires else None

        def provider() -> dict[str, Any]:
            return {"token": token, "expires_at": expires_at}

    return GCSStore(
        bucket,
        config=config,  # type: ignore[arg-type]
        client_options=_options(endpoint),
        retry_config=_retries(),
        credential_provider=provider,  # type: ignore[arg-type]
    )


def _azure(authority: str, properties: Mapping[str, str]) -> AzureStore:
    from obstore.store import AzureStore

    container, _, host = authority.rpartition("@") if "@" in authority else (authority, "", "")
    parts = _connection_string(properties.get("adls.connection-string"))
    account = host.partition(".")[0] or properties.get("adls.account-name") or parts.get("AccountName")
    config: dict[str, Any] = {}
    _copy(
        properties,
        config,
        {
            "account_key": ("adls.account-key",),
            "sas_key": (f"adls.sas-token.{host}", f"adls.sas-token.{account}", "adls.sas-token"),
            "tenant_id": ("adls.tenant-id",),
            "client_id": ("adls.client-id",),
            "client_secret": ("adls.client-secret",),
            "token": ("adls.token",),
        },
    )
    if account:
        config["account_name"] = account
    if "AccountKey" in parts:
        config.setdefault("account_key", parts["AccountKey"])
    if "SharedAccessSignature" in parts:
        config.setdefault("sas_key", parts["SharedAccessSignature"])
    if _flag(properties, "adls.anon"):
        config["skip_signature"] = True
    endpoint = parts.get("BlobEndpoint")
    own_host = properties.get("adls.blob-storage-authority") or properties.get("adls.account-host")
    if own_host:
        scheme = properties.get("adls.blob-storage-scheme", "https")
        # An authority that begins with a dot is a domain below which accounts are; a bare host serves them as paths.
        endpoint = f"{scheme}://{account}{own_host}" if own_host.startswith(".") else f"{scheme}://{own_host}"
        if properties.get("adls.blob-storage-authority") and not own_host.startswith("."):
            endpoint += f"/{account}"
    if endpoint:
        config["endpoint"] = endpoint
    return AzureStore(
        container,
        config=config,  # type: ignore[arg-type]
        client_options=_options(endpoint),
        retry_config=_retries(),
    )


def _connection_string(text: str | None) -> dict[str, str]:
    pairs = (part.partition("=") for part in (text or "").split(";") if part)
    return {key: value for key, _, value in pairs}


def _copy(properties: Mapping[str, str], config: dict[str, Any], names: Mapping[str, tuple[str, ...]]) -> None:
    """The first property that is set wins, as in PyIceberg."""
    for target, sources in names.items():
        for source in sources:
            if properties.get(source):
                config[target] = properties[source]
                break


def _flag(properties: Mapping[str, str], name: str) -> bool:
    return str(properties.get(name, "")).lower() in ("true", "1", "yes", "y", "t", "on")


def _url(endpoint: str | None) -> str | None:
    """PyIceberg allows endpoints without a scheme, and takes them for https."""
    if not endpoint:
        return None
    return (endpoint if "://" in endpoint else f"https://{endpoint}").rstrip("/")


def _options(
    endpoint: str | None, *, proxy: str | None = None, connect: str | None = None, read: str | None = None
) -> ClientConfig:
    options: ClientConfig = {
        "connect_timeout": timedelta(seconds=float(connect)) if connect else CONNECT_TIMEOUT,
        "read_timeout": timedelta(seconds=float(read)) if read else READ_TIMEOUT,
        "timeout": CALL_TIMEOUT,
    }
    if endpoint and endpoint.lower().startswith("http://"):
        options["allow_http"] = True
    if proxy:
        options["proxy_url"] = proxy
    return options


def _retries() -> RetryConfig:
    return {
        "max_retries": MAX_RETRIES,
        "retry_timeout": RETRY_TIMEOUT,
        "backoff": {"init_backoff": FIRST_BACKOFF, "max_backoff": LONGEST_BACKOFF, "base": 2},
    }
