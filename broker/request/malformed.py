"""Closes the connections of requests that cannot be read, and answers large requests in turns, from a copy of their frame."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

from ottla.broker.network.request_channel import CLOSE, Completion, Pending
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.wire import ProtocolError

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection
    from ottla.broker.request.turns import Steps, Turns

MALFORMED: Final = (ProtocolError, IndexError, struct.error)
"""Exceptions of decoders for bytes that are no valid message."""

_P = ParamSpec("_P")
_Task = TypeVar("_Task", bound="asyncio.Task[None] | None")
_Work: TypeAlias = Callable[Concatenate[memoryview, Pending, _P], "Steps[_Task]"]
"""Reads the request in the frame, and completes the answer."""


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


def refused_if_malformed(steps: Steps[_Task], name: str, connection: Connection, pending: Pending) -> Steps[_Task | None]:
    """Continues `steps`; a ProtocolError of theirs completes `pending`."""
    try:
        return (yield from steps)
    except ProtocolError as malformed:
        pending.complete(refuse(name, connection, malformed))
        return None


def answer_in_turn(
    frame: memoryview, connection: Connection, turns: Turns, work: _Work[_P, _Task], *args: _P.args, **kwargs: _P.kwargs
) -> Pending:
    """Has a large request wait for its turn. `work` gets a copy of the frame, whose buffer is used again meanwhile, and the answer."""
    pending = Pending(in_turns=True, waiting_bytes=len(frame))
    kept = memoryview(bytearray(frame))
    turns.wait(refused_if_malformed(work(kept, pending, *args, **kwargs), name_of(frame), connection, pending), pending)
    return pending
