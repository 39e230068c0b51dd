"""Metadata asked of a broker that the controller has not told of the cluster yet."""

import asyncio

import pytest

from ottla.broker.cluster.missed_deletions import MissedDeletions
from ottla.broker.network.request_channel import CLOSE
from ottla.broker.request import first_metadata
from ottla.config.broker import BrokerConfig
from ottla.controller.store.memory_store import MemoryStore
from ottla.controller.znodes.layout import DELETE_TOPICS, TOPICS
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataTopicState
from ottla.protocol.topic_partition import TopicPartition
from tests.support.controlled_cluster import new_ensemble
from tests.support.handler_bench import Asking, HandlerBench, on_a_loop
from tests.support.pauses import at_once
from tests.support.replicas import TOPIC, TOPIC_ID, brokers, metadata, state


class Stage(HandlerBench):
    """A broker that has just started, with a replica on disk if it is `not_new`."""

    def __init__(self, *, not_new: bool) -> None:
        super().__init__()
        if not_new:
            self.replicas.logs.get_or_create(TopicPartition(TOPIC, 0), TOPIC_ID)
        self.replicas.cluster.brokers = {}
        self.services.cluster.first_metadata.has_no_topics = False

    def hear(self, *topics: UpdateMetadataTopicState) -> None:
        """The controller speaks."""
        request = UpdateMetadataRequest(controller_epoch=1, live_brokers=brokers(0, 1, 2), topic_states=list(topics))
        at_once(self.replicas.manager.on_update_metadata(request))
        self.services.administration.metadata_waits.notify()

    def missed_deletions(self, store: MemoryStore) -> MissedDeletions:
        """What looks for topics that were deleted while nobody could tell."""
        services = self.services
        return MissedDeletions(store, services.administration.metadata_waits, services.cluster.first_metadata, self.replicas.manager)

    def metadata(self) -> Asking:
        """Ask for the topic."""
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
        return self.ask(asked, ApiKey.METADATA, 8)


async def rest() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def over(asking: Asking) -> None:
    for _ in range(1000):
        if not asking.waits:
            return
        await asyncio.sleep(0)
    raise AssertionError("there is no answer")


def told(asking: Asking) -> tuple[list[int], list[tuple[ErrorCode, int]]]:
    """The brokers, and of each topic its error and how many partitions it has."""
    response = asking.response
    return sorted(each.node_id for each in response.brokers), [
        (ErrorCode.of(topic.error_code), len(topic.partitions)) for topic in response.topics
    ]


@on_a_loop
async def test_metadata_waits_until_brokers_and_topics_are_known() -> None:
    stage = Stage(not_new=True)
    asking = stage.metadata()
    await rest()
    assert asking.waits
    stage.hear()  # of a controller that takes over the first word names no partition
    await rest()
    assert asking.waits
    stage.hear(metadata(TOPIC, TOPIC_ID, p0=1))
    await rest()
    assert told(asking) == ([0, 1, 2], [(ErrorCode.NONE, 1)])
    assert told(stage.metadata()) == ([0, 1, 2], [(ErrorCode.NONE, 1)])


@on_a_loop
async def test_a_broker_without_replicas_waits_for_the_topics_of_others() -> None:
    stage = Stage(not_new=False)
    stage.hear()
    asking = stage.metadata()
    await rest()
    assert asking.waits
    stage.hear(metadata(TOPIC, TOPIC_ID, p0=1))
    await rest()
    assert told(asking) == ([0, 1, 2], [(ErrorCode.NONE, 1)])


@on_a_loop
async def test_nobody_waits_for_topics_where_there_are_none() -> None:
    stage = Stage(not_new=True)
    asking = stage.metadata()
    store = stage.services.administration.store = MemoryStore(new_ensemble())
    await store.open_session()
    await store.ensure_path(f"{TOPICS}/{TOPIC}")
    await store.ensure_path(f"{DELETE_TOPICS}/{TOPIC}")
    stage.hear()
    await rest()
    assert asking.waits
    missed = stage.missed_deletions(store)
    missed.on_other_controller()
    await rest()
    assert told(asking) == ([0, 1, 2], [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)])
    await missed.close()


@on_a_loop
async def test_topics_that_exist_are_waited_for() -> None:
    stage = Stage(not_new=False)
    store = stage.services.administration.store = MemoryStore(new_ensemble())
    await store.open_session()
    await store.ensure_path(f"{TOPICS}/{TOPIC}")
    await store.ensure_path(DELETE_TOPICS)
    stage.hear()
    asking = stage.metadata()
    missed = stage.missed_deletions(store)
    missed.on_other_controller()
    await rest()
    assert asking.waits
    await missed.close()


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_metadata, "WAIT_MS", 0)


@pytest.mark.usefixtures("no_patience")
def test_a_client_is_sent_away_from_a_broker_that_no_controller_speaks_to() -> None:
    @on_a_loop
    async def scenario() -> None:
        stage = Stage(not_new=True)
        asking = stage.metadata()
        await over(asking)
        assert asking.control is CLOSE
        stage.hear(metadata(TOPIC, TOPIC_ID, p0=1))
        assert told(stage.metadata()) == ([0, 1, 2], [(ErrorCode.NONE, 1)])

    scenario()


@pytest.mark.usefixtures("no_patience")
def test_a_client_is_sent_away_while_partitions_are_given_to_the_broker() -> None:
    @on_a_loop
    async def scenario() -> None:
        stage = Stage(not_new=True)
        stage.hear()
        stage.replicas.say(state())  # a controller that takes over names the topics after that
        asking = stage.metadata()
        await over(asking)
        assert asking.control is CLOSE
        stage.hear(metadata(TOPIC, TOPIC_ID, p0=0))
        assert told(stage.metadata()) == ([0, 1, 2], [(ErrorCode.NONE, 1)])

    scenario()


@pytest.mark.usefixtures("no_patience")
def test_replicas_of_deleted_topics_are_not_waited_for_twice() -> None:
    @on_a_loop
    async def scenario() -> None:
        stage = Stage(not_new=True)
        stage.hear()
        asking = stage.metadata()
        await over(asking)
        nothing = ([0, 1, 2], [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)])
        assert told(asking) == nothing
        assert told(stage.metadata()) == nothing

    scenario()


def test_nobody_waits_on_when_somebody_has_waited_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    @on_a_loop
    async def scenario() -> None:
        stage = Stage(not_new=True)
        stage.hear()
        patient = stage.metadata()
        await rest()
        monkeypatch.setattr(first_metadata, "WAIT_MS", 0)
        impatient = stage.metadata()
        await over(impatient)
        await over(patient)
        assert told(patient) == told(impatient)

    scenario()


@on_a_loop
async def test_who_describes_the_cluster_or_topics_waits_alike() -> None:
    stage = Stage(not_new=True)
    stage.services.config = BrokerConfig({})
    cluster = stage.ask(DescribeClusterRequest(), ApiKey.DESCRIBE_CLUSTER, 1)
    topics = stage.ask(
        DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)], response_partition_limit=10), ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0
    )
    await rest()
    assert cluster.waits
    assert topics.waits
    stage.hear(metadata(TOPIC, TOPIC_ID, p0=1))
    await rest()
    assert sorted(each.broker_id for each in cluster.response.brokers) == [0, 1, 2]
    assert [(each.error_code, len(each.partitions)) for each in topics.response.topics] == [(ErrorCode.NONE, 1)]


@on_a_loop
async def test_whoever_waits_is_in_nobodys_way() -> None:
    stage = Stage(not_new=True)
    asking = stage.metadata()
    await rest()
    assert asking.waits
    assert not asking.pending.occupies_slot
