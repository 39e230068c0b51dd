"""Makes entries of remote segments, and reads the golden records of `__remote_log_metadata`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.reader import iter_records
from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState, SegmentUpdate, TopicIdPartition

GOLDEN: Final = Path(__file__).parents[1] / "golden" / "remote" / "metadata"
A_PARTITION: Final = TopicIdPartition(bytes(range(16)), "orders", 0)


def an_entry(
    number: int,
    start: int,
    end: int,
    epochs: Mapping[int, int] | None = None,
    *,
    partition: TopicIdPartition = A_PARTITION,
    custom: bytes | None = None,
) -> SegmentEntry:
    """A copy that begins; `number` makes its uuid. Without `epochs` all records are of epoch 0."""
    segment_id = SegmentId(partition, number.to_bytes(16, "big"))
    leader_epochs = {0: start} if epochs is None else epochs
    return SegmentEntry(segment_id, start, end, 1, -1, 1_700_000_000_000, leader_epochs, 1024, SegmentState.COPY_SEGMENT_STARTED, custom)


def an_update(entry: SegmentEntry, state: SegmentState, *, custom: bytes | None = None) -> SegmentUpdate:
    """A new state of a copy, from another broker and a moment later."""
    return SegmentUpdate(entry.id, 2, entry.event_timestamp_ms + 1, state, custom)


def golden_values() -> Iterator[bytes]:
    """The values of all records that Apache Kafka wrote, partition by partition."""
    for path in sorted(GOLDEN.glob("*.log")):
        data = path.read_bytes()
        for at, header in iter_batches(data):
            for record in iter_records(data, at, header):
                assert record.value is not None
                yield record.value
