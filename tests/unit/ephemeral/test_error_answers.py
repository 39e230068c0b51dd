"""Responses in which everything failed: the error stands where clients look for it, for every API."""

import struct
from typing import Any

import pytest

from ottla.broker.handlers.table import SERVED, handlers_of
from ottla.broker.network.request_channel import CLOSE
from ottla.broker.serving.route import Route
from ottla.ephemeral.error_answers import error_answer
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import api

ERROR = ErrorCode.NOT_LEADER_OR_FOLLOWER


def answer_to(request: Message, key: ApiKey, version: int) -> Any:
    """The decoded response, or CLOSE."""
    types = api(key)
    route = Route(types, version, *handlers_of(key))
    header = struct.pack(">hhih", key, version, 77, 2) + b"me" + (b"\0" if route.flexible_request_header else b"")
    answer = error_answer(memoryview(bytearray(header + request.encode(version))), route, ERROR)
    if answer is CLOSE:
        return CLOSE
    assert isinstance(answer, bytes)
    assert answer[:4] == (77).to_bytes(4, "big")
    response, end = types.response.decode(answer, version, 5 if types.response_header_version(version) >= 1 else 4)
    assert end == len(answer)
    return response


def has_error_code(response_class: type[Message], version: int) -> bool:
    """Whether the response has one error code for the whole request in this version."""
    if not hasattr(response_class(), "error_code"):
        return False
    encoded = response_class(error_code=ERROR).encode(version)
    return bool(response_class.decode(encoded, version, 0)[0].error_code == ERROR)


def leaves(found: Any) -> list[tuple[Any, ...]]:
    """(name of the topic, number of the partition, error code) of each partition."""
    result = []
    for topic in getattr(found, "responses", None) or found.topics:
        for each in getattr(topic, "partition_responses", None) or topic.partitions:
            number = each.index if hasattr(each, "index") else each.partition_index
            result.append((topic.name if hasattr(topic, "name") else topic.topic, number, each.error_code))
    return result


PRODUCED = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=1), PartitionProduceData(index=2)])]
FETCHED = [FetchTopic(topic="t", partitions=[FetchPartition(partition=1), FetchPartition(partition=2)])]
LISTED = [ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=1), ListOffsetsPartition(partition_index=2)])]
COMMITTED = [OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition_index=index) for index in (1, 2)])]
PARTITION_REQUESTS = [
    (ApiKey.PRODUCE, 3, ProduceRequest(acks=1, topic_data=PRODUCED)),
    (ApiKey.PRODUCE, 10, ProduceRequest(acks=1, topic_data=PRODUCED)),
    (ApiKey.FETCH, 12, FetchRequest(topics=FETCHED)),
    (ApiKey.LIST_OFFSETS, 7, ListOffsetsRequest(topics=LISTED)),
    (ApiKey.OFFSET_COMMIT, 8, OffsetCommitRequest(group_id="g", topics=COMMITTED)),
]


@pytest.mark.parametrize(("key", "version", "request_"), PARTITION_REQUESTS)
def test_each_partition_of_the_request_has_the_error(key: ApiKey, version: int, request_: Message) -> None:
    assert leaves(answer_to(request_, key, version)) == [("t", 1, ERROR), ("t", 2, ERROR)]


def test_a_produce_that_waits_for_no_response_loses_its_connection() -> None:
    assert answer_to(ProduceRequest(acks=0, topic_data=PRODUCED), ApiKey.PRODUCE, 10) is CLOSE


def test_a_fetch_of_a_session_without_changes_has_the_error_at_the_top() -> None:
    found = answer_to(FetchRequest(session_id=5, session_epoch=7), ApiKey.FETCH, 12)
    assert (found.error_code, found.responses) == (ERROR, [])


def test_topics_have_the_error() -> None:
    created = answer_to(CreateTopicsRequest(topics=[CreatableTopic(name="a"), CreatableTopic(name="b")]), ApiKey.CREATE_TOPICS, 5)
    assert [(topic.name, topic.error_code) for topic in created.topics] == [("a", ERROR), ("b", ERROR)]
    deleted = answer_to(DeleteTopicsRequest(topic_names=["a"]), ApiKey.DELETE_TOPICS, 4)
    assert [(topic.name, topic.error_code) for topic in deleted.responses] == [("a", ERROR)]
    described = answer_to(MetadataRequest(topics=[MetadataRequestTopic(name="a")]), ApiKey.METADATA, 8)
    assert [(topic.name, topic.error_code) for topic in described.topics] == [("a", ERROR)]


@pytest.mark.parametrize("version", [3, 4])
def test_a_coordinator_that_is_looked_for_has_the_error(version: int) -> None:
    request = FindCoordinatorRequest(key="g") if version < 4 else FindCoordinatorRequest(coordinator_keys=["g"])
    found = answer_to(request, ApiKey.FIND_COORDINATOR, version)
    assert (found.error_code if version < 4 else [(each.key, each.error_code) for each in found.coordinators]) == (
        ERROR if version < 4 else [("g", ERROR)]
    )


def test_a_heartbeat_has_the_error() -> None:
    assert answer_to(HeartbeatRequest(group_id="g"), ApiKey.HEARTBEAT, 4).error_code == ERROR


def test_a_request_for_everything_has_no_place_for_an_error_and_is_not_answered() -> None:
    assert answer_to(MetadataRequest(topics=None), ApiKey.METADATA, 8) is CLOSE


@pytest.mark.slow
@pytest.mark.parametrize("key", sorted(SERVED))
def test_every_api_has_an_answer(key: int) -> None:
    types = api(ApiKey(key))
    for version in range(types.versions.first, types.versions.last + 1):
        if types.request_header_version(version) >= 1:
            answer = answer_to(types.request(), ApiKey(key), version)
            if answer is not CLOSE and has_error_code(types.response, version):
                assert answer.error_code == ERROR
