"""File names for arbitrary keys: readable where that is possible, safe on every file system we may meet."""

from __future__ import annotations

import hashlib
from urllib.parse import unquote_to_bytes

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-.")
_LONGEST = 200
"""File systems allow 255 bytes a name; the rest is left for suffixes."""

_PREVIEW = 100


def file_name(key: str) -> str:
    """A name for `key`; different keys get different names.

    Capitals are percent-encoded too, since some file systems do not tell them apart, and a leading dot, since such
    names are ours. A name that would be too long (or empty) ends in `~` and the key's SHA-256 instead; `~` stands in
    no other name.
    """
    raw = key.encode("utf-8", "surrogatepass")
    encoded = _encode(raw)
    if encoded and len(encoded) <= _LONGEST:
        return encoded
    return encoded[:_PREVIEW] + "~" + hashlib.sha256(raw).hexdigest()


def key_of(name: str) -> str | None:
    """Inverse of `file_name`; None where the name is a hash, or no name of ours."""
    if "~" in name or name.startswith("."):
        return None
    try:
        return unquote_to_bytes(name).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


def name_prefix(prefix: str) -> str:
    """What the names of all keys that begin with `prefix` begin with. Other keys' names may begin with it too."""
    return _encode(prefix.encode("utf-8", "surrogatepass"))[:_PREVIEW]


def _encode(raw: bytes) -> str:
    encoded = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in raw)
    return "%2e" + encoded[1:] if encoded.startswith(".") else encoded
