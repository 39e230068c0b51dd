"""Encodes and decodes znode bodies: compact JSON in Jackson's form. Called by the modules of `znodes`."""

import json
from collections.abc import Mapping
from typing import Any


class MalformedZNode(ValueError):
    """A node has a body that no version of Kafka writes. Carries its path and the reason."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}; repair or remove the node")
        self.path = path
        self.reason = reason


def encode_json(body: Mapping[str, Any]) -> bytes:
    """As Jackson does: no whitespace, UTF-8 unescaped."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def decode_object(path: str, data: bytes | None) -> dict[str, Any]:
    """The JSON object in `data`. Raises MalformedZNode."""
    try:
        body = json.loads(data or b"")
    except ValueError as error:
        raise MalformedZNode(path, f"not JSON: {error}") from error
    if not isinstance(body, dict):
        raise MalformedZNode(path, "not a JSON object")
    return body
