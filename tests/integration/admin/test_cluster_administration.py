"""What else an administrator and a controller ask over the wire, answered by one broker without security as Apache Kafka 3.9.1 answered."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from ottla.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.messages.stop_replica import StopReplicaRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.support.admin_requests import OK, a_topic, create, said
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.wire_client import WireClient, a_wire_client


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broker")


@pytest.fixture(scope="module")
def broker(directory: Path) -> Iterator[InProcessBroker]:
    with a_broker_in_process(directory, broker_id=0, broker_rack="r0") as running:
        yield running


@pytest.fixture
def client(broker: InProcessBroker) -> Iterator[WireClient]:
    """With a topic `t` of two partitions."""
    with a_wire_client(broker.port) as connected:
        create(connected, a_topic("t", 2))
        yield connected


@pytest.fixture
def epoch(broker: InProcessBroker) -> int:
    found = broker.run(lambda: broker.services.cluster.controller.broker_epoch)
    assert isinstance(found, int)
    return found


# The controller's requests


@pytest.mark.parametrize("version", [2, 4, 5, 7])
def test_leader_and_isr_for_an_earlier_life_of_the_broker_is_refused_with_every_partition(
    client: WireClient, epoch: int, version: int
) -> None:
    state = LeaderAndIsrPartitionState(partition_index=0, controller_epoch=99, replicas=(0,))
    request = LeaderAndIsrRequest(
        controller_epoch=99, broker_epoch=epoch - 1, topic_states=[LeaderAndIsrTopicState(topic_name="t", partition_states=[state])]
    )
    response = client.ask(request, version)
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
    errors = response.topics[0].partition_errors if version >= 5 else response.partition_errors
    assert [error.error_code for error in errors] == [ErrorCode.STALE_BROKER_EPOCH]


def test_a_deposed_controller_is_refused(client: WireClient, epoch: int) -> None:
    for request, version in (
        (LeaderAndIsrRequest(controller_epoch=0, broker_epoch=epoch), 7),
        (UpdateMetadataRequest(controller_epoch=0, broker_epoch=epoch), 8),
        (StopReplicaRequest(controller_epoch=0, broker_epoch=epoch), 4),
    ):
        assert client.ask(request, version).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


def test_requests_for_an_earlier_life_of_the_broker_are_refused(client: WireClient, epoch: int) -> None:
    for request, version in (
        (UpdateMetadataRequest(controller_epoch=99, broker_epoch=epoch - 1), 8),
        (StopReplicaRequest(controller_epoch=99, broker_epoch=epoch - 1), 4),
        (ControlledShutdownRequest(broker_id=0, broker_epoch=epoch - 1), 3),
        (AllocateProducerIdsRequest(broker_id=0, broker_epoch=epoch - 1), 0),
        (AlterPartitionRequest(broker_id=0, broker_epoch=epoch - 1), 3),
    ):
        assert client.ask(request, version).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_brokers_that_do_not_exist_are_told_so(client: WireClient) -> None:
    assert client.ask(AllocateProducerIdsRequest(broker_id=7, broker_epoch=1), 0).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert client.ask(AlterPartitionRequest(broker_id=7, broker_epoch=1), 3).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert client.ask(ControlledShutdownRequest(broker_id=7, broker_epoch=-1), 3).error_code == ErrorCode.BROKER_NOT_AVAILABLE


def test_every_block_of_producer_ids_is_a_new_one(client: WireClient, epoch: int) -> None:
    blocks = [client.ask(AllocateProducerIdsRequest(broker_id=0, broker_epoch=epoch), 0) for _ in range(2)]
    assert [block.producer_id_len for block in blocks] == [1000, 1000]
    assert blocks[1].producer_id_start == blocks[0].producer_id_start + 1000


def proposal(topic_id: bytes, isr: list[int], leader_epoch: int = 0) -> AlterPartitionRequestTopicData:
    partition = AlterPartitionRequestPartitionData(
        partition_index=0, leader_epoch=leader_epoch, partition_epoch=0, new_isr_with_epochs=[BrokerState(broker_id=each) for each in isr]
    )
    return AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[partition])


def test_changes_of_the_isr_are_judged_one_by_one(client: WireClient, broker: InProcessBroker, epoch: int) -> None:
    topic_id = broker.run(lambda: broker.services.metadata.topic_id("t"))

    def alter(topic: AlterPartitionRequestTopicData) -> Any:
        response = client.ask(AlterPartitionRequest(broker_id=0, broker_epoch=epoch, topics=[topic]), 3)
        assert response.error_code == ErrorCode.NONE
        (answered,) = response.topics
        assert answered.topic_id == topic.topic_id
        return answered.partitions[0]

    assert alter(proposal(b"\x01" * 16, [0])).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert alter(proposal(topic_id, [0], leader_epoch=9)).error_code == ErrorCode.NOT_CONTROLLER
    assert alter(proposal(topic_id, [0, 7])).error_code == ErrorCode.INELIGIBLE_REPLICA
    unchanged = alter(proposal(topic_id, [0]))
    assert (unchanged.error_code, unchanged.leader_id, unchanged.isr) == (ErrorCode.NONE, 0, [0])


# Elections and reassignments


def elect(client: WireClient, election_type: int, partitions: list[TopicPartitions] | None, version: int = 2) -> Any:
    return client.ask(ElectLeadersRequest(election_type=election_type, topic_partitions=partitions, timeout_ms=5000), version)


def test_elections_that_are_not_needed_are_told_only_to_those_who_name_the_partition(client: WireClient) -> None:
    asked = [TopicPartitions(topic="t", partitions=[0, 99]), TopicPartitions(topic="nope", partitions=[0])]
    response = elect(client, 0, asked)
    assert response.error_code == ErrorCode.NONE
    found = {(each.topic, one.partition_id): said(one) for each in response.replica_election_results for one in each.partition_result}
    assert found == {
        ("t", 0): ("ELECTION_NOT_NEEDED", "Leader election not needed for topic partition."),
        ("t", 99): ("UNKNOWN_TOPIC_OR_PARTITION", "The partition does not exist."),
        ("nope", 0): ("UNKNOWN_TOPIC_OR_PARTITION", "The partition does not exist."),
    }
    assert elect(client, 0, None).replica_election_results == []


def test_a_kind_of_election_that_nobody_knows_is_an_error_everywhere(client: WireClient) -> None:
    response = elect(client, 7, [TopicPartitions(topic="t", partitions=[0])])
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert said(response.replica_election_results[0].partition_result[0]) == ("UNKNOWN_SERVER_ERROR", None)


def test_no_partition_is_being_moved(client: WireClient) -> None:
    response = client.ask(ListPartitionReassignmentsRequest(timeout_ms=1000, topics=None), 0)
    assert (response.error_code, response.error_message, response.topics) == (ErrorCode.NONE, "", [])


# What is there


@pytest.mark.parametrize("version", [0, 1])
def test_the_cluster_is_described(client: WireClient, broker: InProcessBroker, version: int) -> None:
    response = client.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    assert (response.error_code, response.error_message, response.controller_id) == (ErrorCode.NONE, None, 0)
    assert [(each.broker_id, each.host, each.port, each.rack) for each in response.brokers] == [(0, "127.0.0.1", broker.port, "r0")]
    assert response.cluster_authorized_operations == 8096
    assert len(response.cluster_id) == 22


def test_only_brokers_are_end_points_here(client: WireClient) -> None:
    assert said(client.ask(DescribeClusterRequest(endpoint_type=2), 1)) == (
        "MISMATCHED_ENDPOINT_TYPE",
        "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
    )
    assert said(client.ask(DescribeClusterRequest(endpoint_type=9), 1)) == ("UNSUPPORTED_ENDPOINT_TYPE", "Unsupported endpoint type 9")


def test_log_directories_are_described_with_what_was_asked_for(client: WireClient, directory: Path) -> None:
    (everything,) = client.ask(DescribeLogDirsRequest(topics=None), 4).results
    assert everything.log_dir == str(directory)
    assert 0 < everything.usable_bytes < everything.total_bytes
    assert sorted(each.partition_index for topic in everything.topics if topic.name == "t" for each in topic.partitions) == [0, 1]
    asked = [DescribableLogDirTopic(topic="t", partitions=[1]), DescribableLogDirTopic(topic="nope", partitions=[0])]
    (one,) = client.ask(DescribeLogDirsRequest(topics=asked), 4).results
    assert [(topic.name, [each.partition_index for each in topic.partitions]) for topic in one.topics] == [("t", [1])]
    (none,) = client.ask(DescribeLogDirsRequest(topics=[]), 4).results
    assert none.topics == []


def test_producers_are_described_per_partition(client: WireClient) -> None:
    asked = [TopicRequest(name=name, partition_indexes=[0, 77] if name == "t" else [0]) for name in ("t", "nope", "bad name")]
    response = client.ask(DescribeProducersRequest(topics=asked), 0)
    found = {(topic.name, each.partition_index): said(each) for topic in response.topics for each in topic.partitions}
    assert found == {
        ("t", 0): OK,
        ("t", 77): ("UNKNOWN_TOPIC_OR_PARTITION", None),
        ("nope", 0): ("UNKNOWN_TOPIC_OR_PARTITION", "This server does not host this topic-partition."),
        (
            "bad name",
            0,
        ): (
            "INVALID_TOPIC_EXCEPTION",
            "Topic name is invalid: 'bad name' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
        ),
    }


# Security and quotas, which this broker has not


def test_without_an_authorizer_there_are_no_acls(client: WireClient) -> None:
    assert said(client.ask(DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1), 3)) == (
        "SECURITY_DISABLED",
        "No Authorizer is configured on the broker",
    )
    refused = ("SECURITY_DISABLED", "No Authorizer is configured.")
    creation = AclCreation(resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3)
    assert [said(each) for each in client.ask(CreateAclsRequest(creations=[creation] * 2), 3).results] == [refused] * 2
    acl_filter = DeleteAclsFilter(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    assert [said(each) for each in client.ask(DeleteAclsRequest(filters=[acl_filter]), 3).filter_results] == [refused]


def test_sasl_is_out_of_place_on_a_plaintext_listener(client: WireClient) -> None:
    for version in (0, 1):
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), version).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert said(client.ask(SaslAuthenticateRequest(auth_bytes=b"x"), 2)) == (
        "ILLEGAL_SASL_STATE",
        "SaslAuthenticate request received after successful authentication",
    )


@pytest.mark.parametrize("version", range(4))
def test_who_is_not_authenticated_gets_no_delegation_token(client: WireClient, version: int) -> None:
    refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    made = client.ask(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), version)
    assert (made.error_code, made.principal_type, made.principal_name) == (refused, "User", "ANONYMOUS")
    assert made.token_requester_principal_name == ("ANONYMOUS" if version == 3 else "")
    assert client.ask(DescribeDelegationTokenRequest(owners=None), version).error_code == refused
    for request in (RenewDelegationTokenRequest(hmac=b"x"), ExpireDelegationTokenRequest(hmac=b"x")):
        answered = client.ask(request, min(version, 2))
        assert (answered.error_code, answered.expiry_timestamp_ms) == (refused, -1)


def test_users_without_credentials_are_told_apart(client: WireClient, broker: InProcessBroker) -> None:
    stored = {"SCRAM-SHA-256": "salt=a,stored_key=b,server_key=c,iterations=4096", "SCRAM-SHA-512": "broken"}
    broker.run(
        lambda: broker.services.administration.config_admin.alter_entity_config(
            "users", "al%20ice", lambda _: {"SCRAM-SHA-256": stored["SCRAM-SHA-256"]}
        )
    )
    broker.run(lambda: broker.services.administration.config_admin.alter_entity_config("users", "bob", lambda _: stored))
    names = [UserName(name=name) for name in ("al ice", "nobody", ".", "", "twice", "twice")]
    response = client.ask(DescribeUserScramCredentialsRequest(users=names), 0)
    assert [(each.user, *said(each)) for each in response.results] == [
        ("al ice", "NONE", ""),
        ("nobody", "RESOURCE_NOT_FOUND", "Attempt to describe a user credential that does not exist: nobody"),
        (".", "RESOURCE_NOT_FOUND", "Attempt to describe a user credential that does not exist: ."),
        ("", "RESOURCE_NOT_FOUND", "Username must not be empty"),
        ("twice", "DUPLICATE_RESOURCE", "Cannot describe SCRAM credentials for the same user twice in a single request: twice"),
    ]
    assert [(each.mechanism, each.iterations) for each in response.results[0].credential_infos] == [(1, 4096)]
    everybody = client.ask(DescribeUserScramCredentialsRequest(users=None), 0)
    assert [(each.user, ErrorCode.of(each.error_code).name) for each in everybody.results] == [
        ("al ice", "NONE"),
        ("bob", "UNKNOWN_SERVER_ERROR"),
    ]


def quotas(client: WireClient, *components: ComponentData, strict: bool = False) -> Any:
    return client.ask(DescribeClientQuotasRequest(components=list(components), strict=strict), 1)


def test_stored_quotas_are_found_by_their_parts(client: WireClient, broker: InProcessBroker) -> None:
    admin = broker.services.administration.config_admin
    broker.run(lambda: admin.alter_entity_config("clients", "c%201", lambda _: {"producer_byte_rate": "1024"}))
    broker.run(lambda: admin.alter_entity_config("users", "<default>", lambda _: {"request_percentage": "50"}))
    broker.run(lambda: admin.alter_entity_config("users", "u/clients/c%201", lambda _: {"consumer_byte_rate": "7.5"}))
    broker.run(lambda: admin.alter_entity_config("ips", "10.0.0.1", lambda _: {"connection_creation_rate": "9"}))

    def entities(*components: ComponentData, strict: bool = False) -> list[dict[str, str | None]]:
        return [
            {each.entity_type: each.entity_name for each in found.entity} for found in quotas(client, *components, strict=strict).entries
        ]

    pair = {"user": "u", "client-id": "c 1"}
    assert sorted(map(str, entities())) == sorted(
        map(str, [{"ip": "10.0.0.1"}, {"user": None}, {"client-id": "c 1"}, {"user": "u", "client-id": "c 1"}])
    )
    exact = ComponentData(entity_type="client-id", match_type=0, match="c 1")
    assert entities(exact) == [{"client-id": "c 1"}, pair]
    assert entities(exact, strict=True) == [{"client-id": "c 1"}]
    assert entities(ComponentData(entity_type="user", match_type=1, match=None)) == [{"user": None}]
    assert entities(ComponentData(entity_type="user", match_type=2, match=None)) == [{"user": None}, pair]
    assert entities(strict=True) == []
    (entry,) = quotas(client, ComponentData(entity_type="ip", match_type=2, match=None)).entries
    assert [(each.key, each.value) for each in entry.values] == [("connection_creation_rate", 9.0)]


@pytest.mark.parametrize(
    ("kinds", "answer"),
    [
        (["foo"], ("UNSUPPORTED_VERSION", "Custom entity type 'foo' not supported")),
        ([""], ("INVALID_REQUEST", "Unexpected empty filter component entity type")),
        (["user", "user"], ("INVALID_REQUEST", "Duplicate user filter component entity type")),
        (["client-id", "client-id"], ("INVALID_REQUEST", "Duplicate client filter component entity type")),
    ],
)
def test_filters_of_quotas_that_cannot_be_are_refused(client: WireClient, kinds: list[str], answer: tuple[str, str]) -> None:
    response = quotas(client, *(ComponentData(entity_type=kind, match_type=2, match=None) for kind in kinds))
    assert said(response) == answer
    assert response.entries is None


def test_no_feature_can_be_finalized(client: WireClient) -> None:
    update = FeatureUpdateKey(feature="metadata.version", max_version_level=1)
    response = client.ask(UpdateFeaturesRequest(timeout_ms=1000, feature_updates=[update]), 1)
    assert said(response) == OK
    assert [(each.feature, *said(each)) for each in response.results] == [
        (
            "metadata.version",
            "INVALID_REQUEST",
            "Could not apply finalized feature update because the provided feature is not supported.",
        )
    ]
