"""Clients repeat what they were given in their errors: secrets are taken out before a person sees the text."""

from __future__ import annotations

from collections.abc import Mapping

from lakehouse_maintenance.config.secrets import Masker, property_secrets, texts_in, url_secrets


def masker_for(properties: Mapping[str, str]) -> Masker:
    """Knows every secret of a catalog's or FileIO's properties, passwords inside URLs included."""
    in_urls = (secret for text in texts_in(properties) for secret in url_secrets(text))
    return Masker([*property_secrets(properties), *in_urls])
