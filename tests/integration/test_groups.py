"""The group APIs over the wire, in every version, on a running broker."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.wire_client import WireClient, a_wire_client

PROTOCOL = JoinGroupRequestProtocol(name="range", metadata=b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    directory = tmp_path_factory.mktemp("groups")
    config = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 3, "group_min_session_timeout_ms": 1}
    with a_broker_in_process(directory, **config) as running:
        with a_wire_client(running.port) as client:
            client.ask(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=2, replication_factor=1)], timeout_ms=9999), 7)
            ready(client)
        yield running


@pytest.fixture
def client(broker: InProcessBroker) -> Iterator[WireClient]:
    with a_wire_client(broker.port) as connected:
        yield connected


def ready(client: WireClient) -> None:
    """The internal topic has leaders, who have loaded it."""
    deadline = time.monotonic() + 30
    while client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0].error_code != ErrorCode.NONE:
        assert time.monotonic() < deadline, "no coordinator"


def join(client: WireClient, group: str, version: int, member_id: str = "", **fields: Any) -> Any:
    """JoinGroup; a newcomer comes again with its id where it must."""
    fields.setdefault("session_timeout_ms", 6_000)
    if version >= 1:
        fields.setdefault("rebalance_timeout_ms", 10_000)
    fields = {"protocols": [PROTOCOL], **fields}
    request = JoinGroupRequest(group_id=group, member_id=member_id, protocol_type="consumer", **fields)
    joined = client.ask(request, version)
    if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        return join(client, group, version, joined.member_id, **fields)
    return joined


def sync(client: WireClient, group: str, version: int, joined: Any, assignment: bytes = b"part", **fields: Any) -> Any:
    """SyncGroup of a group's only member."""
    if version >= 5:
        fields |= {"protocol_type": "consumer", "protocol_name": "range"}
    return client.ask(
        SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)],
            **fields,
        ),
        version,
    )


@pytest.mark.parametrize("version", range(10))
def test_a_member_lives_in_every_version(client: WireClient, version: int) -> None:
    group = f"life-{version}"
    joined = join(client, group, version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name, joined.leader) == (0, 1, "range", joined.member_id)
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    assert [member.metadata for member in joined.members] == [PROTOCOL.metadata]
    synced = sync(client, group, min(version, 5), joined)
    assert (synced.error_code, synced.assignment) == (0, b"part")
    beat = HeartbeatRequest(group_id=group, generation_id=1, member_id=joined.member_id)
    assert client.ask(beat, min(version, 4)).error_code == 0
    (described,) = client.ask(DescribeGroupsRequest(groups=[group]), min(version, 5)).groups
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    (member,) = described.members
    assert (member.client_id, member.client_host, member.member_assignment) == ("wire", "/127.0.0.1", b"part")
    leave_version = min(version, 5)
    if leave_version < 3:
        left = client.ask(LeaveGroupRequest(group_id=group, member_id=joined.member_id), leave_version)
    else:
        left = client.ask(LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=joined.member_id)]), leave_version)
        assert [each.error_code for each in left.members] == [0]
    assert left.error_code == 0
    assert client.ask(beat, min(version, 4)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(10))
def test_offsets_are_committed_and_fetched_in_every_version(client: WireClient, version: int) -> None:
    group = f"offsets-{version}"
    partition = OffsetCommitRequestPartition(partition_index=1, committed_offset=40 + version, committed_metadata="note")
    unknown = OffsetCommitRequestPartition(partition_index=2, committed_offset=1)
    topics = [
        OffsetCommitRequestTopic(name="t", partitions=[partition, unknown]),
        OffsetCommitRequestTopic(name="none", partitions=[unknown]),
    ]
    committed = client.ask(OffsetCommitRequest(group_id=group, topics=topics), version)
    codes = {(topic.name, each.partition_index): each.error_code for topic in committed.topics for each in topic.partitions}
    assert codes == {("t", 1): 0, ("t", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ("none", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    if version >= 8:
        asked = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=each, topics=asked) for each in (group, "none")])
        first, second = client.ask(request, version).groups
        assert {each.committed_offset for each in second.topics[0].partitions} == {-1}
        found = first
    else:
        request = OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])])
        found = client.ask(request, version)
    assert found.error_code == 0
    missing, there = sorted(found.topics[0].partitions, key=lambda each: each.partition_index)
    assert (there.committed_offset, there.metadata, there.error_code) == (40 + version, "" if version == 0 else "note", 0)
    assert missing.error_code == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version == 0 else 0)
    assert (missing.committed_offset, missing.metadata) == (-1, "")


def test_all_offsets_of_a_group_are_fetched_when_no_topics_are_named(client: WireClient) -> None:
    partitions = [OffsetCommitRequestPartition(partition_index=index, committed_offset=index) for index in (0, 1)]
    topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
    client.ask(OffsetCommitRequest(group_id="all", topics=topics), 9)
    for version in (2, 7):
        (topic,) = client.ask(OffsetFetchRequest(group_id="all", topics=None), version).topics
        assert [each.committed_offset for each in topic.partitions] == [0, 1]
    (group,) = client.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="all", topics=None)]), 9).groups
    assert len(group.topics[0].partitions) == 2


def test_version_0_commits_to_the_metadata_store(client: WireClient, broker: InProcessBroker) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    for offset in (3, 4):
        partition.committed_offset = offset
        client.ask(OffsetCommitRequest(group_id="old", topics=topics), 0)
    data, _ = broker.run(lambda: broker.services.administration.store.get("/consumers/old/offsets/t/0"))
    assert data == b"4"


@pytest.mark.parametrize("group", ["refused//b", "refused/b", "refused/" * 4_000 + "b", "", "..", "refused\x00"])
def test_version_0_makes_no_other_nodes_by_the_name_of_a_group(
    client: WireClient, broker: InProcessBroker, caplog: pytest.LogCaptureFixture, group: str
) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition, partition])]
    committed = client.ask(OffsetCommitRequest(group_id=group, topics=topics), 0)
    assert {each.error_code for each in committed.topics[0].partitions} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    names = broker.run(lambda: broker.services.administration.store.children("/consumers"))
    assert not [name for name in names if name.startswith("refused")]
    assert not [record for record in caplog.records if "cannot be stored" in record.getMessage()]


@pytest.mark.parametrize("version", [0, 9])
def test_of_topics_without_partitions_a_commit_names_those_that_there_are_not(client: WireClient, version: int) -> None:
    topics = [OffsetCommitRequestTopic(name=name, partitions=[]) for name in ("t", "none")]
    committed = client.ask(OffsetCommitRequest(group_id="empty", topics=topics), version)
    assert [(topic.name, topic.partitions) for topic in committed.topics] == [("none", [])]


def test_of_topics_without_partitions_a_deletion_names_those_that_there_are_not(client: WireClient) -> None:
    topics = [OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)])]
    client.ask(OffsetCommitRequest(group_id="deleted", topics=topics), 9)
    first = OffsetDeleteRequestPartition(partition_index=0)
    asked = [OffsetDeleteRequestTopic(name=name, partitions=[]) for name in ("t", "none")]
    deleted = client.ask(OffsetDeleteRequest(group_id="deleted", topics=asked), 0)
    assert [(topic.name, topic.partitions) for topic in deleted.topics] == [("none", [])]
    deleted = client.ask(OffsetDeleteRequest(group_id="deleted", topics=[OffsetDeleteRequestTopic(name="t", partitions=[first, first])]), 0)
    assert [each.partition_index for each in deleted.topics[0].partitions] == [0]


@pytest.mark.parametrize("group", ["", ".", "a/../b", "a/b", "a\x00b"])
def test_version_0_knows_no_group_whose_name_no_path_may_have(client: WireClient, group: str) -> None:
    asked = OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 7])])
    (topic,) = client.ask(asked, 0).topics
    codes = {each.partition_index: each.error_code for each in topic.partitions}
    assert codes == {0: ErrorCode.UNKNOWN_SERVER_ERROR, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_version_0_fetches_a_partition_once_and_nothing_of_a_topic_without_partitions(client: WireClient) -> None:
    asked = [("t", [1, 1]), ("none", []), ("t", [1])]
    topics = [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in asked]
    found = client.ask(OffsetFetchRequest(group_id="twice", topics=topics), 0)
    assert [(topic.name, [each.partition_index for each in topic.partitions]) for topic in found.topics] == [("t", [1])]


@pytest.mark.parametrize("version", range(7))
def test_every_version_finds_the_coordinator(client: WireClient, broker: InProcessBroker, version: int) -> None:
    if version >= 4:
        found = client.ask(FindCoordinatorRequest(coordinator_keys=["a", "b"]), version).coordinators
        assert [each.key for each in found] == ["a", "b"]
    else:
        found = [client.ask(FindCoordinatorRequest(key="a"), version)]
        assert found[0].error_message == ("NONE" if version else "")
    assert {(each.error_code, each.host, each.port) for each in found} == {(0, "127.0.0.1", broker.port)}


@pytest.mark.parametrize(("key_type", "version", "code"), [(1, 3, 15), (1, 6, 15), (2, 5, 42), (2, 6, 42), (9, 6, 42), (9, 3, 42)])
def test_a_name_or_a_type_without_a_coordinator_is_refused(client: WireClient, key_type: int, version: int, code: int) -> None:
    if version >= 4:
        (found,) = client.ask(FindCoordinatorRequest(coordinator_keys=["x"], key_type=key_type), version).coordinators
    else:
        found = client.ask(FindCoordinatorRequest(key="x", key_type=key_type), version)
    assert (found.error_code, found.node_id, found.host, found.port) == (code, -1, "", -1)


def test_the_offsets_topic_is_created_for_the_first_group(tmp_path: Path) -> None:
    with a_broker_in_process(tmp_path, offsets_topic_num_partitions=7) as broker, a_wire_client(broker.port) as client:
        assert "__consumer_offsets" not in broker.run(lambda: broker.services.metadata.topics)
        ready(client)
        topic = broker.run(lambda: broker.services.metadata.topics["__consumer_offsets"])
        assert len(topic.partitions) == 7
        log = broker.run(lambda: broker.services.data.replica_manager.partition("__consumer_offsets", 0).log)
        assert (log.rules.compact, log.rules.compression_codec, log.segments.settings.segment_bytes) == (True, None, 104_857_600)


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None), (9, None)])
def test_an_empty_name_of_a_protocol_is_null_where_there_is_null(client: WireClient, version: int, name: str | None) -> None:
    protocols = [JoinGroupRequestProtocol(name="", metadata=b"")]
    joined = join(client, f"unnamed-{version}", version, group_instance_id="i", protocols=protocols)
    assert (joined.error_code, joined.protocol_name) == (0, name)


def test_a_static_leader_that_comes_back_skips_the_assignment(client: WireClient) -> None:
    joined = join(client, "static", 9, group_instance_id="one")
    sync(client, "static", 5, joined, group_instance_id="one")
    back = join(client, "static", 9, group_instance_id="one")
    assert (back.error_code, back.generation_id, back.skip_assignment, back.leader) == (0, 1, True, back.member_id)
    assert back.member_id != joined.member_id
    old = HeartbeatRequest(group_id="static", generation_id=1, member_id=joined.member_id, group_instance_id="one")
    assert client.ask(old, 4).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_whoever_has_the_former_id_of_a_static_member_is_fenced_everywhere(client: WireClient) -> None:
    first = join(client, "doubled", 9, group_instance_id="one")
    sync(client, "doubled", 5, first, group_instance_id="one")
    second = join(client, "doubled", 9, group_instance_id="one")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert join(client, "doubled", 9, first.member_id, group_instance_id="one").error_code == fenced
    assert sync(client, "doubled", 5, first, group_instance_id="one").error_code == fenced
    topics = [OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=5)])]
    commit = OffsetCommitRequest(
        group_id="doubled", generation_id_or_member_epoch=1, member_id=first.member_id, group_instance_id="one", topics=topics
    )
    assert client.ask(commit, 9).topics[0].partitions[0].error_code == fenced
    leave = LeaveGroupRequest(group_id="doubled", members=[MemberIdentity(member_id=first.member_id, group_instance_id="one")])
    assert [each.error_code for each in client.ask(leave, 5).members] == [fenced]
    commit.member_id = second.member_id
    assert client.ask(commit, 9).topics[0].partitions[0].error_code == 0


def test_groups_are_listed_by_state_and_type(client: WireClient) -> None:
    joined = join(client, "listed", 9)
    for version in range(6):
        (found,) = [group for group in client.ask(ListGroupsRequest(), version).groups if group.group_id == "listed"]
        assert found.protocol_type == "consumer"
        assert found.group_state == ("CompletingRebalance" if version >= 4 else "")
        assert found.group_type == ("classic" if version >= 5 else "")
    assert client.ask(ListGroupsRequest(states_filter=["Stable"]), 4).groups == [
        group for group in client.ask(ListGroupsRequest(), 4).groups if group.group_state == "Stable"
    ]
    assert client.ask(ListGroupsRequest(types_filter=["consumer"]), 5).groups == []
    client.ask(LeaveGroupRequest(group_id="listed", members=[MemberIdentity(member_id=joined.member_id)]), 5)


def test_groups_and_offsets_are_deleted(client: WireClient) -> None:
    joined = join(client, "gone", 9)
    sync(client, "gone", 5, joined)
    partitions = [OffsetCommitRequestPartition(partition_index=index, committed_offset=index) for index in (0, 1)]
    topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
    commit = OffsetCommitRequest(group_id="gone", generation_id_or_member_epoch=1, member_id=joined.member_id, topics=topics)
    client.ask(commit, 9)

    def delete_offset(topic: str) -> Any:
        asked = [OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])]
        return client.ask(OffsetDeleteRequest(group_id="gone", topics=asked), 0)

    assert delete_offset("t").topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete_offset("none").topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    results = client.ask(DeleteGroupsRequest(groups_names=["gone", "none", "gone"]), 2).results
    assert {(each.group_id, each.error_code) for each in results} == {("gone", 68), ("none", 69)}
    client.ask(LeaveGroupRequest(group_id="gone", members=[MemberIdentity(member_id=joined.member_id)]), 5)
    assert delete_offset("t").topics[0].partitions[0].error_code == 0
    assert [each.error_code for each in client.ask(DeleteGroupsRequest(groups_names=["gone"]), 0).results] == [0]
    (described,) = client.ask(DescribeGroupsRequest(groups=["gone"], include_authorized_operations=True), 5).groups
    assert (described.error_code, described.group_state) == (0, "Dead")
    assert described.authorized_operations == 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
    assert delete_offset("t").error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("version", range(6))
def test_producer_ids_are_handed_out_once(client: WireClient, version: int) -> None:
    ids = [client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), version) for _ in range(3)]
    assert {(each.error_code, each.producer_epoch) for each in ids} == {(0, 0)}
    assert len({each.producer_id for each in ids}) == 3


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": "", "transaction_timeout_ms": 1000}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "x", "transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transactional_id": "x", "transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transactional_id": None, "producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_producer_ids_are_refused(client: WireClient, fields: dict[str, Any], code: ErrorCode) -> None:
    refused = client.ask(InitProducerIdRequest(**fields), 5)
    assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (code, -1, -1)


def test_a_client_that_goes_away_while_it_joins_is_replaced_when_its_session_ends(broker: InProcessBroker) -> None:
    with a_wire_client(broker.port) as gone:
        joined = join(gone, "away", 9, session_timeout_ms=500)
        sync(gone, "away", 5, joined)
    with a_wire_client(broker.port) as other:
        joined = join(other, "away", 3, rebalance_timeout_ms=2_000)
        assert (joined.error_code, joined.leader, len(joined.members)) == (0, joined.member_id, 1)
