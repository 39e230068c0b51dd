"""Fetch of one partition that has enough to answer at once: the hot path of consumers.

Called by the dispatcher with the frame, before anything is decoded. What a follower sends goes to `follower_fetch`. Everything out of the
ordinary is left to `handle_fetch`: new sessions, racks, more than one partition, errors, too little to answer. Nothing has happened then: a
session moves on only when the answer is certain. A test holds both ways equal, byte by byte. The ordinary way
takes several times as long.
"""

from __future__ import annotations

from broker.fetching.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, SessionPartition
from broker.handlers.data.follower_fetch import handle_follower_fetch_frame
from broker.network.connection import Connection
from broker.network.request_channel import Parts, Pending
from broker.request.services import Services
from protocol.fetch_fast_path import (
    END_WITH_ID,
    FIRST_VERSION_WITH_IDS,
    begin_response_with_id,
    begin_response_with_name,
    read_with_id,
    read_with_name,
)
from replication.reading.fetch_read import CONSUMER, READ_COMMITTED
from storage.disk.clock import elapsed_ms
from storage.errors import StorageError
from storage.segment.cold_lookups import ColdRead

FIRST_VERSION = 11
"""Before 10, readers of zstd have to be refused; 10 itself is hardly spoken by anybody."""


def handle_fetch_frame(
    frame: memoryview, offset: int, version: int, correlation_id: int, connection: Connection, broker: Services
) -> Parts | Pending | None:
    """The answer, or None to take the ordinary way."""
    if version >= FIRST_VERSION_WITH_IDS:
        values = read_with_id(frame, offset, version)
    else:
        values = read_with_name(frame, offset, version) if version >= FIRST_VERSION else None
    if values is None:
        return handle_follower_fetch_frame(frame, offset, version, correlation_id, connection, broker)
    (
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, topic, index, leader_epoch, fetch_offset,
        last_fetched_epoch, start, partition_max_bytes,
    ) = values  # fmt: skip
    if replica_id != CONSUMER or last_fetched_epoch != -1:
        return None
    name = broker.cluster.names_by_id.get(topic) if isinstance(topic, bytes) else topic
    of_topic = None if name is None else broker.replica_manager.partitions.get(name)
    partition = of_topic.get(index) if of_topic is not None else None
    if partition is None or not partition.is_leader or leader_epoch not in (-1, partition.leader_epoch):
        return None
    log = partition.log
    if isinstance(topic, bytes) and log.topic_id != topic:
        return None
    asked: SessionPartition | None = None
    if session_epoch != FINAL_EPOCH:
        session = broker.fetch_sessions.sessions.get(session_id)
        if (
            session is None
            or session.epoch != session_epoch
            or session_epoch == INITIAL_EPOCH
            or len(session.partitions) != 1
            or session.watch is not None
        ):
            return None
        asked = session.partitions.get((topic, index))
        if asked is None or asked.name != name:
            return None
    max_bytes = max_bytes if max_bytes < broker.fetch_max_bytes else broker.fetch_max_bytes
    read_committed = isolation_level == READ_COMMITTED
    last_stable_offset = log.last_stable_offset
    high_watermark = log.high_watermark
    try:
        region, next_offset = log.read(
            fetch_offset,
            partition_max_bytes if partition_max_bytes < max_bytes else max_bytes,
            last_stable_offset if read_committed else high_watermark,
            True,
            False,
        )
        if region is None or (region.length < min_bytes and region.length < max_bytes and max_wait_ms > 0):
            return None
        if read_committed and log.aborted_transactions(fetch_offset, next_offset, False):
            return None
    except (StorageError, ColdRead):
        return None  # the ordinary way finds it again, and says it with everything a client wants to know
    stats = partition.stats
    stats.fetch_requests += 1
    stats.bytes_out += region.length
    log_start_offset = log.log_start_offset
    if asked is None:
        if session_id != NO_SESSION:
            broker.fetch_sessions.remove(session_id)
            session_id = NO_SESSION
    else:
        broker.fetch_sessions.advance(session_id, elapsed_ms(broker.clock))
        asked.offset = fetch_offset
        asked.max_bytes = partition_max_bytes
        asked.leader_epoch = leader_epoch
        asked.last_fetched_epoch = last_fetched_epoch
        asked.start = start
        asked.high_watermark = high_watermark
        asked.log_start_offset = log_start_offset
    if isinstance(topic, bytes):
        head = begin_response_with_id(
            correlation_id, session_id, topic, index, high_watermark, last_stable_offset, log_start_offset, read_committed, region.length
        )
        return [head, region, END_WITH_ID]
    head = begin_response_with_name(
        correlation_id, session_id, topic, index, high_watermark, last_stable_offset, log_start_offset, read_committed, region.length
    )
    return [head, region]
