"""A directory of many logs that fails."""

from collections.abc import Iterator

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.errors import ReplicaStorageFailure
from ottla.storage.log.partition_log import PartitionLog
from tests.support.batches import a_batch
from tests.support.log_manager import a_future_log
from tests.support.logs import append
from tests.support.pauses import turns_by_hand
from tests.support.replicas import TOPIC, TOPIC_ID, Replicas, state

PARTITIONS = 7


@pytest.fixture(autouse=True)
def _every_pause_waits() -> Iterator[None]:
    with turns_by_hand():
        yield


def a_broker() -> tuple[Replicas, list[str]]:
    replicas = Replicas(log_dirs="/failing,/other")
    replicas.say(*[state(leader=0, index=index) for index in range(2 * PARTITIONS)])
    told: list[str] = []
    replicas.manager.on_replicas_offline = lambda: told.append("controller")
    return replicas, told


def here(replicas: Replicas, log_dir: str) -> int:
    return sum(partition.log.log_dir == log_dir for partition in replicas.manager)


def test_its_partitions_are_gone_at_once_who_waits_for_them_learns_it_in_turns_and_then_the_controller() -> None:
    replicas, told = a_broker()
    logs = [log for log in replicas.logs.all_logs() if log.log_dir == "/failing"]
    learned: list[int] = []
    replicas.manager.leadership_listeners.append(lambda partition: learned.append(partition.topic_partition.partition))
    replicas.manager.on_log_dir_failure("/failing")
    assert here(replicas, "/failing") == 0
    assert here(replicas, "/other") == PARTITIONS
    assert len(learned) == 1
    assert not told
    replicas.disks.settle()
    assert len(set(learned)) == len(learned) == PARTITIONS
    assert told == ["controller"]
    assert replicas.logs.offline_log_dirs == ["/failing"]
    assert all(log.is_closed for log in logs)


def test_a_broker_that_stops_meanwhile_leaves_the_logs_to_the_thread_that_closes_them() -> None:
    replicas, told = a_broker()
    replicas.manager.on_log_dir_failure("/failing")
    replicas.disks.background.is_closed = True
    replicas.disks.settle()
    assert len([log for log in replicas.logs.all_logs() if log.log_dir == "/failing"]) == PARTITIONS
    assert not told


def test_the_controller_hears_at_once_that_any_of_them_is_offline() -> None:
    replicas, _ = a_broker()
    failing = [partition.topic_partition.partition for partition in replicas.manager if partition.log.log_dir == "/failing"]
    replicas.manager.on_log_dir_failure("/failing")
    for index in failing:
        assert replicas.code_of(state(leader=0, epoch=1, partition_epoch=1, index=index)) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_failure_that_is_told_again_meanwhile_does_no_harm() -> None:
    replicas, told = a_broker()
    for _ in range(3):
        replicas.manager.on_log_dir_failure("/failing")
    replicas.disks.settle()
    assert here(replicas, "/failing") == 0
    assert told == ["controller"]
    with pytest.raises(ReplicaStorageFailure):
        for index in range(2 * PARTITIONS):
            replicas.manager.partition_or_raise(TOPIC, index)


def test_a_directory_without_partitions_fails_at_once() -> None:
    replicas = Replicas(log_dirs="/failing,/other")
    replicas.manager.on_log_dir_failure("/failing")
    assert replicas.logs.offline_log_dirs == ["/failing"]
    assert replicas.logs.get_or_create(TopicPartition(TOPIC, 0), is_new=True).log_dir == "/other"


def test_a_partition_that_is_named_meanwhile_goes_offline_too() -> None:
    """After a start its log is there, and the controller names it only now."""
    replicas, told = a_broker()
    late = 2 * PARTITIONS
    log = replicas.logs.get_or_create(TopicPartition(TOPIC, late), TOPIC_ID, is_new=True, log_dir="/failing")
    replicas.manager.on_log_dir_failure("/failing")
    replicas.say(state(leader=0, index=late))
    assert replicas.manager.partition(TOPIC, late) is not None
    replicas.disks.settle()
    assert here(replicas, "/failing") == 0
    assert log.is_closed
    assert told == ["controller"]
    assert replicas.code_of(state(leader=0, epoch=1, partition_epoch=1, index=late)) == ErrorCode.KAFKA_STORAGE_ERROR


def a_move(replicas: Replicas, source: str, target: str) -> PartitionLog:
    """The log of a leader in `source`. All of it is in `target`, and the move only waits for the thread that flushes it there."""
    log = next(partition.log for partition in replicas.manager if partition.log.log_dir == source)
    append(log, a_batch(3))
    log.flush()
    a_future_log(replicas.logs, log, target)
    replicas.logs.moves.start(log.topic_partition)
    assert "alter-log-dirs" in [name for name, _, _ in replicas.disks.background.work]
    return log


@pytest.mark.parametrize("is_named_again", [False, True])
def test_a_move_to_it_does_not_end_while_its_partitions_are_taken_offline(is_named_again: bool) -> None:
    replicas, told = a_broker()
    log = a_move(replicas, "/other", "/failing")
    replicas.manager.on_log_dir_failure("/failing")
    if is_named_again:
        replicas.say(state(leader=0, epoch=1, partition_epoch=1, index=log.topic_partition.partition))
    replicas.disks.settle()
    assert told == ["controller"]
    partition = replicas.manager.partition(*log.topic_partition)
    assert partition is not None
    assert partition.log is log
    assert log.directory == f"/other/{log.topic_partition}"
    assert not log.is_closed
    assert replicas.logs.get(log.topic_partition, future=True) is None
    assert log.topic_partition not in replicas.logs.moves


def test_a_move_from_it_does_not_end_while_its_partitions_are_taken_offline() -> None:
    """The controller has elected other leaders by then. The next start finds both logs as they were."""
    replicas, told = a_broker()
    log = a_move(replicas, "/failing", "/other")
    replicas.manager.on_log_dir_failure("/failing")
    replicas.disks.settle()
    assert told == ["controller"]
    assert log.topic_partition in replicas.manager.offline
    assert replicas.logs.get(log.topic_partition) is None
    assert log.topic_partition not in replicas.logs.moves
    assert replicas.disks.filesystem.is_directory(f"/failing/{log.topic_partition}")
