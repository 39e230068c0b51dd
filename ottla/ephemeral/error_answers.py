"""Makes the response to a request in which everything failed with one error code.

The response repeats the topics, partitions and groups of the request. Request and response have different names for the same list, so the
first list of the request corresponds to the first list of the response, and so on for nested lists. The error is in each innermost element,
or at the top if the request has no elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ottla.broker.network.request_channel import CLOSE, Completion
from ottla.broker.serving.route import Route
from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema.fields import ArrayOf, Field, StructOf
from ottla.protocol.schema.message import Struct
from ottla.protocol.schema.wire import skip_tagged_fields

_CODE: Final = "error_code"
_SAME: Final = {
    "partition_index": ("partition", "partition_index"),
    "partition": ("partition_index", "partition"),
    "topic": ("name", "topic"),
    "name": ("topic", "name"),
    "group_id": ("group_id", "group"),
}
"""Field of a response -> fields of a request with the same meaning."""
_LIST_OF_TEXT: Final = {"name", "group_id", "key", "topic"}
_LIST_OF_NUMBERS: Final = {"partition_index", "partition", "index"}


def error_answer(frame: memoryview, route: Route, error: ErrorCode) -> Completion:
    """The response with this error, or CLOSE for a response without a place for it, and for a Produce that gets no response."""
    request, _ = route.request_class.decode(frame, route.version, _body_offset(frame, route))
    if getattr(request, "acks", None) == 0:
        return CLOSE  # as Apache Kafka answers it after an error
    response = route.response_class()
    if not _fill(response, request, int(error), route.version):
        return CLOSE
    return route.encode(int.from_bytes(frame[4:8], "big", signed=True), response)


def _fill(response: Struct, request: Struct, code: int, version: int) -> bool:
    """Fills the response like the request; False if no field has the error."""
    if _fill_list(response, request, code, version):
        return True
    if any(field.name == _CODE and field.versions.cover(version) for field in response.SCHEMA.fields):
        setattr(response, _CODE, code)
        return True
    return False


def _fill_list(response: Struct, request: Struct, code: int, version: int) -> bool:
    into = next((field for field in _lists(response, version) if _has_code(field)), None)
    out_of = next(_lists(request, version), None)
    if into is None or out_of is None or not isinstance(into.type, ArrayOf) or not isinstance(into.type.element, StructOf):
        return False
    filled = False
    elements: list[Struct] = []
    for each in getattr(request, out_of.name) or ():
        element: Struct = into.type.element.cls()
        _copy(element, each)
        if not isinstance(each, Struct) or not _fill_list(element, each, code, version):
            if not any(field.name == _CODE for field in element.SCHEMA.fields):
                continue
            setattr(element, _CODE, code)
        elements.append(element)
        filled = True
    if filled:
        setattr(response, into.name, elements)
    return filled


def _lists(message: Struct, version: int) -> Iterator[Field]:
    return (field for field in message.SCHEMA.fields if isinstance(field.type, ArrayOf) and field.versions.cover(version))


def _has_code(field: Field) -> bool:
    """Whether the elements of a list have an error code, or lists whose elements do."""
    if not isinstance(field.type, ArrayOf) or not isinstance(field.type.element, StructOf):
        return False
    return any(each.name == _CODE or _has_code(each) for each in field.type.element.fields)


def _copy(element: Struct, source: Any) -> None:
    """Takes over what names the element."""
    for field in element.SCHEMA.fields:
        if isinstance(source, Struct):
            for name in _SAME.get(field.name, (field.name,)):
                value = getattr(source, name, None)
                if value is not None and not isinstance(value, list):
                    setattr(element, field.name, value)
        elif (isinstance(source, str) and field.name in _LIST_OF_TEXT) or (isinstance(source, int) and field.name in _LIST_OF_NUMBERS):
            setattr(element, field.name, source)


def _body_offset(frame: memoryview, route: Route) -> int:
    """Where the body begins, after the request header."""
    if not route.has_client_id:
        return 8
    offset = 10 + max(0, int.from_bytes(frame[8:10], "big", signed=True))
    return skip_tagged_fields(frame, offset) if route.flexible_request_header else offset
