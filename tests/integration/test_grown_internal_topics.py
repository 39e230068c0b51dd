"""Groups of an offsets topic that was made to grow are found after a restart, by every request."""

from __future__ import annotations

from pathlib import Path

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.support.admin_requests import OK, a_topic, create, grow
from tests.support.broker_process import eventually
from tests.support.in_process_broker import a_broker_in_process
from tests.support.wire_client import WireClient, a_wire_client

OFFSETS = "__consumer_offsets"
GROUPS = [f"group-{number}" for number in range(20)]
CONFIG = {"offsets_topic_num_partitions": 2, "ottla_internal_topics_can_grow": True}


def commit(client: WireClient, group: str, offset: int) -> ErrorCode:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])])
    return ErrorCode(client.ask(request, 7).topics[0].partitions[0].error_code)


def committed(client: WireClient, group: str) -> int | None:
    answer = client.ask(OffsetFetchRequest(group_id=group, topics=None), 7)
    if answer.error_code or not answer.topics:
        return None
    return answer.topics[0].partitions[0].committed_offset


def await_coordinator(client: WireClient) -> None:
    request = FindCoordinatorRequest(coordinator_keys=GROUPS)
    eventually(lambda: not any(each.error_code for each in client.ask(request, 4).coordinators), what="a coordinator for each group")
    eventually(
        lambda: all(
            client.ask(OffsetFetchRequest(group_id=group, topics=None), 7).error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            for group in GROUPS
        ),
        what="loaded groups",
    )


def listed(client: WireClient) -> list[str]:
    return sorted(each.group_id for each in client.ask(ListGroupsRequest(), 4).groups)


def test_groups_of_a_grown_topic_are_found_committed_and_deleted(tmp_path: Path) -> None:
    with a_broker_in_process(tmp_path, **CONFIG) as broker, a_wire_client(broker.port) as client:
        create(client, a_topic("t"))
        await_coordinator(client)
        assert [commit(client, group, 1) for group in GROUPS] == [ErrorCode.NONE] * len(GROUPS)
        assert grow(client, OFFSETS, 7) == OK
        assert [committed(client, group) for group in GROUPS] == [1] * len(GROUPS)
    for start in (2, 3):
        with a_broker_in_process(tmp_path, **CONFIG) as broker, a_wire_client(broker.port) as client:
            await_coordinator(client)
            assert [committed(client, group) for group in GROUPS] == [start - 1] * len(GROUPS)
            assert listed(client) == sorted(GROUPS)
            assert {each.group_state for each in client.ask(DescribeGroupsRequest(groups=GROUPS), 5).groups} == {"Empty"}
            assert [commit(client, group, start) for group in GROUPS] == [ErrorCode.NONE] * len(GROUPS)
    with a_broker_in_process(tmp_path, **CONFIG) as broker, a_wire_client(broker.port) as client:
        await_coordinator(client)
        assert {each.error_code for each in client.ask(DeleteGroupsRequest(groups_names=GROUPS), 2).results} == {0}
    with a_broker_in_process(tmp_path, **CONFIG) as broker, a_wire_client(broker.port) as client:
        await_coordinator(client)
        assert listed(client) == []


def test_an_internal_topic_does_not_grow_unless_that_is_configured(tmp_path: Path) -> None:
    with a_broker_in_process(tmp_path, offsets_topic_num_partitions=2) as broker, a_wire_client(broker.port) as client:
        await_coordinator(client)
        assert grow(client, OFFSETS, 7)[0] == "INVALID_PARTITIONS"
