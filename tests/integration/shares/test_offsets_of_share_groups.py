"""Administrators see, move and delete the offsets of share groups; codes and epochs are those of Apache Kafka 4.4."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequestTopic
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.read_share_group_state_summary import PartitionData, ReadShareGroupStateSummaryRequest, ReadStateSummaryData
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.support.broker_process import eventually
from tests.support.in_process_broker import a_broker_in_process
from tests.support.share_members import ShareMember, create_topic, produce
from tests.support.wire_client import WireClient, a_wire_client

A = "AAAAAAAAAAAAAAAAAAAAAQ"
CONFIG: dict[str, Any] = {"offsets.topic.num.partitions": 1, "share.coordinator.state.topic.num.partitions": 1}
UNKNOWN = (-1, 0, -1, 0)
"""The start, the leader epoch, the lag and the error of a partition that no member has fetched."""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[WireClient]:
    with a_broker_in_process(tmp_path, **CONFIG) as broker, a_wire_client(broker.port) as connected:
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        eventually(lambda: not connected.ask(find, 4).coordinators[0].error_code)
        eventually(lambda: beat(connected, 5).error_code == ErrorCode.GROUP_ID_NOT_FOUND)
        yield connected


def beat(client: WireClient, epoch: int, topics: list[str] | None = None) -> Any:
    return client.ask(ShareGroupHeartbeatRequest(group_id="g", member_id=A, member_epoch=epoch, subscribed_topic_names=topics), 1)


def join(client: WireClient, topic: str) -> None:
    eventually(lambda: bool(beat(client, 0, [topic]).assignment.topic_partitions))


def described(client: WireClient, topics: dict[str, list[int]] | None = None, group: str = "g") -> dict[str, list[tuple[int, ...]]]:
    named = None
    if topics is not None:
        named = [DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes) for name, indexes in topics.items()]
    asked = [DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=named)]
    (found,) = client.ask(DescribeShareGroupOffsetsRequest(groups=asked), 1).groups
    assert (found.error_code, found.error_message) == (0, None)
    return {
        topic.topic_name: [(each.start_offset, each.leader_epoch, each.lag, each.error_code) for each in topic.partitions]
        for topic in found.topics
    }


def alter(client: WireClient, topics: dict[str, dict[int, int]], group: str = "g") -> tuple[int, dict[str, list[int]]]:
    asked = [
        AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=at) for index, at in offsets.items()],
        )
        for name, offsets in topics.items()
    ]
    found = client.ask(AlterShareGroupOffsetsRequest(group_id=group, topics=asked), 0)
    return found.error_code, {topic.topic_name: [each.error_code for each in topic.partitions] for topic in found.responses}


def delete(client: WireClient, *topics: str, group: str = "g") -> tuple[int, dict[str, int]]:
    asked = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
    found = client.ask(DeleteShareGroupOffsetsRequest(group_id=group, topics=asked), 0)
    return found.error_code, {topic.topic_name: topic.error_code for topic in found.responses}


def state_epoch(client: WireClient, topic_id: bytes) -> int:
    topics = [ReadStateSummaryData(topic_id=topic_id, partitions=[PartitionData(partition=0)])]
    response = client.ask(ReadShareGroupStateSummaryRequest(group_id="g", topics=topics), 1)
    return int(response.results[0].partitions[0].state_epoch)


def test_offsets_and_lags_are_described(client: WireClient) -> None:
    assert described(client) == {}
    topic_id = create_topic(client, "t", 2)
    join(client, "t")
    assert described(client) == {"t": [UNKNOWN, UNKNOWN]}
    assert described(client, {"t": [1, 5], "absent": [0]}) == {"t": [UNKNOWN, UNKNOWN], "absent": [UNKNOWN]}
    member = ShareMember(client, topic_id, A, "g")
    eventually(lambda: member.fetch_all(0).responses[0].partitions[0].error_code == 0 or setattr(member, "epoch", 0))
    produce(client, "t", 7)
    assert member.acquire(0) == [(0, 6, 1)]
    member.acknowledge_all({0: [(0, 1, 1), (4, 4, 1)]})
    assert described(client) == {"t": [(0, 0, 4, 0), UNKNOWN]}, "three of seven are complete"


def test_a_group_with_members_is_not_moved(client: WireClient) -> None:
    create_topic(client, "t", 1)
    join(client, "t")
    assert alter(client, {"t": {0: 3}}) == (ErrorCode.NON_EMPTY_GROUP, {})
    assert delete(client, "t") == (ErrorCode.NON_EMPTY_GROUP, {})


def test_a_group_is_moved_made_and_its_offsets_are_deleted(client: WireClient) -> None:
    assert delete(client, "t") == (ErrorCode.GROUP_ID_NOT_FOUND, {})
    topic_id = create_topic(client, "t", 1)
    produce(client, "t", 7)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(client, {"t": {0: 2, 7: 1}, "absent": {0: 1}}) == (0, {"t": [0, unknown], "absent": [unknown]})
    assert (described(client), state_epoch(client, topic_id)) == ({"t": [(2, 0, 5, 0)]}, 1)
    join(client, "t")
    member = ShareMember(client, topic_id, A, "g")
    eventually(lambda: member.fetch_all(0).responses[0].partitions[0].error_code == 0 or setattr(member, "epoch", 0))
    member.acknowledge_all({}, epoch=-1)
    assert beat(client, -1).error_code == 0
    assert delete(client, "absent", "t") == (0, {"absent": unknown, "t": 0})
    assert delete(client, "t") == (0, {"t": unknown})
    assert described(client) == {}
    assert alter(client, {"t": {0: 1}}) == (0, {"t": [0]})
    assert described(client) == {"t": [(1, 0, 6, 0)]}


def test_a_deleted_group_that_is_made_again_has_none_of_its_former_offsets(client: WireClient) -> None:
    topic_id = create_topic(client, "t", 1)
    produce(client, "t", 7)
    for accepted in ((0, 6, 1), (1, 2, 1), (5, 6, 1)):  # each time with the same epochs
        assert alter(client, {"t": {0: 0}}) == (0, {"t": [0]})
        join(client, "t")
        member = ShareMember(client, topic_id, A, "g")
        assert member.acquire(0, max_wait_ms=30_000) == [(0, 6, 1)]
        assert member.acknowledge(accepted) == 0
        member.acknowledge_all({}, epoch=-1)
        assert beat(client, -1).error_code == 0
        assert [each.error_code for each in client.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results] == [0]


def test_the_partitions_of_a_topic_that_grows_begin_at_their_first_record(client: WireClient) -> None:
    create_topic(client, "t", 2)
    assert alter(client, {"t": {0: 0}}) == (0, {"t": [0]})
    join(client, "t")
    eventually(lambda: described(client) == {"t": [(0, 0, 0, 0), (0, 0, 0, 0)]})
