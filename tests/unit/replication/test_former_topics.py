"""Without ZooKeeper a broker may still have replicas of a topic that was deleted, when it is to host another one of that name."""

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.control.controller_requests import EPOCH_DURING_DELETE, LeaderAndIsrAnswer, NamedState
from ottla.replication.control.former_topics import make_way
from ottla.replication.control.replica_manager import ReplicaManager
from ottla.replication.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from ottla.replication.leader.partition import Partition
from tests.support.pauses import at_once
from tests.support.replicas import TOPIC, TOPIC_ID, Replicas, brokers, metadata, state

T0 = TopicPartition(TOPIC, 0)
OTHER_ID = b"id of another..."


class Stage:
    """Broker 0 has three records of a topic that was deleted, and leads it if it is the same process still."""

    def __init__(self, *, is_same_process: bool) -> None:
        self.replicas = Replicas()
        self.replicas.say(state(epoch=7, isr=[0], replicas=[0]))
        self.replicas.append(3)
        self.former = self.replicas.partition
        self.removed: list[Partition] = []
        if not is_same_process:
            self.replicas.manager = ReplicaManager(0, self.replicas.logs, self.replicas.cluster, self.replicas.clock)
            self.replicas.alive(0, 1, 2)
        self.replicas.manager.frees_names = True

    def say(self, of_partition: LeaderAndIsrPartitionState, topic_id: bytes = OTHER_ID) -> int:
        with self.replicas.disks.background.hurried():
            return self.replicas.code_of(of_partition, topic_id=topic_id)

    def directories(self) -> list[str]:
        self.replicas.disks.settle()
        return sorted(name for name in self.replicas.disks.filesystem.list_directory("/data") if name.startswith(TOPIC))

    def update(self, topic_id: bytes) -> None:
        request = UpdateMetadataRequest(controller_epoch=1, live_brokers=brokers(0, 1), topic_states=[metadata(TOPIC, topic_id, p0=1)])
        at_once(self.replicas.manager.on_update_metadata(request))


@pytest.mark.parametrize("is_same_process", [False, True], ids=["restarted", "same process"])
@pytest.mark.parametrize("leader", [0, 1])
def test_the_new_topic_begins_with_an_empty_log_and_the_former_one_is_set_aside(leader: int, is_same_process: bool) -> None:
    stage = Stage(is_same_process=is_same_process)
    assert stage.say(state(leader, epoch=0)) == ErrorCode.NONE
    partition = stage.replicas.partition
    assert (partition.topic_id, partition.leader_epoch, partition.log.log_end_offset, partition.is_leader) == (OTHER_ID, 0, 0, leader == 0)
    kept, stray = stage.directories()
    assert kept == "orders-0"
    assert stray.endswith("-stray")
    files = stage.replicas.disks.filesystem
    assert files.read_file(f"/data/{stray}/00000000000000000000.log")
    assert not files.read_file("/data/orders-0/00000000000000000000.log")


def test_nothing_is_set_aside_for_the_same_topic_nor_for_one_without_an_id() -> None:
    for topic_id in (TOPIC_ID, ZERO_UUID):
        stage = Stage(is_same_process=False)
        assert stage.say(state(epoch=8), topic_id) == ErrorCode.NONE
        assert stage.replicas.partition.log is stage.former.log
        assert stage.directories() == ["orders-0"]


def test_an_earlier_request_that_is_still_applied_does_not_host_the_former_topic_again() -> None:
    stage = Stage(is_same_process=True)
    earlier = LeaderAndIsrAnswer()
    stage.replicas.manager.answers.append(earlier)
    assert stage.say(state()) == ErrorCode.NONE
    assert earlier.deleted == {T0}


def test_an_earlier_request_does_not_set_the_new_topic_aside_that_a_later_one_hosts() -> None:
    replicas = Replicas()
    replicas.manager.frees_names = True
    earlier, later = LeaderAndIsrAnswer(), LeaderAndIsrAnswer()
    replicas.manager.answers.append(earlier)  # it has not reached the partition, of which this broker has no log
    with replicas.disks.background.hurried():
        assert replicas.code_of(state(), topic_id=OTHER_ID) == ErrorCode.NONE
        replicas.manager.answers.append(later)
        at_once(make_way(replicas.manager, [NamedState(TOPIC, TOPIC_ID, state())], earlier))
    replicas.disks.settle()
    assert replicas.partition.topic_id == OTHER_ID
    assert replicas.logs.get(T0) is replicas.partition.log
    assert replicas.disks.filesystem.is_directory("/data/orders-0")
    assert earlier.deleted == {T0}
    assert not later.deleted


def test_a_request_does_not_end_what_a_later_one_does() -> None:
    stage = Stage(is_same_process=True)
    answer, later = LeaderAndIsrAnswer(), LeaderAndIsrAnswer()
    stage.replicas.manager.answers += [answer, later]
    with stage.replicas.disks.background.hurried():
        at_once(make_way(stage.replicas.manager, [NamedState(TOPIC, OTHER_ID, state())], answer))
    assert not later.deleted


def test_a_former_log_that_cannot_be_renamed_does_not_get_records_of_the_new_topic() -> None:
    stage = Stage(is_same_process=False)
    rename = stage.replicas.disks.filesystem.rename

    def refuse(former: str, new: str) -> None:
        if new.endswith("-stray"):
            raise OSError(5, "Input/output error", former)
        rename(former, new)

    stage.replicas.disks.filesystem.rename = refuse  # type: ignore[method-assign]  # as a disk that fails
    assert stage.say(state()) == ErrorCode.KAFKA_STORAGE_ERROR
    assert T0 not in {partition.topic_partition for partition in stage.replicas.manager}


def test_metadata_of_a_new_topic_on_other_brokers_end_the_former_one_here_and_keep_its_log() -> None:
    stage = Stage(is_same_process=True)
    stage.update(OTHER_ID)
    assert stage.replicas.manager.partition(*T0) is None
    assert stage.replicas.logs.get(T0) is stage.former.log


def test_with_zookeeper_metadata_of_another_topic_end_nothing_here() -> None:
    stage = Stage(is_same_process=True)
    stage.replicas.manager.frees_names = False
    stage.update(OTHER_ID)
    assert stage.replicas.manager.partition(*T0) is stage.former


class OfflineStage(Stage):
    """A log directory has failed, in which broker 0 has a replica of a topic that is or was deleted."""

    def __init__(self, *, frees_names: bool = True) -> None:
        self.replicas = Replicas(log_dirs="/failed,/data")
        self.replicas.manager.frees_names = frees_names
        self.replicas.say(state(epoch=7, isr=[0], replicas=[0]))
        self.replicas.append(3)
        assert self.replicas.partition.log.log_dir == "/failed"
        self.replicas.manager.on_log_dir_failure("/failed")
        self.replicas.disks.settle()
        assert self.replicas.manager.offline == {T0: TOPIC_ID}

    def delete(self) -> int:
        return self.replicas.stop(EPOCH_DURING_DELETE, delete=True).partition_errors[0].error_code


@pytest.mark.parametrize("is_told", [False, True], ids=["the deletion was not reported", "the deletion was reported"])
def test_a_new_topic_gets_a_log_in_a_directory_that_works(is_told: bool) -> None:
    stage = OfflineStage()
    if is_told:
        assert stage.delete() == ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(UnknownTopicOrPartition):
            stage.replicas.manager.partition_or_raise(*T0)
    assert stage.say(state(epoch=0, isr=[0], replicas=[0], is_new=True)) == ErrorCode.NONE
    assert stage.replicas.partition.log.directory == "/data/orders-0"
    assert (stage.replicas.partition.topic_id, stage.replicas.manager.offline) == (OTHER_ID, {})


def test_a_replica_of_the_same_topic_stays_offline() -> None:
    stage = OfflineStage()
    assert stage.say(state(epoch=8, isr=[0], replicas=[0], is_new=True), TOPIC_ID) == ErrorCode.KAFKA_STORAGE_ERROR
    stage.update(TOPIC_ID)
    assert stage.replicas.manager.offline == {T0: TOPIC_ID}


def test_a_replica_that_was_moved_to_other_brokers_stays_offline_because_its_topic_may_come_back() -> None:
    stage = OfflineStage()
    assert stage.replicas.stop(8, delete=True).partition_errors[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert stage.replicas.manager.offline == {T0: TOPIC_ID}


def test_metadata_of_a_new_topic_on_other_brokers_end_an_offline_replica_of_the_former_one() -> None:
    stage = OfflineStage()
    stage.update(OTHER_ID)
    with pytest.raises(NotLeaderOrFollower):
        stage.replicas.manager.partition_or_raise(*T0)


def test_a_topic_that_was_forgotten_has_no_offline_replicas() -> None:
    stage = OfflineStage()
    stage.update(TOPIC_ID)
    manager = stage.replicas.manager
    assert at_once(manager.forget_topics(list(manager.cluster.topics.values())))
    assert manager.offline == {}


def test_with_zookeeper_a_deletion_leaves_the_replica_offline() -> None:
    stage = OfflineStage(frees_names=False)
    assert stage.delete() == ErrorCode.KAFKA_STORAGE_ERROR
    stage.update(OTHER_ID)
    assert stage.replicas.manager.offline == {T0: TOPIC_ID}
