"""Encodes and decodes znode bodies: compact JSON in Jackson's form. Called by the modules of `znodes`."""

import json
from collections.abc import Mapping
from typing import Any, Final

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_DECODER: Final = json.JSONDecoder()
"""Made once: a controller that takes over decodes the states of all partitions, and `json.loads` costs twice as much."""
_WHITESPACE: Final = " \t\n\r"


class MalformedZNode(ValueError):
    """A node has a body that no version of Kafka writes. Carries its path and the reason."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}; repair or remove the node")
        self.path = path
        self.reason = reason


def encode_json(body: Mapping[str, Any]) -> bytes:
    """As Jackson does: no whitespace, UTF-8 unescaped."""
    return _ENCODER.encode(body).encode()


def decode_object(path: str, data: bytes | None) -> dict[str, Any]:
    """The JSON object in `data`. Raises MalformedZNode."""
    try:
        text = (data or b"").decode().strip(_WHITESPACE)
        body, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise MalformedZNode(path, f"not JSON: {error}") from error
    if end != len(text):
        raise MalformedZNode(path, "not JSON: more follows the first value")
    if not isinstance(body, dict):
        raise MalformedZNode(path, "not a JSON object")
    return body
