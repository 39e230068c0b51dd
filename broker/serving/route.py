"""How one (API, version) is served: what reads its requests, who handles them, and how answers become bytes.

The dispatcher makes a `Route` when the first such request comes; the metrics count on it, and watch what it encodes.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any

from broker.network.request_channel import BETWEEN_BROKERS, CLOSE, Completion
from broker.request.turns import LARGE_BYTES, Steps
from protocol.api_keys import ApiKey
from protocol.schema.message import Message

if TYPE_CHECKING:
    from broker.handlers.table import FrameHandler, Handler, SeveralHandler
    from broker.request.context import RequestContext
    from protocol.schema.registry import Api

logger = logging.getLogger(__name__)

CORRELATION_ID = Struct(">i")
_FLEXIBLE_RESPONSE_HEADER = Struct(">ib")
_SHORT_HEADER_BYTES = 8

LARGE = {ApiKey.PRODUCE: sys.maxsize}
"""From how many bytes on it takes long to read, where that is not LARGE_BYTES. What makes a Produce large are mostly its records, which are
not looked at."""


class Route:
    """How one (api, version) is served."""

    __slots__ = (
        "api_key",
        "encode",
        "encode_steps",
        "flexible_request_header",
        "frame_handler",
        "handler",
        "has_error_code",
        "is_between_brokers",
        "large_bytes",
        "read",
        "read_steps",
        "request_class",
        "requests",
        "response_class",
        "sample_at",
        "several_handler",
        "version",
    )

    def __init__(
        self,
        types: Api,
        version: int,
        handler: Handler | None,
        frame_handler: FrameHandler | None = None,
        several_handler: SeveralHandler | None = None,
    ) -> None:
        self.api_key = types.key
        self.version = version
        self.handler = handler or _no_message_handler
        self.frame_handler = frame_handler
        self.several_handler = several_handler
        self.read: Callable[[memoryview, int, int], Message | None] | None = None
        if types.request_header_version(version) == 0:
            self.read = partial(_read_behind_short_header, types.request)
        self.request_class = types.request
        self.read_steps = types.key == ApiKey.PRODUCE
        """Whether reading one at once is tried in steps: if a slice of time is not enough, it is large."""
        self.response_class: Callable[..., Message] = types.response
        self.has_error_code = any(field.name == "error_code" for field in types.response.SCHEMA.fields)
        self.flexible_request_header = types.request_header_version(version) >= 2
        header_is_flexible = types.response_header_version(version) >= 1
        self.encode = encoder(version, header_is_flexible=header_is_flexible, in_parts=types.key == ApiKey.FETCH)
        self.encode_steps = step_encoder(version, header_is_flexible=header_is_flexible)
        self.is_between_brokers = types.key in BETWEEN_BROKERS
        """What brokers and the controller tell each other must not wait; when it is large it takes turns with others all the same."""
        self.large_bytes = LARGE.get(types.key, LARGE_BYTES)
        self.requests = 0
        self.sample_at = 0  # the request, counted from 1, that is measured next; 0: none


def _no_message_handler(request: Any, context: RequestContext) -> Any:
    raise AssertionError("the frame handler answers every request")


def _read_behind_short_header(request_class: type[Message], frame: memoryview, _: int, version: int) -> Message:
    """The header of ControlledShutdown 0 ends with the correlation id: what the dispatcher takes for a client id belongs to the body."""
    return request_class.decode(frame, version, _SHORT_HEADER_BYTES)[0]


def encoder(version: int, *, header_is_flexible: bool, in_parts: bool) -> Callable[[int, Message], Completion]:
    """A function (correlation id, response) -> what the network sends: header and body.

    A response that cannot be written is a fault of its handler; it closes the connection and disturbs nobody else, least of all the
    request whose progress completed it.
    """
    header = _FLEXIBLE_RESPONSE_HEADER.pack if header_is_flexible else CORRELATION_ID.pack
    no_tagged_fields = (0,) if header_is_flexible else ()

    def encode(correlation_id: int, response: Message) -> Completion:
        try:
            if in_parts:
                return [header(correlation_id, *no_tagged_fields), *response.encode_parts(version)]
            return header(correlation_id, *no_tagged_fields) + response.encode(version)
        except Exception:
            logger.exception("a %s cannot be written in version %d", type(response).__name__, version)
            return CLOSE

    return encode


def step_encoder(version: int, *, header_is_flexible: bool) -> Callable[[int, Message], Steps[Completion]]:
    """The same in steps, for responses that take long."""
    header = _FLEXIBLE_RESPONSE_HEADER.pack if header_is_flexible else CORRELATION_ID.pack
    no_tagged_fields = (0,) if header_is_flexible else ()

    def encode_steps(correlation_id: int, response: Message) -> Steps[Completion]:
        try:
            parts = yield from response.encode_steps(version)
        except Exception:
            logger.exception("a %s cannot be written in version %d", type(response).__name__, version)
            return CLOSE
        return [header(correlation_id, *no_tagged_fields), *parts]

    return encode_steps
