"""Which number of partitions of an internal topic decides about coordinators, while the topic grows, ends and begins anew."""

from collections.abc import Iterable

import pytest

from broker.coordination.owned import OwnedStates
from protocol.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest, UpdateMetadataTopicState
from protocol.uuid import ZERO_UUID
from replication.ports.cluster import LEADER_DURING_DELETE, MetadataCache

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


def test_partitions_that_are_added_do_not_count_and_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    broker.hears(range(3))
    assert broker.count == 3
    for _ in range(2):
        broker.hears(range(5))
        assert broker.count == 3
    assert caplog.text.count(f"topic {TOPIC}: 2 partitions were added") == 1


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
