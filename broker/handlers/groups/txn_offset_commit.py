"""Serves TxnOffsetCommit (api 28), versions 0-5.

The leader epoch from 2 (KIP-320), generation, member and instance from 3 (KIP-447), TRANSACTION_ABORTABLE from 4, and the
group's partition becomes part of the transaction from 5 (KIP-890).

The functions of OffsetCommit handle the request (`offset_commit`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.handlers.groups.offset_commit import commit_offsets
from ottla.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection
    from ottla.broker.network.request_channel import Answer
    from ottla.broker.request.services import Services


def handle_txn_offset_commit_frame(
    frame: memoryview, offset: int, version: int, correlation_id: int, connection: Connection, services: Services
) -> Answer:
    """Store offsets of a group in the transaction of a producer, and answer, now or when they are safe.

    Raises ProtocolError for a frame that is no such request; nothing was done then.
    """
    return commit_offsets(ApiKey.TXN_OFFSET_COMMIT, frame, offset, version, correlation_id, connection, services)
