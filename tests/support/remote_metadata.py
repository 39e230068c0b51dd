"""Makes entries of remote segments, and reads the golden records of `__remote_log_metadata`."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.reader import Record, iter_records
from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState, SegmentUpdate, TopicIdPartition
from ottla.storage.remote.metadata.records import encode_entry, encode_update
from ottla.storage.remote.metadata.segment_cache import SegmentCache

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


def values_of(entry: SegmentEntry, *states: SegmentState) -> list[bytes]:
    """The records that bring a copy to states one by one."""
    return [encode_entry(entry), *(encode_update(an_update(entry, state)) for state in states)]


def batches_of(values: Iterable[bytes], first_offset: int = 0, leader_epoch: int = 0) -> bytes:
    """A log with a batch for each value, as brokers write it."""
    batches = [
        build_batch([Record(offset, 1_700_000_000_000, None, value)], partition_leader_epoch=leader_epoch)
        for offset, value in enumerate(values, first_offset)
    ]
    return b"".join(batches)


def state_of(cache: SegmentCache) -> object:
    """All that a cache knows, for comparisons."""
    epochs = {epoch: (each.keys, each.unreferenced, each.highest_offset) for epoch, each in cache.epochs.items()}
    return cache.partition, dict(cache.packed), epochs, cache.marked()
