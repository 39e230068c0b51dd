"""The rules of incremental fetch sessions: ids, epochs, news, eviction."""

import itertools

import pytest

from ottla.broker.fetching import fetch_sessions
from ottla.broker.fetching.fetch_session import NO_SESSION, FetchSession, SessionPartition, next_epoch
from ottla.broker.fetching.fetch_sessions import (
    EVICTION_MS,
    FetchSessionCache,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
)
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.segment.file_region import FileRegion


def a_cache(slots: int = 2) -> FetchSessionCache:
    numbers = itertools.count(1)
    return FetchSessionCache(slots, lambda bits: next(numbers))


def a_session(count: int = 1) -> FetchSession:
    session = FetchSession(False)
    for index in range(count):
        session.add(b"t", "t", index)
    return session


def create(cache: FetchSessionCache, count: int = 1, now_ms: int = 0, *, is_follower: bool = False) -> int:
    return cache.maybe_keep(a_session(count), is_follower=is_follower, now_ms=now_ms)


def found(partition: SessionPartition, high_watermark: int = 5, log_start_offset: int = 0) -> SessionPartition:
    """The partition after a reading that found nothing but these."""
    partition.error_code = 0
    partition.high_watermark = high_watermark
    partition.log_start_offset = log_start_offset
    return partition


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
    assert create(a_cache(), count=0) != NO_SESSION


def test_any_negative_leader_epoch_of_a_fetch_is_none() -> None:
    (partition,) = a_session()
    partition.update_request(0, 1, -2, -7, -1)
    assert (partition.leader_epoch, partition.last_fetched_epoch) == (-1, -1)


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


def test_all_sessions_together_have_a_limited_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS", 10)
    cache = a_cache(slots=100)
    first = create(cache, count=6)
    assert create(cache, count=6) == NO_SESSION
    second = create(cache, count=4)
    assert (set(cache.sessions), cache.partitions) == ({first, second}, 10)
    third = create(cache, count=1, now_ms=EVICTION_MS + 1)
    assert (set(cache.sessions), cache.partitions, cache.evictions) == ({second, third}, 5, 1)
    assert create(cache, count=11, now_ms=3 * EVICTION_MS) == NO_SESSION
    assert cache.partitions == 0


def test_a_small_session_takes_the_room_of_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS", 10)
    cache = a_cache(slots=100)
    large, small = create(cache, count=6), create(cache, count=4)
    assert create(cache, count=6) == NO_SESSION, "one of the same size could take it back"
    another = create(cache, count=5)
    assert (set(cache.sessions), cache.partitions, cache.evictions) == ({small, another}, 9, 1)
    assert large not in cache.sessions


def test_a_follower_takes_the_room_of_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS", 10)
    cache = a_cache(slots=100)
    small = create(cache, count=3)
    create(cache, count=5)
    follower = create(cache, count=7, is_follower=True)
    assert set(cache.sessions) == {small, follower}
    assert create(cache, count=4, is_follower=True) == NO_SESSION, "followers do not take room from each other"


def test_the_session_of_a_consumer_has_a_limited_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_CONSUMER_PARTITIONS", 5)
    cache = a_cache(slots=100)
    assert create(cache, count=6) == NO_SESSION
    assert create(cache, count=6, is_follower=True) != NO_SESSION
    session = cache.sessions[create(cache, count=5)]
    session.add(b"u", "u", 0)
    assert not cache.has_room(session)


def test_a_session_that_grows_beyond_the_limit_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS", 10)
    cache = a_cache()
    session = cache.sessions[create(cache, count=6)]
    session.add(b"u", "u", 0)
    assert cache.has_room(session)
    assert cache.partitions == 7
    for index in range(1, 5):
        session.add(b"u", "u", index)
    assert not cache.has_room(session)
    assert cache.has_room(session)  # it has not grown since
    session.forget(b"u", 4)
    assert cache.has_room(session)
    cache.remove(session.session_id)
    assert cache.has_room(session)
    assert cache.partitions == 0


def test_a_cache_without_slots_makes_no_session() -> None:
    assert create(a_cache(slots=0)) == NO_SESSION


def test_an_answer_without_anything_new_is_no_news() -> None:
    (partition,) = a_session()
    assert found(partition).has_news()
    assert not found(partition).has_news()


@pytest.mark.parametrize(
    "changes",
    [
        {"high_watermark": 6},
        {"log_start_offset": 1},
        {"region": FileRegion(RealFileSystem().open(__file__, read_only=True), 0, 1)},
        {"error_code": 3},
        {"preferred_read_replica": 2},
        {"diverging_epoch": 1},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_changed_is_news(changes: dict[str, object]) -> None:
    (partition,) = a_session()
    found(partition).has_news()
    for name, value in changes.items():
        setattr(partition, name, value)
    assert partition.has_news()


def test_after_an_error_the_partition_is_named_again() -> None:
    (partition,) = a_session()
    assert found(partition).has_news()
    partition.error_code = 6
    assert partition.has_news()
    assert found(partition).has_news()


def test_who_asks_in_another_leader_epoch_is_told_the_high_watermark_again() -> None:
    (partition,) = a_session()
    partition.update_request(0, 1, 4, -1, -1)
    assert found(partition).has_news()
    partition.update_request(5, 1, 4, -1, -1)
    assert not found(partition).has_news()
    partition.update_request(5, 1, 5, -1, -1)
    assert found(partition).has_news()


def served(session: FetchSession) -> list[int]:
    return [asked.index for asked in session.in_order()]


def test_partitions_that_returned_data_are_served_last_next_time() -> None:
    session = a_session(3)
    first, *_ = session
    session.serve_last(first)
    assert served(session) == [1, 2, 0]


def test_an_incremental_request_adds_changes_and_forgets() -> None:
    session = a_session(2)
    changed = session.find(b"t", 1)
    assert changed is not None
    changed.update_request(7, 1, -1, -1, -1)
    session.add(b"t", "t", 5)
    session.forget(b"t", 0)
    session.forget(b"t", 9)
    session.forget(b"another", 0)
    assert (served(session), session.size) == ([1, 5], 2)
    assert session.find(b"t", 0) is None
    assert [asked.index for asked in session] == [1, 5]


def test_what_is_forgotten_and_named_again_comes_last() -> None:
    session = a_session(3)
    session.forget(b"t", 1)
    session.add(b"t", "t", 1)
    assert served(session) == [0, 2, 1]
