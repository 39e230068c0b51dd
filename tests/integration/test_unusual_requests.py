"""Valid but unusual requests get the answers that Apache Kafka was seen to give.

`tests/integration/apache_kafka/test_requests.py` compares far more of them, where there is an Apache Kafka to compare with.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.fetching.fetch_sessions import NO_SESSION
from ottla.broker.request.repeats import MAX_REPEATS
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorResponse
from ottla.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.protocol.schema.message import Message
from tests.support.batches import a_batch
from tests.support.golden_replay import receive
from tests.support.in_process_broker import a_broker_in_process
from tests.support.wire_client import WireClient, a_wire_client

TOPIC, BROKER = 2, 4
APPEND = 2


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A broker with the topic `t` of one partition and three records."""
    with a_broker_in_process(tmp_path_factory.mktemp("unusual"), broker_id=1) as broker:
        with a_wire_client(broker.port) as client:
            client.ask(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)], timeout_ms=60_000), 5)
            assert produced(client, "t", acks=-1) == ErrorCode.NONE
        yield broker.port


@pytest.fixture
def client(port: int) -> Iterator[WireClient]:
    with a_wire_client(port) as connected:
        yield connected


def produced(client: WireClient, topic: str, acks: int, codec: str = "none", version: int = 9) -> int:
    data = PartitionProduceData(index=0, records=bytes(a_batch(3, codec)))
    request = ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])
    return int(client.ask(request, version).responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize(
    "request_",
    [
        DescribeAclsRequest(resource_type_filter=0, operation=2, permission_type=3),
        CreateAclsRequest(creations=[AclCreation(resource_type=2, resource_name="t", operation=0, permission_type=3)]),
        DeleteAclsRequest(filters=[DeleteAclsFilter(resource_type_filter=2, operation=2, permission_type=0)]),
    ],
    ids=lambda request: type(request).__name__,
)
def test_an_acl_request_with_unknown_elements_closes_the_connection(client: WireClient, request_: Message) -> None:
    with pytest.raises(ConnectionError):
        client.ask(request_, 2)


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (FeatureUpdateKey(feature="", max_version_level=1), "Feature name can not be empty."),
        (FeatureUpdateKey(feature="f", max_version_level=1, upgrade_type=9), "Received unknown upgrade type."),
        (FeatureUpdateKey(feature="f", max_version_level=0, upgrade_type=2), "Can not delete non-existing finalized feature."),
        (
            FeatureUpdateKey(feature="f", max_version_level=-1),
            "Can not provide versionLevel: -1 less than 1 without setting the SAFE downgradeType in the request.",
        ),
        (
            FeatureUpdateKey(feature="f", max_version_level=1),
            "Could not apply finalized feature update because the provided feature is not supported.",
        ),
    ],
)
def test_a_feature_update_is_told_what_is_wrong_with_it(client: WireClient, update: FeatureUpdateKey, message: str) -> None:
    (result,) = client.ask(UpdateFeaturesRequest(feature_updates=[update]), 1).results
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, message)


@pytest.mark.parametrize(
    ("topic", "codec", "expected"),
    [
        ("missing", "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", "zstd", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ("t", "none", ErrorCode.INVALID_REQUIRED_ACKS),
    ],
)
def test_acks_that_there_are_not_are_refused_after_what_is_wrong_otherwise(
    client: WireClient, topic: str, codec: str, expected: ErrorCode
) -> None:
    assert produced(client, topic, acks=2, codec=codec, version=6) == expected


def test_a_fetch_of_nothing_begins_a_session(client: WireClient) -> None:
    assert client.ask(FetchRequest(max_wait_ms=0, session_epoch=0, topics=[]), 11).session_id != NO_SESSION


def test_a_session_that_is_left_with_nothing_reads_once_more_what_the_request_names(client: WireClient) -> None:
    topics = [FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1_000)])]
    begun = client.ask(FetchRequest(max_wait_ms=0, session_epoch=0, topics=topics), 11)
    forgotten = [ForgottenTopic(topic="t", partitions=[0])]
    request = FetchRequest(max_wait_ms=0, session_id=begun.session_id, session_epoch=1, topics=topics, forgotten_topics_data=forgotten)
    last = client.ask(request, 11)
    assert (last.session_id, last.responses) == (NO_SESSION, begun.responses)


def test_there_are_as_many_sessions_as_the_configuration_allows(tmp_path: Path) -> None:
    fetch = FetchRequest(max_wait_ms=0, session_epoch=0, topics=[])
    with a_broker_in_process(tmp_path, max_incremental_fetch_session_cache_slots=2) as broker, a_wire_client(broker.port) as client:
        assert [client.ask(fetch, 11).session_id == NO_SESSION for _ in range(3)] == [False, False, True]


def test_negative_leader_epochs_of_a_fetch_are_none(client: WireClient) -> None:
    partition = FetchPartition(partition=0, current_leader_epoch=-2, last_fetched_epoch=-2, fetch_offset=0, partition_max_bytes=1_000)
    (topic,) = client.ask(FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic="t", partitions=[partition])]), 12).responses
    assert (topic.partitions[0].error_code, topic.partitions[0].high_watermark) == (ErrorCode.NONE, 3)


def test_what_a_client_may_do_is_told_of_missing_topics_too(client: WireClient) -> None:
    topics = [MetadataRequestTopic(name=name) for name in ("t", "missing", "a b")]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    operations = {topic.topic_authorized_operations for topic in client.ask(request, 12).topics}
    assert len(operations) == 1
    assert min(operations) > 0


def test_version_0_of_list_offsets_answers_a_partition_as_often_as_it_is_named(client: WireClient) -> None:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=timestamp) for timestamp in (-1, -2)]
    (topic,) = client.ask(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=partitions)]), 0).topics
    assert [each.old_style_offsets for each in topic.partitions] == [[3], [0]]


def test_version_0_of_list_offsets_knows_the_end_for_a_time_that_is_yet_to_come(client: WireClient) -> None:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=2**63 - 1, max_num_offsets=count) for count in (1, 5)]
    (topic,) = client.ask(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=partitions)]), 0).topics
    assert [each.old_style_offsets for each in topic.partitions] == [[3], [3, 0]]


def test_a_producer_was_last_seen_at_the_log_append_time(client: WireClient) -> None:
    configs = [CreatableTopicConfig(name="message.timestamp.type", value="LogAppendTime")]
    topic = CreatableTopic(name="appended", num_partitions=1, replication_factor=1, configs=configs)
    client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 5)
    data = PartitionProduceData(index=0, records=bytes(a_batch(1, producer_id=7)))
    request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name="appended", partition_data=[data])])
    (first, again) = (client.ask(request, 9).responses[0].partition_responses[0].log_append_time_ms for _ in range(2))
    described = client.ask(DescribeProducersRequest(topics=[TopicRequest(name="appended", partition_indexes=[0])]), 0)
    assert described.topics[0].partitions[0].active_producers[0].last_timestamp == first == again


def test_delete_records_answers_each_partition_once(client: WireClient) -> None:
    partitions = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (99, 0)]
    topics = [DeleteRecordsTopic(name="missing", partitions=[]), DeleteRecordsTopic(name="t", partitions=partitions)]
    (topic,) = client.ask(DeleteRecordsRequest(topics=topics, timeout_ms=60_000), 2).topics
    assert [(each.error_code, each.low_watermark) for each in topic.partitions] == [(ErrorCode.NONE, 0)]


def repeated_configs(client: WireClient, times: int) -> list[int]:
    resources = [DescribeConfigsResource(resource_type=TOPIC, resource_name="t") for _ in range(times)]
    return [each.error_code for each in client.ask(DescribeConfigsRequest(resources=resources), 4).results]


def repeated_groups(client: WireClient, times: int) -> list[int]:
    return [each.error_code for each in client.ask(DescribeGroupsRequest(groups=["g"] * times), 5).groups]


def repeated_offsets(client: WireClient, times: int) -> list[int]:
    groups = [OffsetFetchRequestGroup(group_id="g", topics=None) for _ in range(times)]
    return [each.error_code for each in client.ask(OffsetFetchRequest(groups=groups), 9).groups]


def repeated_producers(client: WireClient, times: int) -> list[int]:
    topics = [TopicRequest(name="t", partition_indexes=[0] * (times // 2)) for _ in range(2)]
    response = client.ask(DescribeProducersRequest(topics=topics), 0)
    return [each.error_code for topic in response.topics for each in topic.partitions]


def repeated_transactions(client: WireClient, times: int) -> list[int]:
    request = DescribeTransactionsRequest(transactional_ids=["x"] * times)
    return [each.error_code for each in client.ask(request, 0).transaction_states]


@pytest.mark.parametrize("codes_of", [repeated_configs, repeated_groups, repeated_offsets, repeated_producers, repeated_transactions])
def test_a_name_that_is_repeated_without_end_is_described_a_few_times(
    client: WireClient, codes_of: Callable[[WireClient, int], list[int]]
) -> None:
    codes = codes_of(client, 100)
    assert ErrorCode.INVALID_REQUEST not in codes[: 1 + MAX_REPEATS]
    assert codes[1 + MAX_REPEATS :] == [ErrorCode.INVALID_REQUEST] * (99 - MAX_REPEATS)


@pytest.mark.parametrize(
    "component", [ComponentData(entity_type="user", match_type=0, match=None), ComponentData(entity_type="user", match_type=7)]
)
def test_a_filter_of_quotas_that_says_nothing_is_an_error(client: WireClient, component: ComponentData) -> None:
    response = client.ask(DescribeClientQuotasRequest(components=[component]), 1)
    assert (response.error_code, response.error_message, response.entries) == (ErrorCode.UNKNOWN_SERVER_ERROR, None, None)


@pytest.mark.parametrize(
    ("resource_type", "name", "op", "key", "message"),
    [
        (BROKER, " 0", 0, "log.retention.ms", "Node id must be an integer, but it is:  0"),
        (BROKER, "9", 7, "log.retention.ms", "Unexpected broker id, expected 1, but received 9"),
        (BROKER, "", 7, "log.retention.ms", "Unknown operations type 7"),
        (TOPIC, "", 7, "retention.ms", "Default topic resources are not allowed."),
        (TOPIC, "missing", APPEND, "retention.ms", "Config value append is not allowed for config key: retention.ms"),
        (TOPIC, "missing", APPEND, "cleanup.policy", "The topic 'missing' does not exist."),
    ],
)
def test_incremental_changes_are_checked_in_the_order_of_apache_kafka(
    client: WireClient, resource_type: int, name: str, op: int, key: str, message: str
) -> None:
    configs = [AlterableConfig(name=key, config_operation=op, value="1")]
    resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
    (response,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=True), 1).responses
    assert response.error_message == message


def test_an_old_controller_is_told_so_of_each_partition(client: WireClient) -> None:
    states = [LeaderAndIsrTopicState(topic_name="t", partition_states=[LeaderAndIsrPartitionState(partition_index=0)])]
    response: Any = client.ask(LeaderAndIsrRequest(controller_epoch=0, topic_states=states), 4)
    assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert [each.error_code for each in response.partition_errors] == [ErrorCode.STALE_CONTROLLER_EPOCH]


@pytest.mark.parametrize(("epoch", "expected"), [(-1, ErrorCode.BROKER_NOT_AVAILABLE), (7, ErrorCode.UNKNOWN_SERVER_ERROR)])
def test_a_broker_that_does_not_exist_cannot_shut_down(client: WireClient, epoch: int, expected: ErrorCode) -> None:
    assert client.ask(ControlledShutdownRequest(broker_id=99, broker_epoch=epoch), 3).error_code == expected


def test_a_client_that_does_not_write_utf_8_is_served(port: int) -> None:
    header = struct.pack(">hhih", ApiKey.FIND_COORDINATOR, 0, 7, 6) + b"M\xfcller"
    frame = header + struct.pack(">h", 6) + b"gr\xfcppe"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        answer = receive(connection)

    response, _ = FindCoordinatorResponse.decode(answer, 0, 4)
    assert response.error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
