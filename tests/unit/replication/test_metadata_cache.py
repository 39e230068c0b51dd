"""What UpdateMetadata changes in the broker's picture of the cluster, in every version of the request."""

import pytest

from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.ports.cluster import LEADER_DURING_DELETE, EndPoint, MetadataCache
from tests.support.replicas import brokers, metadata

OLD, NEW = b"the first topic.", b"the second topic"


def updated(cache: MetadataCache, *topics: UpdateMetadataTopicState) -> list[TopicPartition]:
    return cache.update(UpdateMetadataRequest(controller_id=0, controller_epoch=1, live_brokers=brokers(0, 1), topic_states=list(topics)))


def ungrouped(topic: str, partition: int, leader: int) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(topic_name=topic, partition_index=partition, leader=leader, leader_epoch=0)


def test_brokers_are_replaced_and_topics_are_added_to() -> None:
    cache = MetadataCache()
    updated(cache, metadata("a", OLD, p0=0))
    updated(cache, metadata("a", OLD, p1=1), metadata("b", NEW, p0=1))
    cache.update(UpdateMetadataRequest(controller_id=0, controller_epoch=1, live_brokers=brokers(1)))
    assert set(cache.brokers) == {1}
    assert {name: sorted(image.partitions) for name, image in cache.topics.items()} == {"a": [0, 1], "b": [0]}
    assert cache.names_by_id == {OLD: "a", NEW: "b"}


def test_who_leads_is_known_or_minus_one() -> None:
    cache = MetadataCache()
    updated(cache, metadata("a", OLD, p0=1))
    assert cache.leader_of("a", 0) == (1, 3)
    assert cache.leader_of("a", 1) == cache.leader_of("b", 0) == (-1, -1)
    assert cache.topic_id("a") == OLD
    assert cache.topic_id("b") == ZERO_UUID


def test_an_end_point_is_found_by_its_listener() -> None:
    cache = MetadataCache()
    updated(cache)
    assert cache.endpoint(1, "PLAINTEXT") == EndPoint("host", 9091, "PLAINTEXT", 0)
    assert cache.endpoint(1, "OTHER") is cache.endpoint(7, "PLAINTEXT") is None


def test_a_deleted_topic_is_gone_when_its_last_partition_is() -> None:
    cache = MetadataCache()
    updated(cache, metadata("a", OLD, p0=0, p1=0))
    assert updated(cache, metadata("a", OLD, p0=LEADER_DURING_DELETE)) == [TopicPartition("a", 0)]
    assert sorted(cache.topics["a"].partitions) == [1]
    assert updated(cache, metadata("a", OLD, p1=LEADER_DURING_DELETE)) == [TopicPartition("a", 1)]
    assert cache.topics == cache.names_by_id == {}


def test_a_partition_that_was_never_known_here_counts_as_deleted_too() -> None:
    cache = MetadataCache()
    assert updated(cache, metadata("a", OLD, p0=LEADER_DURING_DELETE)) == [TopicPartition("a", 0)]
    assert cache.topics == {}


def test_a_partition_that_comes_back_in_the_same_request_is_not_deleted() -> None:
    cache = MetadataCache()
    gone = metadata("a", OLD, p0=LEADER_DURING_DELETE)
    assert updated(cache, gone, metadata("a", OLD, p0=1)) == []
    assert cache.leader_of("a", 0)[0] == 1


def test_a_topic_created_again_keeps_nothing_of_the_old_one() -> None:
    cache = MetadataCache()
    updated(cache, metadata("a", OLD, p0=0, p1=0))
    updated(cache, metadata("a", NEW, p0=1))
    assert sorted(cache.topics["a"].partitions) == [0]
    assert cache.names_by_id == {NEW: "a"}


def test_a_topic_that_is_given_an_id_keeps_its_partitions() -> None:
    cache = MetadataCache()
    updated(cache, metadata("a", ZERO_UUID, p0=0, p1=0))
    assert cache.names_by_id == {}
    updated(cache, metadata("a", OLD, p0=0))
    assert sorted(cache.topics["a"].partitions) == [0, 1]
    assert cache.names_by_id == {OLD: "a"}


def test_a_controller_that_takes_the_id_back_is_obeyed() -> None:
    cache = MetadataCache()
    updated(cache, metadata("a", OLD, p0=0))
    updated(cache, metadata("a", ZERO_UUID, p0=1))
    assert cache.topic_id("a") == ZERO_UUID
    assert cache.names_by_id == {}


def test_an_old_request_that_knows_no_topic_ids_leaves_them() -> None:
    cache = MetadataCache()
    updated(cache, metadata("a", OLD, p0=0))
    cache.update(
        UpdateMetadataRequest(
            controller_id=0,
            controller_epoch=1,
            live_brokers=brokers(0),
            ungrouped_partition_states=[ungrouped("a", 1, 0), ungrouped("b", 0, 0)],
        )
    )
    assert cache.topic_id("a") == OLD
    assert cache.names_by_id == {OLD: "a"}
    assert sorted(cache.topics["a"].partitions) == [0, 1]
    assert sorted(cache.topics["b"].partitions) == [0]


def test_readers_of_a_topic_keep_the_picture_they_have() -> None:
    cache = MetadataCache()
    updated(cache, metadata("a", OLD, p0=0))
    before = cache.topics["a"].partitions
    updated(cache, metadata("a", OLD, p0=1, p1=1))
    assert list(before) == [0]
    assert before[0].leader == 0


def test_a_controller_without_an_id_is_none() -> None:
    cache = MetadataCache()
    cache.update(UpdateMetadataRequest(controller_id=-5, controller_epoch=1))
    assert cache.controller_id == -1


@pytest.mark.parametrize("version", range(9))
def test_every_version_says_where_a_broker_is(version: int) -> None:
    endpoint = UpdateMetadataEndpoint(port=9094, host="host", listener="INTERNAL", security_protocol=3)
    broker = UpdateMetadataBroker(id=4, v0_host="old", v0_port=9092, endpoints=[endpoint], rack="r")
    sent = UpdateMetadataRequest(controller_id=0, controller_epoch=1, live_brokers=[broker])
    request, _ = UpdateMetadataRequest.decode(memoryview(bytearray(sent.encode(version))), version, 0)
    cache = MetadataCache()
    cache.update(request)
    expected = {
        0: {"PLAINTEXT": EndPoint("old", 9092, "PLAINTEXT", 0)},
        1: {"SASL_SSL": EndPoint("host", 9094, "SASL_SSL", 3)},
        2: {"SASL_SSL": EndPoint("host", 9094, "SASL_SSL", 3)},
    }
    assert cache.brokers[4].endpoints == expected.get(version, {"INTERNAL": EndPoint("host", 9094, "INTERNAL", 3)})
    assert cache.brokers[4].rack == ("r" if version >= 2 else "")
