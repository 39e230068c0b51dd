"""Which number of partitions of an internal topic decides about coordinators, while the topic grows, ends and begins anew."""

import asyncio
from collections.abc import Iterable

import pytest

from ottla.controller.admin.stored_topics import StoredCount
from ottla.controller.errors import StoreUnavailable
from ottla.coordination.partitions import stored_partitions
from ottla.coordination.partitions.owned import OwnedStates
from ottla.coordination.partitions.stored_partitions import StoredPartitions
from ottla.protocol.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest, UpdateMetadataTopicState
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.ports.cluster import LEADER_DURING_DELETE, MetadataCache
from tests.support.handler_bench import on_a_loop

TOPIC = "__consumer_offsets"
CONFIGURED = 50
FIRST_ID, NEXT_ID = b"1" * 16, b"2" * 16


class Broker:
    """The states of a broker, and the metadata that its controller sends."""

    def __init__(self) -> None:
        self.cluster = MetadataCache()
        self.owned: OwnedStates[str] = OwnedStates(TOPIC, self.cluster, CONFIGURED)

    def hears(self, indexes: Iterable[int], topic_id: bytes = FIRST_ID, leader: int = 0) -> None:
        """UpdateMetadata: partitions of the topic."""
        states = [UpdateMetadataPartitionState(partition_index=index, leader=leader, isr=(0,), replicas=(0,)) for index in indexes]
        topics = [UpdateMetadataTopicState(topic_name=TOPIC, topic_id=topic_id, partition_states=states)]
        self.cluster.update(UpdateMetadataRequest(topic_states=topics))

    @property
    def count(self) -> int:
        """The number that decides."""
        return self.owned.partition_count


def test_the_configured_number_counts_until_there_is_a_topic_and_after_its_end() -> None:
    broker = Broker()
    assert broker.count == CONFIGURED
    broker.hears(range(3))
    assert broker.count == 3
    broker.hears(range(3), leader=LEADER_DURING_DELETE)
    assert broker.count == CONFIGURED


@pytest.mark.parametrize("is_fixed", [False, True])
def test_partitions_that_are_added_do_not_count_and_are_reported_once(is_fixed: bool, caplog: pytest.LogCaptureFixture) -> None:
    @on_a_loop
    async def scenario() -> None:
        broker = Broker()
        store = Store(broker.owned, 3)
        await store.stored.read()
        broker.hears(range(3))
        assert broker.count == 3
        await rest()
        store.count, store.fixed = 5, 3 if is_fixed else 0
        for _ in range(2):
            broker.hears(range(5))
            assert broker.count == 3
            await rest()
        await store.stored.close()

    scenario()
    assert caplog.text.count(f"topic {TOPIC}: partitions were added") == 1
    assert ("hold no states" in caplog.text) is is_fixed


@pytest.mark.parametrize("reads_first", [False, True])
def test_a_fixed_number_counts_from_the_start_on_until_the_topic_ends(reads_first: bool, caplog: pytest.LogCaptureFixture) -> None:
    @on_a_loop
    async def scenario() -> None:
        broker = Broker()
        store = Store(broker.owned, 5)
        store.fixed = 3
        if reads_first:
            await store.stored.read()
            assert broker.count == 3
        broker.hears(range(5))
        assert broker.count == (3 if reads_first else 5)
        await rest()
        assert broker.count == 3
        store.count, store.fixed = 4, 0
        broker.hears(range(5), leader=LEADER_DURING_DELETE)
        broker.hears(range(4), NEXT_ID)
        assert broker.count == 4
        await rest()
        assert broker.count == 4
        await store.stored.close()

    scenario()
    assert caplog.text.count("hold no states: those are in the first 3") == 1


def test_partitions_that_never_had_a_leader_count() -> None:
    broker = Broker()
    broker.hears((0, 2, 4))
    assert broker.count == 5
    broker.hears(range(5))
    assert broker.count == 5


@pytest.mark.parametrize("partitions", [2, 5])
def test_a_topic_that_is_deleted_and_created_again_between_two_requests_has_its_own_number(partitions: int) -> None:
    broker = Broker()
    broker.hears(range(3))
    assert broker.count == 3
    broker.hears(range(3), leader=LEADER_DURING_DELETE)
    broker.hears(range(partitions), NEXT_ID)
    assert broker.count == partitions


def test_without_topic_ids_a_smaller_topic_is_another_one() -> None:
    broker = Broker()
    broker.hears(range(3), ZERO_UUID)
    assert broker.count == 3
    broker.hears(range(3), ZERO_UUID, leader=LEADER_DURING_DELETE)
    broker.hears(range(2), ZERO_UUID)
    assert broker.count == 2


def test_a_topic_that_gets_an_id_is_the_same_topic() -> None:
    broker = Broker()
    broker.hears(range(3), ZERO_UUID)
    assert broker.count == 3
    broker.hears(range(5), FIRST_ID)
    assert broker.count == 3


class Store:
    """What the metadata store has of the topic; it is away for the next `failures` questions."""

    def __init__(self, owned: OwnedStates[str], count: int) -> None:
        self.count = count
        self.fixed = 0
        self.failures = 0
        self.asked = 0
        self.stored = StoredPartitions(owned, self._count_of)

    async def _count_of(self, topic: str) -> StoredCount:
        assert topic == TOPIC
        self.asked += 1
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("zk:2181", "no answer")
        return StoredCount(self.fixed or self.count, bool(self.fixed))


async def rest() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@on_a_loop
async def test_the_stored_number_counts_before_there_are_metadata_and_while_the_last_partitions_never_had_a_leader() -> None:
    broker = Broker()
    store = Store(broker.owned, 4)
    await store.stored.read()
    assert broker.count == 4
    broker.hears(range(3))
    assert broker.count == 4
    broker.hears(range(4))
    assert broker.count == 4
    broker.hears(range(4), leader=LEADER_DURING_DELETE)
    assert broker.count == CONFIGURED
    await store.stored.close()


@on_a_loop
async def test_the_store_is_asked_about_a_topic_that_is_created_later() -> None:
    broker = Broker()
    store = Store(broker.owned, 0)
    await store.stored.read()
    assert broker.count == CONFIGURED
    store.count, store.failures = 4, 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_partitions, "RETRY_SECONDS", 0.0)
        broker.hears(range(3))
        assert broker.count == 3
        await rest()
    assert (broker.count, store.asked) == (4, 4)
    broker.hears(range(4))
    assert broker.count == 4
    await rest()
    assert store.asked == 4
    await store.stored.close()


@on_a_loop
async def test_a_topic_that_was_created_again_during_the_start_has_its_own_number() -> None:
    broker = Broker()
    store = Store(broker.owned, 5)
    await store.stored.read()
    store.count = 2
    broker.hears(range(2))
    assert broker.count == 5
    await rest()
    assert broker.count == 2
    await store.stored.close()
