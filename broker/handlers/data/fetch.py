"""Handles Fetch (api 1), versions 0-18.

Sessions from 7 (KIP-227), leader epochs from 9, zstd topics only from 10, reads from followers and referrals to them from 11 (KIP-392),
diverging epochs from 12, topic ids from 13 (KIP-516), the current leader in errors from 16 (KIP-951). A fetch that finds less than
`min_bytes` waits in the purgatory up to `max_wait_ms`.

Versions 0 and 1 get messages of format 0, versions 2 and 3 messages of format 1, to which threads convert the batches (KIP-283). They get
UNSUPPORTED_VERSION where `message.downconversion.enable` is false.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.handlers.data.delayed_fetch import DelayedFetch, let_wait
from ottla.broker.handlers.data.fetch_reading import Fetch
from ottla.broker.handlers.data.fetch_stages import ANSWERED, PARTITIONS_PER_STEP
from ottla.broker.network.request_channel import Answer, Pending
from ottla.broker.request.malformed import answer_in_turn
from ottla.broker.request.services import Services
from ottla.protocol.cursors.fetch import FetchReader
from ottla.storage.segment.cold_lookups import ColdRead

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection

LARGE_BYTES: Final = 64 * 1024
"""Smallest request that waits for its turn, bytes. A partition takes at least 20 bytes, and some clients name all partitions every time."""


def handle_fetch_frame(
    frame: memoryview, offset: int, version: int, correlation_id: int, connection: Connection, services: Services
) -> Answer:
    """Read the partitions of the session, or of the request alone; wait when there is less than the client wants.

    Raises ProtocolError when the request cannot be read.
    """
    if len(frame) >= LARGE_BYTES:
        return answer_in_turn(frame, connection, services, _read, offset, version, correlation_id, connection, services)
    fetch = Fetch(FetchReader(frame, offset, version), correlation_id, connection, services)
    cold: ColdRead | None = None
    try:
        if fetch.run(PARTITIONS_PER_STEP) and fetch.stage == ANSWERED:
            return fetch.parts
    except ColdRead as found:
        cold = found
    return let_wait(fetch, cold)


async def _read(
    frame: memoryview, pending: Pending, offset: int, version: int, correlation_id: int, connection: Connection, services: Services
) -> Pending:
    fetch = Fetch(FetchReader(frame, offset, version), correlation_id, connection, services)
    return await DelayedFetch(fetch, pending).work()
