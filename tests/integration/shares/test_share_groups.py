"""Members join, stay in and leave share groups; epochs, assignments and codes are those of Apache Kafka 4.4."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.protocol.messages.read_share_group_state import PartitionData, ReadShareGroupStateRequest, ReadStateData
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.support.broker_process import eventually
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.share_members import ShareMember, create_topic, produce
from tests.support.wire_client import WireClient, a_wire_client

A, B = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
CONFIG = {"offsets.topic.num.partitions": 1, "share.coordinator.state.topic.num.partitions": 1}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with a_broker_in_process(tmp_path, **CONFIG) as started:
        yield started


@pytest.fixture
def client(broker: InProcessBroker) -> Iterator[WireClient]:
    with a_wire_client(broker.port) as connected:
        find_coordinator(connected)
        yield connected


def find_coordinator(client: WireClient) -> None:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    eventually(lambda: not client.ask(request, 4).coordinators[0].error_code)
    eventually(lambda: beat(client, "nobody", 5).error_code == ErrorCode.GROUP_ID_NOT_FOUND)


def beat(client: WireClient, member: str, epoch: int, topics: list[str] | None = None, group: str = "g", rack: str | None = None) -> Any:
    request = ShareGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=topics, rack_id=rack)
    return client.ask(request, 1)


def assigned(response: Any) -> list[int] | None:
    if response.assignment is None:
        return None
    return sorted(index for topic in response.assignment.topic_partitions for index in topic.partitions)


def settle(client: WireClient, members: dict[str, int]) -> dict[str, list[int]]:
    """Let members send heartbeats until all of them have the same epoch as before, and return what they have."""
    parts: dict[str, list[int]] = {}

    def is_settled() -> bool:
        before = dict(members)
        for member, epoch in before.items():
            response = beat(client, member, epoch)
            assert response.error_code == 0
            members[member] = response.member_epoch
            found = assigned(response)
            if found is not None:
                parts[member] = found
        return members == before and len(set(members.values())) == 1 and all(map(parts.get, members))

    eventually(is_settled)
    return parts


def test_a_member_is_assigned_the_partitions_when_they_are_initialized(client: WireClient) -> None:
    create_topic(client, "t", 3)
    first = beat(client, A, 0, ["t"])
    assert (first.error_code, first.member_id, first.member_epoch, first.heartbeat_interval_ms) == (0, A, 2, 5_000)
    assert assigned(first) == []
    members = {A: first.member_epoch}
    assert settle(client, members) == {A: [0, 1, 2]}
    assert members == {A: 3}


def test_two_members_share_the_partitions_out(client: WireClient) -> None:
    create_topic(client, "t", 3)
    members = {A: beat(client, A, 0, ["t"]).member_epoch}
    settle(client, members)
    members[B] = beat(client, B, 0, ["t"]).member_epoch
    parts = settle(client, members)
    assert sorted(parts[A] + parts[B]) == [0, 1, 2]
    assert beat(client, B, -1).member_epoch == -1
    del members[B]
    eventually(lambda: assigned(beat(client, A, beat(client, A, members[A]).member_epoch, ["t"])) == [0, 1, 2])


def test_a_topic_that_grows_or_appears_later_is_assigned(client: WireClient) -> None:
    members = {A: beat(client, A, 0, ["later"]).member_epoch}
    create_topic(client, "later", 2)
    assert settle(client, members) == {A: [0, 1]}


def test_heartbeats_are_checked(client: WireClient) -> None:
    create_topic(client, "t", 1)
    for member, epoch, topics, group, rack in (
        ("", 0, ["t"], "g", None),
        (A, 0, ["t"], "", None),
        (A, 0, None, "g", None),
        (A, 0, [], "g", None),
        (A, -2, None, "g", None),
        (A, 0, ["t"], "g", ""),
    ):
        assert beat(client, member, epoch, topics, group, rack).error_code == ErrorCode.INVALID_REQUEST
    assert beat(client, A, 7).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    members = {A: beat(client, A, 0, ["t"]).member_epoch}
    settle(client, members)
    assert beat(client, B, 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(client, A, 4).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert beat(client, A, 2).error_code == ErrorCode.NONE, "the answer with the next epoch may have been lost"
    assert beat(client, A, 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_share_groups_are_listed_described_and_deleted(client: WireClient) -> None:
    create_topic(client, "t", 1)
    members = {A: beat(client, A, 0, ["t"]).member_epoch}
    settle(client, members)
    listed = client.ask(ListGroupsRequest(types_filter=["share"]), 5).groups
    assert [(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in listed] == [
        ("g", "share", "Stable", "share")
    ]
    described, missing = client.ask(ShareGroupDescribeRequest(group_ids=["g", "h"]), 1).groups
    assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group h not found.")
    assert (described.group_state, described.group_epoch, described.assignment_epoch, described.assignor_name) == ("Stable", 3, 3, "simple")
    (member,) = described.members
    assert (member.member_id, member.member_epoch, member.client_id, member.subscribed_topic_names) == (A, 3, "wire", ["t"])
    assert [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions] == [("t", [0])]
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    commit = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])])
    assert client.ask(commit, 8).topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    deletion = DeleteGroupsRequest(groups_names=["g"])
    assert client.ask(deletion, 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    beat(client, A, -1)
    assert client.ask(ShareGroupDescribeRequest(group_ids=["g"]), 1).groups[0].group_state == "Empty"
    assert client.ask(deletion, 2).results[0].error_code == ErrorCode.NONE
    assert client.ask(ShareGroupDescribeRequest(group_ids=["g"]), 1).groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    again = {A: beat(client, A, 0, ["t"]).member_epoch}
    assert settle(client, again) == {A: [0]}, "the state of the former group does not fence the new one"


def test_a_group_and_its_positions_outlive_the_broker(tmp_path: Path) -> None:
    with a_broker_in_process(tmp_path, **CONFIG) as broker, a_wire_client(broker.port) as client:
        find_coordinator(client)
        topic_id = create_topic(client, "t", 1)
        settle(client, {A: beat(client, A, 0, ["t"]).member_epoch})
        member = ShareMember(client, topic_id, A)
        assert member.acquire(0) == []
        produce(client, "t", 4)
        assert member.acquire() == [(0, 3, 1)]
        assert member.acknowledge((0, 1, 1)) == ErrorCode.NONE
    with a_broker_in_process(tmp_path, **CONFIG) as broker, a_wire_client(broker.port) as client:
        eventually(lambda: beat(client, A, 3).error_code == ErrorCode.NONE)
        assert assigned(beat(client, A, 0, ["t"])) == [0], "it is initialized already"
        member = ShareMember(client, topic_id, A)
        acquired: list[tuple[int, int, int]] = []

        def fetches() -> bool:
            acquired.extend(member.acquire(0))
            return bool(acquired)

        eventually(fetches)
        assert acquired == [(2, 3, 1)], "records that were not acknowledged"


def test_a_member_that_is_silent_is_removed(tmp_path: Path) -> None:
    short = {"group.share.min.session.timeout.ms": 500, "group.share.session.timeout.ms": 1_000}
    with a_broker_in_process(tmp_path, **CONFIG, **short) as broker, a_wire_client(broker.port) as client:
        find_coordinator(client)
        create_topic(client, "t", 1)
        settle(client, {A: beat(client, A, 0, ["t"]).member_epoch})
        request = ShareGroupDescribeRequest(group_ids=["g"])
        eventually(lambda: client.ask(request, 1).groups[0].group_state == "Empty")
        assert beat(client, A, 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_client_without_rights_is_refused(tmp_path: Path) -> None:
    authorizer = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
    with a_broker_in_process(tmp_path, **CONFIG, **authorizer) as broker, a_wire_client(broker.port) as client:
        assert beat(client, A, 0, ["t"]).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        (described,) = client.ask(ShareGroupDescribeRequest(group_ids=["g"]), 1).groups
        assert described.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        member = ShareMember(client, bytes(16))
        assert member.fetch_all(0).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert member.acknowledge_all({0: [(0, 0, 1)]}).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        partitions = [PartitionData(partition=0, leader_epoch=0)]
        request = ReadShareGroupStateRequest(group_id="g", topics=[ReadStateData(topic_id=bytes(16), partitions=partitions)])
        assert client.ask(request, 0).results[0].partitions[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
