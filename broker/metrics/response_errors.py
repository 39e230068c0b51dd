"""Kafka's ErrorsPerSec: every error code of every answer, NONE as well.

A counter per answer's class is compiled at first use: which fields are error codes, and which lead to structures that have some. It runs in
`Route.encode`, which only answers pass that are made of messages. The hand-made answers of the hot path are all without errors; they are
counted by what is left, the requests that were not counted here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.fields import ArrayOf, StructOf

if TYPE_CHECKING:
    from broker.dispatch import Route
    from broker.network.request_channel import Completion
    from protocol.fields import Field
    from protocol.schema import Message

HOT_APIS: dict[int, int] = {ApiKey.PRODUCE: 1, ApiKey.FETCH: 2}
"""Those with hand-made answers, and how many error codes such an answer has: one partition's, and Fetch one of the request."""


class ErrorCounts:
    """(api key, error code) -> how often it was answered."""

    __slots__ = ("counts", "encoded")

    def __init__(self) -> None:
        self.counts: Counter[tuple[int, int]] = Counter()
        self.encoded: Counter[int] = Counter()
        """Answers that were looked at, by api."""

    def items(self, requests: dict[int, int]) -> Iterator[tuple[int, str, int]]:
        """(api key, name of the error, how often); `requests` says how many came, by api."""
        counts = self.counts.copy()
        for api_key, codes in HOT_APIS.items():
            counts[api_key, ErrorCode.NONE] += codes * max(0, requests.get(api_key, 0) - self.encoded[api_key])
        for (api_key, code), count in counts.items():
            if count:
                yield api_key, ErrorCode.of(code).name, count


Walk = Callable[["Message", "Counter[tuple[int, int]]", int], None]


def counting_encoder(route: Route, errors: ErrorCounts) -> Callable[[int, Message], Completion]:
    """The route's encoder, with every answer's error codes counted first."""
    encode = route.encode
    api_key = int(route.api_key)
    walk: Walk | None = None

    def encode_and_count(correlation_id: int, response: Message) -> Completion:
        nonlocal walk
        if walk is None:
            walk = walker(response)
        walk(response, errors.counts, api_key)
        errors.encoded[api_key] += 1
        return encode(correlation_id, response)

    return encode_and_count


def walker(message: Message) -> Walk:
    """A function that counts the error codes of messages like this one."""
    return _walker(message.SCHEMA.fields) or _nothing


def _walker(fields: tuple[Field, ...]) -> Walk | None:
    has_error_code = any(field.name == "error_code" for field in fields)
    within: list[tuple[str, bool, Walk]] = []
    for field in fields:
        is_array = isinstance(field.type, ArrayOf)
        element = field.type.element if isinstance(field.type, ArrayOf) else field.type
        walk = _walker(element.fields) if isinstance(element, StructOf) else None
        if walk is not None:
            within.append((field.name, is_array, walk))
    if not has_error_code and not within:
        return None

    def count(struct: Any, counts: Counter[tuple[int, int]], api_key: int) -> None:
        if has_error_code:
            counts[api_key, struct.error_code] += 1
        for name, is_array, walk in within:
            value = getattr(struct, name)
            if is_array:
                for each in value or ():
                    walk(each, counts, api_key)
            elif value is not None:
                walk(value, counts, api_key)

    return count


def _nothing(message: Message, counts: Counter[tuple[int, int]], api_key: int) -> None:
    pass
