"""S3 through the vendor's own client (boto3), for what obstore cannot name or cannot do: keys are exact here.

Slower than obstore, and never imported before an odd key, a very large copy or a question about versioning needs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lakehouse_maintenance.model.errors import AlreadyExistsError, NotFoundError, StorageError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import clients
from lakehouse_maintenance.storage.base import ObjectInfo
from lakehouse_maintenance.storage.causes import shortened

if TYPE_CHECKING:
    from collections.abc import Callable

POOL = 16
"""Connections kept, as many as storage makes calls at a time."""

COPY_LIMIT = 5 * 1024**3
"""Bytes that one CopyObject call may copy; larger objects go in parts."""

_ABSENT = {"404", "NoSuchKey", "NotFound"}
_OCCUPIED = {"412", "PreconditionFailed", "409", "ConditionalRequestConflict"}
_NOT_KNOWN = {"501", "NotImplemented"}


def is_large(source: ObjectInfo) -> bool:
    """More than one CopyObject call may copy."""
    return source.size > COPY_LIMIT


def open_vendor(root: Location, properties: Mapping[str, str], clean: Callable[[str], str]) -> VendorS3 | None:
    """boto3 with the endpoint, credentials, region and addressing that obstore was given. None where it is missing."""
    if root.family != "s3":
        return None
    try:
        import boto3  # noqa: F401  # only asks whether it is there
    except ImportError:
        return None
    return VendorS3(_client(properties), root, clean)


def _client(properties: Mapping[str, str]) -> Any:
    from botocore import UNSIGNED
    from botocore.config import Config

    proxy = properties.get("s3.proxy-uri")
    virtual = clients.flag(properties, "s3.force-virtual-addressing")
    config = Config(
        s3={"addressing_style": "virtual" if virtual else "path"},
        signature_version=UNSIGNED if clients.flag(properties, "s3.anonymous") else None,
        connect_timeout=float(properties.get("s3.connect-timeout") or clients.CONNECT_TIMEOUT.total_seconds()),
        read_timeout=float(properties.get("s3.request-timeout") or clients.READ_TIMEOUT.total_seconds()),
        retries={"mode": "standard", "total_max_attempts": clients.MAX_RETRIES + 1},
        max_pool_connections=POOL,
        proxies={"http": proxy, "https": proxy} if proxy else None,
        # Many S3-compatible stores refuse the checksums that newer clients add on their own.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return _session(properties).client("s3", endpoint_url=clients.s3_endpoint(properties), config=config)


def _session(properties: Mapping[str, str]) -> Any:
    session = clients.boto3_session(properties)
    role = clients.first(properties, "role-arn")
    if not role:
        return session
    import boto3
    import botocore.session
    from botocore.credentials import AssumeRoleCredentialFetcher, CredentialResolver, DeferredRefreshableCredentials

    fetcher = AssumeRoleCredentialFetcher(
        session.client,
        session.get_credentials(),
        role,
        extra_args={"RoleSessionName": clients.role_session_name(properties)},
    )
    credentials = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")
    core = botocore.session.get_session()
    core.register_component("credential_provider", CredentialResolver([_Given(credentials)]))
    return boto3.Session(botocore_session=core, region_name=clients.first(properties, "region"))


class _Given:
    """A botocore credential provider that has them already."""

    METHOD = CANONICAL_NAME = "given"

    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials

    def load(self) -> Any:
        return self._credentials


class VendorS3:
    """One bucket. Errors as in `Storage`, without the bucket's proof of absence."""

    def __init__(self, client: Any, root: Location, clean: Callable[[str], str]) -> None:
        self.client = client
        self._root = root
        self._bucket = root.authority
        self._clean = clean

    def pages(self, prefix: str, after: str | None) -> Iterator[list[ObjectInfo]]:
        """The objects whose keys begin with `prefix` and come after `after`, in the store's pages.

        With `after`, everything has to come in the order of keys: a store that lists otherwise could have left out
        what lies behind, so StorageError.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        asked = {"Bucket": self._bucket, "Prefix": prefix, **({} if after is None else {"StartAfter": after})}
        last = after
        try:
            # boto3 asks for url-encoded keys and decodes them: XML cannot carry control characters.
            for page in self.client.get_paginator("list_objects_v2").paginate(**asked):
                found = [self._info(item["Key"], item, "Size") for item in page.get("Contents", [])]
                if last is not None:
                    last = self._in_order(last, found)
                yield found
        except (ClientError, BotoCoreError) as error:
            raise StorageError(self._cause(error)) from error

    def folders(self, prefix: str) -> list[str]:
        """The keys of the folders directly below `prefix`, which is empty or ends in `/`; theirs end in `/` as well."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            pages = self.client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=prefix, Delimiter="/"
            )
            return [one["Prefix"] for page in pages for one in page.get("CommonPrefixes", [])]
        except (ClientError, BotoCoreError) as error:
            raise StorageError(self._cause(error)) from error

    def _in_order(self, last: str, found: list[ObjectInfo]) -> str:
        for info in found:
            if info.location.key.encode() <= last.encode():
                raise StorageError("the store does not list in the order of keys, so the listing cannot be continued")
            last = info.location.key
        return last

    def stat(self, location: Location) -> ObjectInfo | None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            found = self.client.head_object(Bucket=self._bucket, Key=location.key)
        except (ClientError, BotoCoreError) as error:
            if _code(error) in _ABSENT:
                return None
            raise self._failed("stat", location, error) from error
        return self._info(location.key, found, "ContentLength", location)

    def read(self, location: Location, start: int, length: int | None) -> bytes:
        from botocore.exceptions import BotoCoreError, ClientError

        asked = {"Bucket": self._bucket, "Key": location.key}
        if start or length is not None:
            asked["Range"] = f"bytes={start}-{'' if length is None else start + length - 1}"
        try:
            return bytes(self.client.get_object(**asked)["Body"].read())
        except (ClientError, BotoCoreError) as error:
            if _code(error) in _ABSENT:
                raise NotFoundError(f"{location.text} does not exist") from error
            raise self._failed("read", location, error) from error

    def copy(self, source: ObjectInfo, target: Location) -> None:
        """One call, conditional where the store knows that; above `COPY_LIMIT` in parts, which is not conditional."""
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        what = {"Bucket": self._bucket, "Key": source.location.key}
        try:
            if is_large(source):
                same = {"CopySourceIfMatch": source.etag} if source.etag else {}
                self.client.copy(what, self._bucket, target.key, ExtraArgs=same)
            else:
                self._copy_whole({"Bucket": self._bucket, "Key": target.key, "CopySource": what})
        except (ClientError, BotoCoreError, Boto3Error) as error:
            code = _code(error)
            if code in _OCCUPIED:
                raise AlreadyExistsError(f"{target.text} exists already and was not overwritten") from error
            if code in _ABSENT:
                raise NotFoundError(f"{source.location.text} does not exist") from error
            raise self._failed("copy", source.location, error) from error

    def _copy_whole(self, asked: dict[str, Any]) -> None:
        from botocore.exceptions import ClientError

        shape = self.client.meta.service_model.operation_model("CopyObject").input_shape
        if "IfNoneMatch" in shape.members:
            try:
                self.client.copy_object(**asked, IfNoneMatch="*")
                return
            except ClientError as error:
                if _code(error) not in _NOT_KNOWN:
                    raise
        self.client.copy_object(**asked)

    def is_encrypted_with_own_key(self, location: Location) -> bool:
        """Under KMS or customer keys an ETag looks like a checksum and is none."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            found = self.client.head_object(Bucket=self._bucket, Key=location.key)
        except (ClientError, BotoCoreError) as error:
            raise self._failed("stat", location, error) from error
        return str(found.get("ServerSideEncryption", "")).startswith("aws:") or "SSECustomerAlgorithm" in found

    def keeps_versions(self) -> bool | None:
        """None where the store does not say, or versioning was suspended: older versions stay, newer ones do not."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            status = self.client.get_bucket_versioning(Bucket=self._bucket).get("Status")
        except (ClientError, BotoCoreError):
            return None
        return {"Enabled": True, None: False}.get(status)

    def _info(self, key: str, found: Mapping[str, Any], size: str, location: Location | None = None) -> ObjectInfo:
        where = location or self._root.with_key(key)
        return ObjectInfo(where, int(found[size]), found.get("LastModified"), found.get("ETag"))

    def _failed(self, what: str, location: Location, error: Exception) -> StorageError:
        return StorageError(f"cannot {what} {location.text}: {self._cause(error)}")

    def _cause(self, error: Exception) -> str:
        return shortened(self._clean(str(error)))


def _code(error: Exception) -> str:
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""
