"""States of a topic that has got more partitions since they were stored: they are found where they are, and by all who look for them."""

from __future__ import annotations

import pytest

from ottla.coordination.partitions.owned import OwnedPartition, OwnedStates, absolute_hash
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest, UpdateMetadataTopicState
from ottla.replication.ports.cluster import MetadataCache

TOPIC = "__consumer_offsets"
BEFORE, NOW = 2, 5
KEYS = [f"group-{number}" for number in range(40)]


class World:
    """A broker that counts NOW partitions since its start, and was configured for BEFORE."""

    def __init__(self, leads: range = range(NOW), configured: int = BEFORE) -> None:
        cluster = MetadataCache()
        self.owned: OwnedStates[str] = OwnedStates(TOPIC, cluster, configured)
        self.owned.is_active = True
        states = [UpdateMetadataPartitionState(partition_index=index, leader=0, isr=(0,), replicas=(0,)) for index in range(NOW)]
        topic = UpdateMetadataTopicState(topic_name=TOPIC, topic_id=b"1" * 16, partition_states=states)
        cluster.update(UpdateMetadataRequest(topic_states=[topic]))
        for index in leads:
            self.owned.partitions[index] = OwnedPartition(index, 0)

    def load(self, index: int, *keys: str) -> None:
        """The partition had states of these keys in its log."""
        owned = self.owned.partitions[index]
        for key in keys:
            owned.states[key] = f"state of {key}"
            self.owned.on_loaded(key, index)
        owned.end_loading()

    def load_all(self) -> None:
        """Each state from the partition in which it was before."""
        for index in self.owned.partitions:
            self.load(index, *(key for key in KEYS if absolute_hash(key) % BEFORE == index))


def displaced() -> str:
    """A key whose partition is new, while its state is in partition 0."""
    return next(key for key in KEYS if absolute_hash(key) % BEFORE == 0 and absolute_hash(key) % NOW == NOW - 1)


def test_all_states_are_found_and_listed_once() -> None:
    world = World()
    world.load_all()
    assert [world.owned.find(key) for key in KEYS] == [(ErrorCode.NONE, f"state of {key}") for key in KEYS]
    assert [world.owned.check(key) for key in KEYS] == [ErrorCode.NONE] * len(KEYS)
    assert sorted(world.owned) == sorted(f"state of {key}" for key in KEYS)


def test_their_records_go_where_they_are() -> None:
    world = World()
    world.load_all()
    assert [world.owned.partition_for(key) for key in KEYS] == [absolute_hash(key) % BEFORE for key in KEYS]
    assert world.owned.partition_for("new") == absolute_hash("new") % NOW


def test_a_key_is_not_unknown_while_a_partition_that_may_have_its_state_is_loaded() -> None:
    world = World()
    key = displaced()
    world.load(NOW - 1)
    assert world.owned.find(key) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None)
    assert world.owned.check(key) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.load_all()
    assert world.owned.find(key) == (ErrorCode.NONE, f"state of {key}")


def test_a_topic_that_has_not_grown_waits_for_the_partition_of_the_key_alone() -> None:
    world = World(configured=NOW)
    world.load(NOW - 1)
    assert world.owned.find(displaced()) == (ErrorCode.NONE, None)


def test_a_displaced_state_tells_that_the_topic_has_grown_although_as_many_partitions_are_configured() -> None:
    world = World(configured=NOW)
    key = displaced()
    world.load(NOW - 1)
    world.load(1, next(each for each in KEYS if absolute_hash(each) % BEFORE == 1 and absolute_hash(each) % NOW != 1))
    assert world.owned.find(key) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None)
    assert world.owned.check(key) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.load_all()
    assert world.owned.find(key) == (ErrorCode.NONE, f"state of {key}")


def test_a_state_in_the_partition_of_the_key_is_the_valid_one() -> None:
    world = World()
    world.load_all()
    key = displaced()
    world.owned.partitions[NOW - 1].states[key] = "newer"
    assert world.owned.find(key) == (ErrorCode.NONE, "newer")
    assert world.owned.partition_for(key) == NOW - 1
    assert sorted(world.owned) == sorted(["newer" if each == key else f"state of {each}" for each in KEYS])


def test_the_tombstone_of_a_deleted_state_goes_where_its_records_are() -> None:
    world = World()
    world.load_all()
    key = displaced()
    state = world.owned.get(key)
    assert state is not None
    assert world.owned.forget(key, state)
    assert world.owned.find(key) == (ErrorCode.NONE, None)
    assert world.owned.partition_for(key) == 0
    world.owned.add(key, "again")
    assert world.owned.partitions[0].states.get(key) == "again"


@pytest.mark.parametrize("lost", [0, NOW - 1])
def test_a_broker_that_leads_one_of_the_two_partitions_has_no_such_state(lost: int) -> None:
    world = World()
    world.load_all()
    del world.owned.partitions[lost]
    world.owned.on_unloaded(lost)
    key = displaced()
    assert world.owned.get(key) is None
    assert f"state of {key}" not in list(world.owned)
    assert world.owned.check(key) == (ErrorCode.NOT_COORDINATOR if lost else ErrorCode.NONE)
