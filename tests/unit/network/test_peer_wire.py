"""One connection to another broker, without sockets."""

from __future__ import annotations

import asyncio
import logging
import struct
from contextlib import suppress
from typing import Any

import pytest

from ottla.broker.network.peer_wire import WINDOW_BYTES, Wire
from ottla.replication.ports.peer import PeerAddress


class Transport:
    """Takes everything and remembers whether it was aborted."""

    aborted = False

    def write(self, data: bytes) -> None:
        """Nobody reads it."""

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.parametrize(("correlation_id", "is_said"), [(0, False), (1, True)])
def test_an_answer_that_comes_when_its_request_was_just_cancelled_is_no_offence(
    correlation_id: int, is_said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        wire = Wire(loop, PeerAddress("host", 1), memoryview(bytearray(WINDOW_BYTES)), 1 << 20)
        transport: Any = Transport()
        wire.connection_made(transport)
        asking = loop.create_task(wire.exchange(3, 12, b"\0\0", [b"body"], loop.time() + 60))
        await asyncio.sleep(0)
        asking.cancel()  # it has yet to run
        answer = struct.pack(">ii", 6, correlation_id) + b"ok"
        wire.get_buffer(-1)[: len(answer)] = answer
        wire.buffer_updated(len(answer))
        assert wire.is_lost
        assert transport.aborted
        with suppress(asyncio.CancelledError):
            await asking
        assert asking.cancelled()

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert ("an unexpected answer" in caplog.text) is is_said
