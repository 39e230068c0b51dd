"""Builds entries of segments in a remote store."""

from collections.abc import Mapping

from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState, TopicIdPartition

PARTITION = TopicIdPartition(bytes(15) + b"\x01", "orders", 0)


def an_entry(
    start_offset: int,
    end_offset: int,
    leader_epochs: Mapping[int, int] | None = None,
    *,
    uuid: int | None = None,
    partition: TopicIdPartition = PARTITION,
    state: SegmentState = SegmentState.COPY_SEGMENT_FINISHED,
    size: int = 100,
    max_timestamp_ms: int = 1000,
    broker_id: int = 1,
    event_timestamp_ms: int = 0,
) -> SegmentEntry:
    """An entry with the offsets, both included; by default all of epoch 0, with a uuid of the start offset."""
    return SegmentEntry(
        SegmentId(partition, (start_offset if uuid is None else uuid).to_bytes(16, "big")),
        start_offset,
        end_offset,
        broker_id,
        max_timestamp_ms,
        event_timestamp_ms,
        {0: start_offset} if leader_epochs is None else leader_epochs,
        size,
        state,
    )
