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

MAX_RETRIES = 10
RETRY_TIMEOUT = timedelta(minutes=2)
FIRST_BACKOFF = timedelta(milliseconds=100)
LONGEST_BACKOFF = timedelta(seconds=10)
BACKOFF_GROWTH = 3
"""503, 429, time-outs and dropped connections are tried again, with growing pauses, before they count as failed.

A pause is drawn between the first and `BACKOFF_GROWTH` times the last one, so that it grows by half on average: ten
of them last some twenty seconds, at most `RETRY_TIMEOUT`. (Growth by 2 hardly grows: eight pauses were two seconds.)
The same for list, stat, read, copy and each deleting call; `removal` has its own patience on top for deletions.
"""


def client_for(location: Location, properties: Mapping[str, str], *, retries: bool = True) -> ObjectStore:
    """The client for the location's bucket or container. No I/O. Raises StorageError for a scheme nobody serves.

    Without `retries` each request is sent once: a refused condition is then never met by an earlier try of our own.
    """
    try:
        if location.family == "s3":
            return _s3(location.authority, properties, retries)
        if location.family == "gs":
            return _gcs(location.authority, properties, retries)
        if location.family == "abfs":
            return _azure(location.authority, properties, retries)
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


def _s3(bucket: str, properties: Mapping[str, str], retries: bool) -> S3Store:
    from obstore.store import S3Store

    if "signer" in (properties.get("s3.signer") or "").lower():
        raise StorageError(
            "the catalog signs each request remotely, which cannot list storage",
            hint="let the catalog vend credentials, or set s3.access-key-id and s3.secret-access-key",
        )
    # A copy must not overwrite: AWS and SeaweedFS honour this header on CopyObject, other stores mostly ignore it.
    config: dict[str, Any] = {"copy_if_not_exists": "header: if-none-match: *"}
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
    endpoint = s3_endpoint(properties)
    virtual = flag(properties, "s3.force-virtual-addressing")
    if virtual:
        config["virtual_hosted_style_request"] = True
    if endpoint:
        # With virtual addressing, obstore takes the endpoint for the bucket's own host.
        config["endpoint"] = endpoint.replace("://", f"://{bucket}.", 1) if virtual else endpoint
    if flag(properties, "s3.anonymous"):
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
        retry_config=_retries(MAX_RETRIES if retries else 0),
        credential_provider=_s3_credentials(properties),
    )


def _s3_credentials(properties: Mapping[str, str]) -> Any:
    """A provider for profiles and assumed roles, which need the vendor's client; None for everything else."""
    role = first(properties, "role-arn")
    if not role and not first(properties, "profile-name"):
        return None
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider, StsCredentialProvider
    except ImportError as error:
        raise StorageError(
            "a profile or a role in the catalog's properties needs boto3",
            hint="pip install 'lakehouse-maintenance[aws]'",
        ) from error
    session = boto3_session(properties)
    if not role:
        return Boto3CredentialProvider(session)
    assumed = StsCredentialProvider(session, RoleArn=role, RoleSessionName=role_session_name(properties))

    def provider() -> dict[str, Any]:
        given = assumed()
        expires = given["expires_at"]
        # boto3 tells the time in a zone of its own, and obstore takes no other UTC than the standard library's.
        return {**given, "expires_at": expires.astimezone(UTC) if expires else None}

    return provider


def boto3_session(properties: Mapping[str, str]) -> Any:
    """The vendor's session for the same properties, before it assumes a role. Raises ImportError without boto3."""
    import boto3

    return boto3.Session(
        aws_access_key_id=first(properties, "access-key-id"),
        aws_secret_access_key=first(properties, "secret-access-key"),
        aws_session_token=first(properties, "session-token"),
        region_name=first(properties, "region"),
        profile_name=first(properties, "profile-name"),
    )


def role_session_name(properties: Mapping[str, str]) -> str:
    """As named in the properties, or ours."""
    return first(properties, "role-session-name") or "lakehouse-maintenance"


def s3_endpoint(properties: Mapping[str, str]) -> str | None:
    """`s3.endpoint` with a scheme; None for AWS."""
    return _url(properties.get("s3.endpoint"))


def first(properties: Mapping[str, str], name: str) -> str | None:
    """`s3.<name>`, else `client.<name>`; None where neither is set."""
    return properties.get(f"s3.{name}") or properties.get(f"client.{name}") or None


def _gcs(bucket: str, properties: Mapping[str, str], retries: bool) -> GCSStore:
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
        retry_config=_retries(MAX_RETRIES if retries else 0),
        credential_provider=provider,  # type: ignore[arg-type]
    )


def _azure(authority: str, properties: Mapping[str, str], retries: bool) -> AzureStore:
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
    if flag(properties, "adls.anon"):
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
        retry_config=_retries(MAX_RETRIES if retries else 0),
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


def flag(properties: Mapping[str, str], name: str) -> bool:
    """A property as PyIceberg writes booleans."""
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


def _retries(most: int) -> RetryConfig:
    return {
        "max_retries": most,
        "retry_timeout": RETRY_TIMEOUT,
        "backoff": {"init_backoff": FIRST_BACKOFF, "max_backoff": LONGEST_BACKOFF, "base": BACKOFF_GROWTH},
    }
