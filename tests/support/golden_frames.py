"""Reads the recorded request and response frames (tests/golden/wire), decoded for tests."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.header import RequestHeader, ResponseHeader
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import Api, api

WIRE = Path(__file__).parent.parent / "golden" / "wire"
CAPTURES = ("clients", "sweep", "interbroker", "sasl")


@dataclass(frozen=True, slots=True)
class GoldenFrame:
    """One side of an exchange, without its length; `where` is for messages of failed assertions."""

    where: str
    api: Api
    version: int
    is_request: bool
    data: bytes

    @property
    def header_class(self) -> type[Message]:
        return RequestHeader if self.is_request else ResponseHeader

    @property
    def header_version(self) -> int:
        return self.api.request_header_version(self.version) if self.is_request else self.api.response_header_version(self.version)

    @property
    def body_class(self) -> type[Message]:
        return self.api.request if self.is_request else self.api.response


@cache
def golden_frames(capture: str) -> tuple[GoldenFrame, ...]:
    """All frames of one capture."""
    return tuple(_read(capture))


def all_golden_frames() -> Iterator[GoldenFrame]:
    for capture in CAPTURES:
        yield from golden_frames(capture)


def _read(capture: str) -> Iterator[GoldenFrame]:
    for number, line in enumerate((WIRE / f"{capture}.jsonl").read_text().splitlines(), 1):
        exchange = json.loads(line)
        for side in ("request", "response"):
            if text := exchange.get(f"{side}_hex"):
                where = f"{capture}.jsonl:{number} {exchange['api_name']} {side} v{exchange['version']} of {exchange['client']}"
                yield GoldenFrame(where, api(ApiKey(exchange["api_key"])), exchange["version"], side == "request", bytes.fromhex(text))
