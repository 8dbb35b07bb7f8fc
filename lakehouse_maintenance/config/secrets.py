"""What counts as a secret, and its masking: in values shown to people, and in any text that might repeat one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote

MASK = "***"

_SECRET_KEY = re.compile(
    r"secret|passw(or)?d|passphrase|token|credential|authorization|connection-string"
    r"|key-id|(access|account|api|private|encryption|storage|master|customer|shared)-key"
    r"|(^|-)(sas|pwd|sig|signature|pat)(-|$)"
)
# Keys that speak about a secret without holding one.
_HARMLESS_KEY = re.compile(r"-(enabled|expires-at(-ms)?|expiration(-ms)?|refresh-uri|uri|url|endpoint)$")
# As drivers read it: the password goes to the last @, whatever it holds in between; in running text, up to a space.
_URL_PASSWORD = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^/@:]*):(.*)@", re.DOTALL)
_URL_PASSWORD_IN_TEXT = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^\s/@:]*):([^\s]*)@")
_URL_PARAMETER = re.compile(r"([?&;])([A-Za-z0-9_.-]+)=([^&;\s'\"]+)")
_SHORT = 8


def is_secret_key(key: str) -> bool:
    """True for keys of properties that hold a password, token, key or key id, in any vendor's spelling."""
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", key)
    plain = re.sub(r"[._\s]+", "-", plain).lower()
    squeezed = plain.replace("accesskey", "access-key").replace("keyid", "key-id").replace("accountkey", "account-key")
    return _SECRET_KEY.search(squeezed) is not None and _HARMLESS_KEY.search(squeezed) is None


def mask_url(text: str) -> str:
    """A URL with its password, and the signatures and passwords in its query, masked; other text as it is."""
    return _URL_PARAMETER.sub(_mask_parameter, _URL_PASSWORD.sub(rf"\1:{MASK}@", text))


def mask_property(key: str, value: Any) -> Any:
    """One property as it may be shown: a secret's value masked, and the passwords in URLs."""
    if value is None:
        return None
    if is_secret_key(key) and not isinstance(value, Mapping):
        return MASK
    if isinstance(value, Mapping):
        return mask_properties(value)
    if isinstance(value, list | tuple):
        return [mask_property(key, item) for item in value]
    return mask_url(value) if isinstance(value, str) else value


def mask_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """All properties as they may be shown."""
    return {key: mask_property(str(key), value) for key, value in properties.items()}


def property_secrets(properties: Mapping[str, Any]) -> Iterator[str]:
    """Every secret value in a map of properties."""
    for key, value in properties.items():
        if isinstance(value, Mapping):
            yield from property_secrets(value)
        elif is_secret_key(str(key)):
            for item in value if isinstance(value, list | tuple) else [value]:
                yield from _with_halves(str(item))


def url_secrets(text: str) -> Iterator[str]:
    """The passwords and signatures inside a URL, as written and decoded."""
    found = [match.group(2) for match in _URL_PASSWORD.finditer(text)]
    found += [m.group(3) for m in _URL_PARAMETER.finditer(text) if is_secret_key(m.group(2))]
    for secret in found:
        yield secret
        yield unquote(secret)


def texts_in(data: Any) -> Iterator[str]:
    """Every text value in a tree of mappings and lists."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping):
        for value in data.values():
            yield from texts_in(value)
    elif isinstance(data, list | tuple):
        for value in data:
            yield from texts_in(value)


class Masker:
    """Takes known secrets out of any text: log lines, drivers' error messages, reports.

    A short secret is masked only where it stands as a word: `admin` must not tear `admin_events` apart.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        known = {secret for secret in secrets if secret and secret.lower() not in ("true", "false", "null", "none")}
        patterns = [
            re.escape(form) if len(form) >= _SHORT else rf"(?<![A-Za-z0-9_]){re.escape(form)}(?![A-Za-z0-9_])"
            for form in sorted({form for secret in known for form in _forms(secret)}, key=len, reverse=True)
        ]
        self._pattern = re.compile("|".join(patterns)) if patterns else None

    def mask(self, text: str) -> str:
        """The text without any secret."""
        replaced = text if self._pattern is None else self._pattern.sub(MASK, text)
        if "://" not in replaced:
            return replaced
        return _URL_PARAMETER.sub(_mask_parameter, _URL_PASSWORD_IN_TEXT.sub(rf"\1:{MASK}@", replaced))

    def __repr__(self) -> str:
        return "Masker()"


def _mask_parameter(match: re.Match[str]) -> str:
    separator, key, value = match.groups()
    return f"{separator}{key}={MASK if is_secret_key(key) else value}"


def _with_halves(secret: str) -> Iterator[str]:
    yield secret
    # OAuth2 credentials of REST catalogs are "id:secret", and connection strings are "Key=value;…".
    if secret.count(":") == 1:
        yield from secret.split(":")
    for piece in secret.split(";") if ";" in secret else ():
        key, _, value = piece.partition("=")
        if value and is_secret_key(key):
            yield value


def _forms(secret: str) -> set[str]:
    written = json.dumps(secret)[1:-1]
    return {secret, quote(secret, safe=""), quote(secret), quote_plus(secret), written, repr(secret)[1:-1]}
