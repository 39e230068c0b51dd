"""The rules of incremental fetch sessions: ids, epochs, news, eviction."""

import itertools

import pytest

from broker.fetching.fetch_sessions import (
    EVICTION_MS,
    NO_SESSION,
    FetchSessionCache,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    Partitions,
    SessionPartition,
    next_epoch,
)
from protocol.messages.fetch import EpochEndOffset, FetchPartition, PartitionData
from protocol.uuid import ZERO_UUID


def a_cache(slots: int = 2) -> FetchSessionCache:
    numbers = itertools.count(1)
    return FetchSessionCache(slots, lambda bits: next(numbers))


def partitions(count: int = 1) -> Partitions:
    return {("t", index): SessionPartition("t", ZERO_UUID, FetchPartition(partition=index)) for index in range(count)}


def create(cache: FetchSessionCache, count: int = 1, now_ms: int = 0, *, is_follower: bool = False) -> int:
    return cache.maybe_create(partitions(count), is_follower=is_follower, uses_topic_ids=False, now_ms=now_ms)


def test_a_session_expects_epoch_1_first_and_counts_on() -> None:
    cache = a_cache()
    session_id = create(cache)

    cache.get(session_id, 1, uses_topic_ids=False, now_ms=0)
    cache.get(session_id, 2, uses_topic_ids=False, now_ms=0)

    with pytest.raises(InvalidFetchSessionEpoch):
        cache.get(session_id, 2, uses_topic_ids=False, now_ms=0)


def test_an_unknown_session_is_not_found() -> None:
    with pytest.raises(FetchSessionIdNotFound):
        a_cache().get(77, 1, uses_topic_ids=False, now_ms=0)


def test_a_session_by_name_is_not_continued_by_id() -> None:
    cache = a_cache()
    session_id = create(cache)
    with pytest.raises(FetchSessionTopicIdError):
        cache.get(session_id, 1, uses_topic_ids=True, now_ms=0)


def test_epochs_wrap_to_1_and_never_to_0() -> None:
    assert next_epoch(2**31 - 1) == 1
    assert next_epoch(-1) == -1


def test_a_fetch_of_nothing_gets_a_session_too() -> None:
    assert a_cache().maybe_create({}, is_follower=False, uses_topic_ids=False, now_ms=0) != NO_SESSION


def test_any_negative_leader_epoch_of_a_fetch_is_none() -> None:
    asked = FetchPartition(partition=0, current_leader_epoch=-2, last_fetched_epoch=-7)
    session_partition = SessionPartition("t", ZERO_UUID, asked)
    assert (session_partition.leader_epoch, session_partition.last_fetched_epoch) == (-1, -1)


def test_a_full_cache_refuses_a_session_like_those_it_has() -> None:
    cache = a_cache(slots=1)
    create(cache)
    assert create(cache, now_ms=EVICTION_MS) == NO_SESSION
    assert len(cache.sessions) == 1


def test_a_full_cache_gives_up_a_session_that_was_not_used_for_long() -> None:
    cache = a_cache(slots=1)
    first = create(cache)
    second = create(cache, now_ms=EVICTION_MS + 1)
    assert second != NO_SESSION
    assert first not in cache.sessions
    assert cache.evictions == 1


def test_a_follower_takes_the_place_of_a_consumer() -> None:
    cache = a_cache(slots=1)
    consumer = create(cache, count=5)
    cache.get(consumer, 1, uses_topic_ids=False, now_ms=EVICTION_MS)

    follower = create(cache, now_ms=EVICTION_MS + 1, is_follower=True)

    assert list(cache.sessions) == [follower]


def test_a_cache_without_slots_makes_no_session() -> None:
    assert create(a_cache(slots=0)) == NO_SESSION


def test_an_answer_without_anything_new_is_no_news() -> None:
    partition = SessionPartition("t", ZERO_UUID, FetchPartition(partition=0))
    answer = PartitionData(high_watermark=5, log_start_offset=0, records=b"")
    assert partition.has_news(answer)
    assert not partition.has_news(answer)


@pytest.mark.parametrize(
    "answer",
    [
        PartitionData(high_watermark=6, log_start_offset=0, records=b""),
        PartitionData(high_watermark=5, log_start_offset=1, records=b""),
        PartitionData(high_watermark=5, log_start_offset=0, records=b"x"),
        PartitionData(high_watermark=5, log_start_offset=0, records=b"", error_code=3),
        PartitionData(high_watermark=5, log_start_offset=0, records=b"", preferred_read_replica=2),
        PartitionData(high_watermark=5, log_start_offset=0, records=b"", diverging_epoch=EpochEndOffset(epoch=1, end_offset=2)),
    ],
)
def test_what_changed_is_news(answer: PartitionData) -> None:
    partition = SessionPartition("t", ZERO_UUID, FetchPartition(partition=0))
    partition.has_news(PartitionData(high_watermark=5, log_start_offset=0, records=b""))
    assert partition.has_news(answer)


def test_after_an_error_the_partition_is_named_again() -> None:
    partition = SessionPartition("t", ZERO_UUID, FetchPartition(partition=0))
    good = PartitionData(high_watermark=5, log_start_offset=0, records=b"")
    partition.has_news(good)
    partition.has_news(PartitionData(error_code=6, high_watermark=-1, log_start_offset=-1, records=b""))
    assert partition.has_news(good)


def test_who_asks_in_another_leader_epoch_is_told_the_high_watermark_again() -> None:
    partition = SessionPartition("t", ZERO_UUID, FetchPartition(partition=0, current_leader_epoch=4))
    answer = PartitionData(high_watermark=5, log_start_offset=0, records=b"")
    assert partition.has_news(answer)
    partition.update(FetchPartition(partition=0, current_leader_epoch=4, fetch_offset=5))
    assert not partition.has_news(answer)
    partition.update(FetchPartition(partition=0, current_leader_epoch=5, fetch_offset=5))
    assert partition.has_news(answer)


def test_partitions_that_returned_data_are_served_last_next_time() -> None:
    cache = a_cache()
    session = cache.sessions[create(cache, count=3)]
    session.serve_last(("t", 0))
    assert [key[1] for key in session.partitions] == [1, 2, 0]


def test_an_incremental_request_adds_changes_and_forgets() -> None:
    cache = a_cache()
    session = cache.sessions[create(cache, count=2)]
    session.update(
        [("t", ZERO_UUID, FetchPartition(partition=1, fetch_offset=7)), ("t", ZERO_UUID, FetchPartition(partition=5))],
        [("t", ZERO_UUID, 0)],
    )
    assert [key[1] for key in session.partitions] == [1, 5]
    assert session.partitions["t", 1].offset == 7
