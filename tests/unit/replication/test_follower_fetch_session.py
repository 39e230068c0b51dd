"""The follower's side of a fetch session: what each request says, held against what Apache Kafka's followers said."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.protocol.messages.fetch import FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.follower.fetch_session import FetchSessionHandler, FollowedPartition
from tests.support.golden_frames import golden_frames

ID = b"id of the topic."
MAX_BYTES = 1 << 20


def a_partition(
    index: int = 0, *, topic: str = "orders", topic_id: bytes = ID, epoch: int = 1, offset: int = 0, last_epoch: int = -1, start: int = 0
) -> FollowedPartition:
    partition: Any = SimpleNamespace(
        topic_partition=TopicPartition(topic, index),
        fetched_topic_id=topic_id,
        leader_epoch=epoch,
        log=SimpleNamespace(log_start_offset=start),
    )
    return FollowedPartition(partition, offset, last_epoch, MAX_BYTES)


def a_session(version: int = 17) -> FetchSessionHandler:
    return FetchSessionHandler(FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=10 << 20), version)


def an_established_session(*partitions: FollowedPartition, version: int = 17) -> FetchSessionHandler:
    session = a_session(version)
    for each in partitions:
        session.add(each)
    session.prepare()
    assert session.on_answer(0, 7)
    return session


def named(topics: list[FetchTopic]) -> list[tuple[bytes, list[int]]]:
    return [(topic.topic_id, [each.partition for each in topic.partitions]) for topic in topics]


def test_requests_are_apache_kafkas_byte_for_byte() -> None:
    compared = 0
    for frame in golden_frames("interbroker"):
        if not frame.is_request or frame.api.key.name != "FETCH" or "replica-fetcher" not in frame.where:
            continue
        _, body_at = frame.header_class.decode(frame.data, frame.header_version)
        recorded, _ = FetchRequest.decode(frame.data, frame.version, body_at)
        session = a_session(frame.version)
        gone = [
            a_partition(index, topic=topic.topic_id.hex(), topic_id=topic.topic_id)
            for topic in recorded.forgotten_topics_data
            for index in topic.partitions
        ]
        wanted = [
            a_partition(
                each.partition,
                topic=topic.topic_id.hex(),
                topic_id=topic.topic_id,
                epoch=each.current_leader_epoch,
                offset=each.fetch_offset,
                last_epoch=each.last_fetched_epoch,
                start=each.log_start_offset,
            )
            for topic in recorded.topics
            for each in topic.partitions
        ]
        for each in gone:
            session.add(each)
        if recorded.session_epoch:
            session.add(a_partition(topic="quiet", topic_id=b"nothing new here"))
            session.prepare()
            session.on_answer(0, recorded.session_id)
            session.epoch = recorded.session_epoch
        for each in gone:
            session.remove(each)
        for each in wanted:
            session.add(each)
        request = session.prepare()
        request.replica_state = ReplicaState(
            replica_id=recorded.replica_state.replica_id, replica_epoch=recorded.replica_state.replica_epoch
        )

        assert request.encode(session.version) == frame.data[body_at:], frame.where
        compared += 1
    assert compared == 8


def test_the_first_request_names_everything_and_the_next_only_what_changed() -> None:
    first, second = a_partition(0), a_partition(1)
    session = an_established_session(first, second)

    assert session.prepare().topics == []
    session.on_answer(0, 7)
    second.offset = 5
    session.touch(second)
    request = session.prepare()

    assert (request.session_id, request.session_epoch) == (7, 2)
    assert named(request.topics) == [(ID, [1])]
    assert request.topics[0].partitions[0].fetch_offset == 5
    assert second.requested_offset == 5


def test_what_is_removed_is_forgotten_once() -> None:
    first, second = a_partition(0), a_partition(1)
    session = an_established_session(first, second)
    session.remove(first)

    forgotten = session.prepare().forgotten_topics_data
    session.on_answer(0, 7)

    assert [(topic.topic_id, topic.partitions) for topic in forgotten] == [(ID, [0])]
    assert session.prepare().forgotten_topics_data == []


def test_what_was_never_in_the_session_need_not_be_forgotten() -> None:
    session = an_established_session(a_partition(0))
    short_lived = a_partition(1)
    session.add(short_lived)
    session.remove(short_lived)

    request = session.prepare()

    assert request.topics == []
    assert request.forgotten_topics_data == []


def test_a_partition_that_comes_back_before_it_was_forgotten_is_named_and_not_forgotten() -> None:
    old = a_partition(0)
    session = an_established_session(old)
    session.remove(old)
    session.add(a_partition(0, epoch=2))

    request = session.prepare()

    assert named(request.topics) == [(ID, [0])]
    assert request.forgotten_topics_data == []


def test_another_object_for_a_partition_takes_its_place() -> None:
    old, new = a_partition(0), a_partition(0, epoch=2)
    session = an_established_session(old)
    session.add(new)

    assert session.prepare().topics[0].partitions[0].current_leader_epoch == 2
    assert session.all() == [new]
    assert not old.is_wanted


def test_a_topic_that_was_created_anew_is_asked_for_by_its_new_id_and_the_old_one_forgotten() -> None:
    old = a_partition(0)
    session = an_established_session(old)
    session.remove(old)
    session.add(a_partition(0, topic_id=b"its next life..."))

    request = session.prepare()

    assert named(request.topics) == [(b"its next life...", [0])]
    assert [topic.topic_id for topic in request.forgotten_topics_data] == [ID]


def test_an_empty_session_ends_and_there_is_nothing_to_say_until_something_is_wanted() -> None:
    only = a_partition(0)
    session = an_established_session(only)
    session.remove(only)
    assert not session.has_no_request

    session.prepare()
    session.on_answer(0, 0)

    assert session.has_no_request
    session.add(a_partition(0))
    assert not session.has_no_request
    request = session.prepare()
    assert (request.session_id, request.session_epoch) == (0, 0)


@pytest.mark.parametrize(("code", "session_id"), [(70, 0), (71, 7), (106, 7)])
def test_after_a_refused_session_the_next_request_names_everything_in_a_new_one(code: int, session_id: int) -> None:
    session = an_established_session(a_partition(0), a_partition(1))
    session.prepare()

    assert not session.on_answer(code, 0)
    request = session.prepare()

    assert (request.session_id, request.session_epoch) == (session_id, 0)
    assert named(request.topics) == [(ID, [0, 1])]


def test_a_request_without_an_answer_closes_the_session() -> None:
    session = an_established_session(a_partition(0))
    session.prepare()
    session.on_failure()

    request = session.prepare()

    assert (request.session_id, request.session_epoch) == (7, 0)
    assert named(request.topics) == [(ID, [0])]


def test_the_epoch_of_a_session_wraps_to_one() -> None:
    session = an_established_session(a_partition(0))
    session.epoch = 2**31 - 1
    session.on_answer(0, 7)

    assert session.epoch == 1


def test_a_leader_that_keeps_no_session_is_told_everything_each_time_what_returned_data_last() -> None:
    first, second = a_partition(0), a_partition(1)
    session = a_session()
    session.add(first)
    session.add(second)
    session.prepare()
    session.on_answer(0, 0)
    session.serve_last(first)

    request = session.prepare()

    assert (request.session_id, request.session_epoch) == (0, 0)
    assert named(request.topics) == [(ID, [1, 0])]


def test_topics_are_named_by_name_while_one_of_them_has_no_id() -> None:
    nameless = a_partition(0, topic="old", topic_id=ZERO_UUID)
    session = a_session()
    session.add(a_partition(0))
    session.add(nameless)

    request = session.prepare()
    assert session.version == 12
    assert [topic.topic for topic in request.topics] == ["orders", "old"]
    session.on_answer(0, 7)
    request.encode(12)

    nameless.partition.fetched_topic_id = b"found at last..."  # type: ignore[misc]  # it is no real partition
    request = session.prepare()
    assert session.version == 17
    assert request.session_epoch == 0
    assert sorted(topic.topic_id for topic in request.topics) == sorted([ID, b"found at last..."])


def test_versions_before_thirteen_name_topics() -> None:
    session = a_session(11)
    session.add(a_partition(0))

    request = session.prepare()

    assert session.version == 11
    assert request.topics[0].topic == "orders"
    assert FetchRequest.decode(request.encode(11), 11)[0].topics[0].partitions[0].current_leader_epoch == 1
