"""Fetch (api 1), versions 0-17.

KIP-227 sessions from 7, zstd topics only from 10, leader epochs from 9, consumers may read from followers, and are sent to them, from 11
(KIP-392), diverging epochs from 12, topic ids from 13 (KIP-516), the leader to ask instead from 16 (KIP-951). A fetch that finds less than
`min_bytes` waits in the purgatory up to `max_wait_ms`.

Deviation: versions 0-3 would need the records in message format 0 or 1. Ottla stores and serves format 2 only and answers
UNSUPPORTED_VERSION, as Apache Kafka does with `log.message.downconversion.enable=false`.
"""

from __future__ import annotations

from typing import Final

from broker.handlers.data.delayed_fetch import DelayedFetch, begin
from broker.handlers.data.fetch_reading import Fetch
from broker.network.connection import Connection
from broker.network.request_channel import CLOSE, Answer, Pending
from broker.request.services import Services
from broker.request.turns import Steps
from protocol.cursors.fetch import FetchReader
from protocol.schema.wire import ProtocolError

LARGE_BYTES: Final = 64 * 1024
"""Bytes of a request that waits for its turn. A partition takes twenty of them at least, and some clients name theirs every time."""


def handle_fetch_frame(
    frame: memoryview, offset: int, version: int, correlation_id: int, connection: Connection, services: Services
) -> Answer:
    """Read what the session, or the request alone, asks for; wait when it is less than the client wants.

    Raises ProtocolError when the request cannot be read.
    """
    if len(frame) >= LARGE_BYTES:
        pending = Pending(in_turns=True, waiting_bytes=len(frame))
        # The receive buffer is used again meanwhile.
        kept = memoryview(bytearray(frame))
        services.turns.wait(_take_turns(kept, offset, version, correlation_id, connection, services, pending), pending)
        return pending
    return begin(Fetch(FetchReader(frame, offset, version), correlation_id, connection, services))


def _take_turns(
    frame: memoryview, offset: int, version: int, correlation_id: int, connection: Connection, services: Services, pending: Pending
) -> Steps[None]:
    try:
        fetch = Fetch(FetchReader(frame, offset, version), correlation_id, connection, services)
    except ProtocolError as malformed:
        connection.offend(f"a Fetch that cannot be read: {malformed}")
        pending.complete(CLOSE)
        return
    yield from DelayedFetch(fetch, pending).steps()
