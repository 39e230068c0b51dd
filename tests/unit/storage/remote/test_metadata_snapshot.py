"""A snapshot of the metadata and the tail of the topic are as good as the whole topic; a snapshot that disagrees is not used."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.storage.remote.entries import TopicIdPartition
from ottla.storage.remote.metadata.log import MetadataLog
from ottla.storage.remote.metadata.records import place_of
from ottla.storage.remote.metadata.segment_cache import SegmentCache
from ottla.storage.remote.metadata.snapshot import Snapshot, SnapshotIdentity, SnapshotUnusable, decode_snapshot, encode_snapshot
from tests.support.remote_metadata import A_PARTITION, batches_of, state_of
from tests.unit.storage.remote.test_metadata_log import PARTITIONS, histories

IDENTITY = SnapshotIdentity("a cluster", bytes(range(16)), 5, 3)


def encoded(snapshot: Snapshot, identity: SnapshotIdentity = IDENTITY) -> bytes:
    return b"".join(asyncio.run(encode_snapshot(identity, snapshot)))


def decoded(data: bytes, piece_bytes: int = 1 << 20) -> Snapshot:
    pieces = [data[start : start + piece_bytes] for start in range(0, len(data), piece_bytes)]
    return asyncio.run(decode_snapshot(pieces, IDENTITY))


def a_log(values: list[bytes], *partitions: TopicIdPartition) -> MetadataLog:
    log = MetadataLog(3)
    for partition in partitions:
        log.follow(partition)
    asyncio.run(log.take(batches_of(values, leader_epoch=4)))
    return log


def a_snapshot(log: MetadataLog) -> Snapshot:
    return Snapshot(log.position, log.last_epoch, [each.cache for each in log.followed.values()])


@given(histories(), st.integers(0, 12), st.integers(0, 4), st.integers(1, 300))
@settings(deadline=None)
def test_a_snapshot_and_the_tail_lead_to_what_the_whole_topic_leads_to(values: list[bytes], at: int, known: int, piece_bytes: int) -> None:
    at = min(at, len(values))
    data = encoded(a_snapshot(a_log(values[:at], *PARTITIONS[:known])))
    log = MetadataLog(3)
    for partition in PARTITIONS:
        log.follow(partition)
    log.restore(*decoded(data, piece_bytes), 1.0)
    assert log.position == (at if known == len(PARTITIONS) else 0)
    assert log.last_epoch == (4 if log.position else -1)
    asyncio.run(log.take(batches_of(values[log.position :], log.position, leader_epoch=4)))
    whole = a_log(values, *PARTITIONS)
    for partition in PARTITIONS:
        assert state_of(log.followed[place_of(partition)].cache) == state_of(whole.followed[place_of(partition)].cache)
    assert log.skipped == 0


def test_partitions_of_a_snapshot_are_known_as_soon_as_they_are_followed() -> None:
    log = MetadataLog(3)
    log.restore(7, 4, [SegmentCache(A_PARTITION), SegmentCache(PARTITIONS[1])], 1.0)
    log.follow(A_PARTITION)
    assert (log.position, log.last_epoch) == (7, 4)
    log.drop_hidden(2.0)
    assert list(log.followed) == [place_of(A_PARTITION)]
    log.on_end_offset(7)
    assert log.cache_of(A_PARTITION) is not None


@pytest.mark.parametrize(
    "other",
    [
        IDENTITY._replace(cluster_id="another"),
        IDENTITY._replace(topic_id=bytes(16)),
        IDENTITY._replace(partition_count=50),
        IDENTITY._replace(partition=2),
    ],
)
def test_a_snapshot_of_another_topic_is_not_used(other: SnapshotIdentity) -> None:
    with pytest.raises(SnapshotUnusable):
        decoded(encoded(Snapshot(7, 4, [SegmentCache(A_PARTITION)]), other))


@given(histories(), st.data())
@settings(deadline=None)
def test_a_damaged_snapshot_is_not_used(values: list[bytes], data: st.DataObject) -> None:
    good = encoded(a_snapshot(a_log(values, *PARTITIONS)))
    at = data.draw(st.integers(0, len(good) - 1))
    flipped = good[:at] + bytes((good[at] ^ data.draw(st.integers(1, 255)),)) + good[at + 1 :]
    for bad in (flipped, good[:at], good + b"x"):
        with pytest.raises(SnapshotUnusable):
            decoded(bad)
