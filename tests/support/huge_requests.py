"""Requests with very many elements, of every API that a client may ask.

`wide` has that many elements in its arrays at the top, with one in each array within; `bare` has the same with none in each array within;
`deep` has one element at the top and that many in each array within. Strings differ, all else has its default.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ottla.broker.handlers.table import SERVED, handlers_of
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.header import RequestHeader
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.schema.api_versions import versions_in_3_9
from ottla.protocol.schema.fields import ArrayOf, Fixed, StructOf, Variable, WireType
from ottla.protocol.schema.framing import frame
from ottla.protocol.schema.message import Message, Struct
from ottla.protocol.schema.registry import INTER_BROKER_APIS, api

_SHAPES = ("wide", "bare", "deep")


def huge(cls: type[Struct], version: int, at_top: int, within: int) -> Any:
    """A structure with `at_top` elements in its arrays, and `within` in the arrays of those."""
    made = cls()
    for field in cls.SCHEMA.fields:
        if field.versions.cover(version) and field.tag is None and isinstance(field.type, ArrayOf):
            setattr(made, field.name, [_element(field.type.element, version, number, within) for number in range(at_top)])
    return made


def _element(wire_type: WireType, version: int, number: int, within: int) -> Any:
    match wire_type:
        case StructOf():
            made = huge(wire_type.cls, version, within, 1)
            for field in wire_type.cls.SCHEMA.fields:
                if isinstance(field.type, Variable | Fixed) and field.versions.cover(version) and field.default in ("", b"", 0):
                    setattr(made, field.name, _element(field.type, version, number, 1))
            return made
        case Variable():
            return f"name-{number}" if wire_type.name == "string" else b""
        case Fixed():
            return number % 100 if wire_type.code in "bBhH" else number if wire_type.code in "iIq" else bool(number)
        case ArrayOf():
            return []
    raise TypeError(wire_type)


def huge_requests(elements: int, only: frozenset[str] = frozenset(), *, in_first_version: bool = False) -> Iterator[tuple[str, bytes]]:
    """(what it is, its frame) of every API that a client may ask, or of those that are named; in the last version, or in the first."""
    for key in sorted(SERVED if only else SERVED - INTER_BROKER_APIS):
        types = api(key)
        version = getattr(versions_in_3_9(key), "first" if in_first_version else "last")
        if only and key.name not in only:
            continue
        if not any(isinstance(field.type, ArrayOf) and field.versions.cover(version) for field in types.request.SCHEMA.fields):
            continue
        for shape in _SHAPES:
            if shape == "bare" and (key == ApiKey.CREATE_TOPICS or handlers_of(key)[0] is None):
                continue  # it would create the topics; or the frame is read part by part, whatever is in it
            request = huge(types.request, version, *((1, elements) if shape == "deep" else (elements, int(shape == "wide"))))
            if isinstance(request, MetadataRequest) and not in_first_version:
                request.allow_auto_topic_creation = False
                for topic in request.topics or ():
                    topic.topic_id = bytes(16)
            if isinstance(request, ProduceRequest):
                request.acks = 1
            if hasattr(request, "timeout_ms"):
                request.timeout_ms = 1000
            yield f"{key.name} {shape}", _framed(key, version, request)
        if key == ApiKey.METADATA and not in_first_version:
            creating = MetadataRequest(topics=[MetadataRequestTopic(name=f"made-{number}") for number in range(elements // 100)])
            yield f"{key.name} creating {elements // 100}", _framed(key, version, creating)


def _framed(key: ApiKey, version: int, request: Message) -> bytes:
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=7, client_id="huge")
    return frame(header.encode(api(key).request_header_version(version)), request.encode(version))
