"""What stands in the znodes while inter.broker.protocol.version is that of an old release: nothing that its brokers cannot read.

The bodies are those that Apache Kafka 3.9.1 writes with the same version.
"""

import asyncio

import pytest

from ottla.controller.admin.topic_admin import NewTopic
from ottla.controller.registration import registration_version
from ottla.controller.znodes.layout import (
    BrokerRegistration,
    Endpoint,
    decode_broker,
    encode_broker,
    encode_partition_state,
    partition_state_path,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID
from tests.support.controlled_cluster import BrokerUnderTest, Cluster


async def a_broker(cluster: Cluster, version: str, broker_id: int = 0) -> BrokerUnderTest:
    properties = {"inter.broker.protocol.version": version}
    broker = cluster.brokers[broker_id] = BrokerUnderTest(cluster.ensemble, broker_id, peers=cluster.peers, properties=properties)
    await broker.start()
    await cluster.settle()
    return broker


async def a_topic(cluster: Cluster, broker: BrokerUnderTest, name: str) -> None:
    await broker.topics.create_topics([NewTopic(name, assignments={0: [0], 1: [0]})], timeout_ms=0)
    await cluster.settle()
    assert cluster.state(TopicPartition(name, 0)).leader == 0


def data(cluster: Cluster, path: str) -> bytes | None:
    return cluster.ensemble.dump()[path].data


def test_before_2_8_topics_get_no_ids_and_work_all_the_same() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        broker = await a_broker(cluster, "2.7")
        await a_topic(cluster, broker, "a")
        assert data(cluster, "/brokers/topics/a") == (
            b'{"partitions":{"0":[0],"1":[0]},"adding_replicas":{},"removing_replicas":{},"version":3}'
        )
        told = [request for request in cluster.peers[0].requests if isinstance(request, LeaderAndIsrRequest)]
        assert {topic.topic_id for request in told for topic in request.topic_states} == {ZERO_UUID}
        await broker.stop()

    asyncio.run(scenario())


def test_ids_come_with_2_8_and_are_kept_when_it_is_taken_back() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        seen = []
        for version in ("2.7", "2.8", "2.7"):
            broker = await a_broker(cluster, version)
            if not seen:
                await a_topic(cluster, broker, "a")
            seen.append(data(cluster, "/brokers/topics/a") or b"")
            await broker.stop()
        without, with_id, taken_back = seen
        assert b"topic_id" not in without
        assert b'"topic_id":"' in with_id
        assert taken_back == with_id

    asyncio.run(scenario())


def test_a_log_directory_that_failed_is_heard_of_without_topic_ids() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        broker = await a_broker(cluster, "2.7")
        await a_topic(cluster, broker, "a")
        cluster.peers[0].error_of = lambda partition: ErrorCode.KAFKA_STORAGE_ERROR if partition.partition == 1 else ErrorCode.NONE
        await broker.store.create("/log_dir_event_notification/log_dir_event_", b'{"version":1,"broker":0,"event":1}', sequential=True)
        await cluster.settle()
        assert cluster.state(TopicPartition("a", 1)).leader == -1
        assert cluster.state(TopicPartition("a", 0)).leader == 0
        await broker.stop()

    asyncio.run(scenario())


def test_before_2_7_an_isr_that_a_leader_wrote_itself_counts_though_it_died_before_it_told_anybody() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        for broker_id in range(3):
            await a_broker(cluster, "2.6", broker_id)
        await cluster.topic([1, 2], [1, 2])
        await cluster.kill(2)
        await a_broker(cluster, "2.6", 2)
        follower_is_back, other = TopicPartition("t", 0), TopicPartition("t", 1)
        assert cluster.state(follower_is_back).isr == cluster.state(other).isr == (1,)
        state = cluster.state(follower_is_back)._replace(isr=(1, 2))
        await cluster.brokers[1].store.set(partition_state_path(follower_is_back), encode_partition_state(state))
        await cluster.kill(1)
        await cluster.settle()
        assert (cluster.state(follower_is_back).leader, cluster.state(follower_is_back).isr) == (2, (2,))
        assert (cluster.state(other).leader, cluster.state(other).isr) == (-1, (1,))
        for broker in cluster.brokers.values():
            await broker.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.6", b'{"features":{},"version":1,"status":0}'),
        ("2.7", b'{"features":{},"version":1,"status":1}'),
        ("3.2", b'{"features":{},"version":1,"status":1}'),
        ("3.9", b'{"features":{},"version":2,"status":1}'),
    ],
)
def test_features_are_as_new_as_the_protocol(version: str, expected: bytes) -> None:
    async def scenario() -> None:
        cluster = Cluster()
        broker = await a_broker(cluster, version)
        assert data(cluster, "/feature") == expected
        await broker.stop()
        again = await a_broker(cluster, "3.9")
        assert data(cluster, "/feature") == b'{"features":{},"version":2,"status":1}'
        await again.stop()

    asyncio.run(scenario())


def test_a_broker_registers_in_a_form_that_old_brokers_read() -> None:
    assert [registration_version(version) for version in ("0.9.0", "0.10.0", "2.6", "2.7", "3.9")] == [2, 4, 4, 5, 5]
    of_2_6 = BrokerRegistration((Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 23100),), "r0", 1795248603781, version=4)
    data = encode_broker(of_2_6)
    assert data == (
        b'{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://127.0.0.1:23100"],"rack":"r0",'
        b'"jmx_port":-1,"port":23100,"host":"127.0.0.1","version":4,"timestamp":"1795248603781"}'
    )
    assert decode_broker("/brokers/ids/0", data).endpoints == of_2_6.endpoints
