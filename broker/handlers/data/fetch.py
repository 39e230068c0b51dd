"""Handles Fetch (api 1), versions 0-17.

Sessions from 7 (KIP-227), leader epochs from 9, zstd topics only from 10, reads from followers and referrals to them from 11 (KIP-392),
diverging epochs from 12, topic ids from 13 (KIP-516), the current leader in errors from 16 (KIP-951). A fetch that finds less than
`min_bytes` waits in the purgatory up to `max_wait_ms`.

Deviation: versions 0-3 would need records in message format 0 or 1. Ottla stores and serves only format 2, and answers
UNSUPPORTED_VERSION, as Apache Kafka does with `log.message.downconversion.enable=false`.
"""

from __future__ import annotations

from typing import Final

from broker.handlers.data.delayed_fetch import DelayedFetch, begin
from broker.handlers.data.fetch_reading import Fetch
from broker.network.connection import Connection
from broker.network.request_channel import Answer, Pending
from broker.request.malformed import answer_in_turn
from broker.request.services import Services
from broker.request.turns import Steps
from protocol.cursors.fetch import FetchReader

LARGE_BYTES: Final = 64 * 1024
"""Smallest request that waits for its turn, bytes. A partition takes at least 20 bytes, and some clients name all partitions every time."""


def handle_fetch_frame(
    frame: memoryview, offset: int, version: int, correlation_id: int, connection: Connection, services: Services
) -> Answer:
    """Read the partitions of the session, or of the request alone; wait when there is less than the client wants.

    Raises ProtocolError when the request cannot be read.
    """
    if len(frame) >= LARGE_BYTES:
        return answer_in_turn(frame, connection, services.turns, _read, offset, version, correlation_id, connection, services)
    return begin(Fetch(FetchReader(frame, offset, version), correlation_id, connection, services))


def _read(
    frame: memoryview, pending: Pending, offset: int, version: int, correlation_id: int, connection: Connection, services: Services
) -> Steps[None]:
    fetch = Fetch(FetchReader(frame, offset, version), correlation_id, connection, services)
    yield from DelayedFetch(fetch, pending).steps()
