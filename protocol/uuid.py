"""Converts topic and directory ids to text: URL-safe base64 without padding, as in znodes, `partition.metadata` and Kafka's tools.

On the wire and in messages an id is its 16 bytes.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

ZERO_UUID: Final = bytes(16)

_TEXT_LENGTH: Final = 22


def to_text(uuid: bytes) -> str:
    """The text of an id of 16 bytes: 22 characters."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def from_text(text: str) -> bytes:
    """The 16 bytes of an id. Raises ValueError when the text is not 22 characters of URL-safe base64."""
    if len(text) != _TEXT_LENGTH:
        raise ValueError(f"{text!r} is not an id: {len(text)} characters instead of {_TEXT_LENGTH}")
    try:
        return base64.b64decode(text.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(f"{text!r} is not an id: {error}") from None
