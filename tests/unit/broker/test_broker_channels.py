"""How a controller speaks to brokers of every inter.broker.protocol.version, and to itself."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import cast

import pytest

from ottla.broker.cluster.broker_channels import BrokerChannels, ControlVersions, control_versions
from ottla.controller.state.channels import BrokerChannel, InProcessChannel
from ottla.controller.state.context import LiveBroker
from ottla.controller.znodes.layout import BrokerRegistration, Endpoint
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from ottla.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from ottla.protocol.schema.message import Message
from ottla.replication.ports.peer import PeerAddress, PeerUnavailable
from tests.support.controlled_cluster import RecordingBroker
from tests.support.fake_peers import Asked, FakePeers

OLD = [("0.8.2", 0, 0, 0), ("0.9.0", 0, 1, 0), ("0.10.0", 0, 2, 0), ("0.10.2", 0, 3, 0), ("1.0", 1, 4, 0), ("2.2", 2, 5, 1)]
NEW = [("2.4-IV0", 3, 5, 1), ("2.4", 4, 6, 2), ("2.6", 4, 6, 3), ("2.8-IV1", 5, 7, 3), ("3.2", 6, 7, 3), ("3.4", 7, 8, 4), ("3.9", 7, 8, 4)]
VERSIONS = [(name, ControlVersions(*versions)) for name, *versions in OLD + NEW]
TOPIC_ID = b"t" * 16


def test_apache_kafka_was_seen_to_choose_the_same_versions() -> None:
    frames = Path("tests/golden/wire/interbroker.jsonl").read_text().splitlines()
    seen = {(each["api_key"], each["version"]) for each in map(json.loads, frames) if each["client"] == "controller"}
    chosen = control_versions("3.9-IV0")
    assert seen == {
        (ApiKey.LEADER_AND_ISR, chosen.leader_and_isr),
        (ApiKey.UPDATE_METADATA, chosen.update_metadata),
        (ApiKey.STOP_REPLICA, chosen.stop_replica),
    }


@pytest.mark.parametrize(("name", "versions"), VERSIONS)
def test_the_protocol_version_selects_the_versions(name: str, versions: ControlVersions) -> None:
    assert control_versions(name) == versions


def a_broker(broker_id: int, epoch: int, *endpoints: Endpoint) -> LiveBroker:
    return LiveBroker(broker_id, BrokerRegistration(endpoints=endpoints, rack=None, timestamp_ms=0), epoch)


def channels(peers: FakePeers, versions: ControlVersions | None = None) -> BrokerChannels:
    chosen = versions or control_versions("3.9")
    return BrokerChannels(0, lambda: 25, RecordingBroker(), peers, "INTERNAL", chosen, 30_000)


def to_broker_1(peers: FakePeers, versions: ControlVersions | None = None) -> BrokerChannel:
    endpoints = (Endpoint("EXTERNAL", "SSL", "other", 1), Endpoint("INTERNAL", "PLAINTEXT", "host", 9))
    return channels(peers, versions)(a_broker(1, 47, *endpoints))


def no_answer(asked: Asked) -> Message:
    raise PeerUnavailable("gone")


def test_only_this_life_of_this_broker_is_called_in_the_process() -> None:
    make = channels(FakePeers(no_answer))
    assert isinstance(make(a_broker(0, 25)), InProcessChannel)
    assert not isinstance(make(a_broker(0, 24)), InProcessChannel)
    assert not isinstance(make(a_broker(1, 25)), InProcessChannel)


def test_a_broker_is_asked_at_its_endpoint_for_brokers_in_the_name_of_the_controller() -> None:
    peers = FakePeers(lambda asked: UpdateMetadataResponse())
    asyncio.run(to_broker_1(peers).send(UpdateMetadataRequest()))
    (asked,) = peers.asked
    assert (asked.address, asked.client_id) == (PeerAddress("host", 9), "0")
    assert not peers.made[0].negotiate


def test_a_broker_without_such_an_endpoint_cannot_be_delivered_to() -> None:
    channel = channels(FakePeers(no_answer))(a_broker(1, 47, Endpoint("EXTERNAL", "PLAINTEXT", "other", 1)))
    with pytest.raises(ConnectionError, match="not known"):
        asyncio.run(channel.send(UpdateMetadataRequest()))


def test_what_could_not_be_delivered_is_a_lost_connection_and_may_be_sent_again() -> None:
    peers = FakePeers(no_answer)
    channel = to_broker_1(peers)

    async def send() -> None:
        for _ in range(3):
            with pytest.raises(ConnectionError):
                await channel.send(StopReplicaRequest(topic_states=stopped()))
        await channel.close()

    asyncio.run(send())
    assert (len(peers.made), peers.open) == (1, 0)


@pytest.mark.parametrize(("name", "versions"), VERSIONS)
def test_leader_and_isr_says_the_same_in_every_version(name: str, versions: ControlVersions) -> None:
    def answer(asked: Asked) -> Message:
        error = LeaderAndIsrPartitionError(topic_name="t", partition_index=0, error_code=56)
        response = LeaderAndIsrResponse()
        if asked.version >= 5:
            from ottla.protocol.messages.leader_and_isr import LeaderAndIsrTopicError

            response.topics = [LeaderAndIsrTopicError(topic_id=TOPIC_ID, partition_errors=[error])]
        else:
            response.partition_errors = [error]
        return response

    peers = FakePeers(answer)
    state = LeaderAndIsrPartitionState(
        topic_name="t", partition_index=0, leader=1, leader_epoch=4, isr=(1,), replicas=(1, 2), is_new=True, leader_recovery_state=1
    )
    request = LeaderAndIsrRequest(
        controller_id=0,
        controller_epoch=3,
        broker_epoch=47,
        topic_states=[LeaderAndIsrTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[state])],
        live_leaders=[LeaderAndIsrLiveLeader(broker_id=1, host_name="host", port=9)],
    )
    response = asyncio.run(to_broker_1(peers, versions).send(request))
    asked = cast("LeaderAndIsrRequest", peers.asked[0].message)
    assert peers.asked[0].version == versions.leader_and_isr
    states = asked.ungrouped_partition_states + [state for topic in asked.topic_states for state in topic.partition_states]
    assert [(each.leader, each.leader_epoch, each.isr, each.replicas) for each in states] == [(1, 4, (1,), (1, 2))]
    assert (asked.controller_epoch, asked.live_leaders[0].host_name) == (3, "host")
    assert states[0].leader_recovery_state == (1 if versions.leader_and_isr >= 6 else 0)
    assert asked.broker_epoch == (47 if versions.leader_and_isr >= 2 else -1)
    assert [(topic.topic_id, [each.error_code for each in topic.partition_errors]) for topic in response.topics] == [(TOPIC_ID, [56])]


@pytest.mark.parametrize(("name", "versions"), VERSIONS)
def test_update_metadata_says_the_same_in_every_version(name: str, versions: ControlVersions) -> None:
    peers = FakePeers(lambda asked: UpdateMetadataResponse())
    state = UpdateMetadataPartitionState(topic_name="t", partition_index=5, leader=1, leader_epoch=4, isr=(1,), replicas=(1, 2))
    endpoints = [
        UpdateMetadataEndpoint(port=1, host="other", listener="EXTERNAL", security_protocol=1),
        UpdateMetadataEndpoint(port=9, host="host", listener="INTERNAL", security_protocol=0),
    ]
    request = UpdateMetadataRequest(
        controller_epoch=3,
        topic_states=[UpdateMetadataTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[state])],
        live_brokers=[UpdateMetadataBroker(id=1, endpoints=endpoints, rack="r")],
    )
    asyncio.run(to_broker_1(peers, versions).send(request))
    asked = cast("UpdateMetadataRequest", peers.asked[0].message)
    assert peers.asked[0].version == versions.update_metadata
    states = asked.ungrouped_partition_states + [state for topic in asked.topic_states for state in topic.partition_states]
    assert [(each.partition_index, each.leader, each.isr) for each in states] == [(5, 1, (1,))]
    (broker,) = asked.live_brokers
    if versions.update_metadata == 0:
        assert (broker.v0_host, broker.v0_port) == ("host", 9)
    else:
        assert [(each.host, each.port) for each in broker.endpoints] == [("other", 1), ("host", 9)]


def stopped() -> list[StopReplicaTopicState]:
    def partition(index: int, *, delete: bool) -> StopReplicaPartitionState:
        return StopReplicaPartitionState(partition_index=index, leader_epoch=4, delete_partition=delete)

    return [
        StopReplicaTopicState(topic_name="t", partition_states=[partition(0, delete=True), partition(1, delete=False)]),
        StopReplicaTopicState(topic_name="u", partition_states=[partition(2, delete=True)]),
    ]


@pytest.mark.parametrize(("name", "versions"), VERSIONS)
def test_stop_replica_says_the_same_in_every_version(name: str, versions: ControlVersions) -> None:
    def told(message: Message) -> list[tuple[str, int, bool]]:
        request = cast("StopReplicaRequest", message)
        states = [(t.topic_name, p.partition_index, p.delete_partition) for t in request.topic_states for p in t.partition_states]
        grouped = [(topic.name, index, request.delete_partitions) for topic in request.topics for index in topic.partition_indexes]
        alone = [(each.topic_name, each.partition_index, request.delete_partitions) for each in request.ungrouped_partitions]
        return states + grouped + alone

    def answer(asked: Asked) -> Message:
        errors = [StopReplicaPartitionError(topic_name=topic, partition_index=index) for topic, index, _ in told(asked.message)]
        return StopReplicaResponse(partition_errors=errors)

    peers = FakePeers(answer)
    response = asyncio.run(to_broker_1(peers, versions).send(StopReplicaRequest(topic_states=stopped())))
    assert {each.version for each in peers.asked} == {versions.stop_replica}
    everything = [each for asked in peers.asked for each in told(asked.message)]
    assert sorted(everything) == [("t", 0, True), ("t", 1, False), ("u", 2, True)]
    assert len(peers.asked) == (1 if versions.stop_replica >= 3 else 2)
    assert len(response.partition_errors) == 3


def test_a_refused_stop_is_not_followed_by_a_deletion() -> None:
    peers = FakePeers(lambda asked: StopReplicaResponse(error_code=11))
    response = asyncio.run(to_broker_1(peers, control_versions("2.4")).send(StopReplicaRequest(topic_states=stopped())))
    assert (response.error_code, len(peers.asked)) == (11, 1)
