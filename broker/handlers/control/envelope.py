"""Refuses Envelope (api 58), version 0.

Listed, and answered by closing the connection (KIP-590), as by Apache Kafka 3.9 in ZooKeeper mode: there a broker forwards requests only
while a cluster moves to KRaft.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.network.request_channel import CLOSE, Answer

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection
    from ottla.broker.request.services import Services


def handle_envelope_frame(
    frame: memoryview, offset: int, version: int, correlation_id: int, connection: Connection, services: Services
) -> Answer:
    """Close the connection, without a look into the envelope."""
    connection.offend(f"ENVELOPE v{version} is not supported here")
    return CLOSE
