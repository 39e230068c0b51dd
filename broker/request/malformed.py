"""Closes the connections of requests that cannot be read, and answers large requests in their turn."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec

from ottla.broker.network.buffer_supplier import is_reused
from ottla.broker.network.request_channel import CLOSE, Answer, Completion, Pending
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.wire import ProtocolError

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection
    from ottla.broker.request.running import Work
    from ottla.broker.request.services import Services

MALFORMED: Final = (ProtocolError, IndexError, struct.error)
"""Exceptions of decoders for bytes that are no valid message."""

_P = ParamSpec("_P")


def name_of(frame: memoryview) -> str:
    """API and version in the first bytes of a frame, for the log."""
    if len(frame) < 4:
        return f"{len(frame)} bytes"
    api_key, version = struct.unpack_from(">hh", frame)
    try:
        return f"{ApiKey(api_key).name} v{version}"
    except ValueError:
        return f"api {api_key} v{version}"


def refuse(name: str, connection: Connection, malformed: Exception) -> Completion:
    """Answers a frame that is no valid request: the connection is closed."""
    connection.offend(f"a request that cannot be read ({name}): {malformed}")
    return CLOSE


async def refused_if_malformed(name: str, connection: Connection, work: Callable[_P, Work], *args: _P.args, **kwargs: _P.kwargs) -> Answer:
    """The answer of `work`, or that to a malformed request."""
    try:
        return await work(*args, **kwargs)
    except ProtocolError as malformed:
        return refuse(name, connection, malformed)


def answer_in_turn(
    frame: memoryview,
    connection: Connection,
    services: Services,
    work: Callable[Concatenate[memoryview, Pending, _P], Work],
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> Pending:
    """Has a large request wait for its turn. `work` gets the bytes of the frame, whose buffer may be used again, and the Pending."""
    pending = Pending(in_turns=True, waiting_bytes=len(frame))
    kept = memoryview(bytearray(frame)) if is_reused(frame) else frame
    services.running.large.wait(refused_if_malformed(name_of(frame), connection, work, kept, pending, *args, **kwargs), pending)
    return pending
