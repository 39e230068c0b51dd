"""What the controller's requests do to the replicas of a broker, and what a failed disk does."""

import asyncio
import logging

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from ottla.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.control.controller_requests import EPOCH_DURING_DELETE, NO_EPOCH
from ottla.replication.control.replica_manager import ReplicaManager
from ottla.replication.errors import NotLeaderOrFollower, ReplicaStorageFailure, UnknownTopicOrPartition
from ottla.replication.leader.partition import Partition
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.golden_frames import GoldenFrame, golden_frames
from tests.support.pauses import at_once
from tests.support.replicas import TOPIC, TOPIC_ID, Asked, Replicas, brokers, metadata, state

T0 = TopicPartition(TOPIC, 0)


# -- lookup ------------------------------------------------------------------------------------------------------------


def test_a_partition_is_unknown_or_elsewhere_or_here() -> None:
    replicas = Replicas()
    with pytest.raises(UnknownTopicOrPartition):
        replicas.manager.partition_or_raise(TOPIC, 0)
    at_once(
        replicas.manager.on_update_metadata(
            UpdateMetadataRequest(controller_epoch=1, live_brokers=brokers(0, 1), topic_states=[metadata(TOPIC, TOPIC_ID, p0=1)])
        )
    )
    with pytest.raises(NotLeaderOrFollower) as elsewhere:
        replicas.manager.partition_or_raise(TOPIC, 0)
    assert elsewhere.value.leader_id == 1
    replicas.say(state(isr=[0], replicas=[0]))
    assert replicas.manager.partition_or_raise(TOPIC, 0) is replicas.partition
    assert list(replicas.manager) == [replicas.partition]


# -- LeaderAndIsr ------------------------------------------------------------------------------------------------------


def test_a_log_is_made_with_the_topics_id() -> None:
    replicas = Replicas()
    assert replicas.code_of(state(isr=[0], replicas=[0])) == ErrorCode.NONE
    assert replicas.partition.topic_id == TOPIC_ID
    assert replicas.logs.get(T0) is replicas.partition.log


@pytest.mark.parametrize("leader", [0, 1])
def test_a_repeated_state_is_stale_as_in_apache_kafka(leader: int) -> None:
    replicas = Replicas()
    replicas.say(state(leader=leader))
    assert replicas.code_of(state(leader=leader)) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert replicas.code_of(state(leader=leader, isr=[0], partition_epoch=1)) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert replicas.partition.partition_epoch == 0


def test_a_state_of_an_older_leader_epoch_is_stale() -> None:
    replicas = Replicas()
    replicas.say(state(epoch=4))
    assert replicas.code_of(state(epoch=3, partition_epoch=9)) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert replicas.partition.leader_epoch == 4


def test_the_controller_may_give_a_topic_its_id_later_and_take_it_back_from_a_follower() -> None:
    replicas = Replicas()
    assert replicas.code_of(state(leader=1), topic_id=ZERO_UUID) == ErrorCode.NONE
    assert replicas.code_of(state(leader=1)) == ErrorCode.NONE
    assert replicas.partition.fetched_topic_id == replicas.partition.topic_id == TOPIC_ID
    assert replicas.code_of(state(leader=1), topic_id=ZERO_UUID) == ErrorCode.NONE
    assert (replicas.partition.fetched_topic_id, replicas.partition.topic_id) == (ZERO_UUID, TOPIC_ID)
    assert replicas.code_of(state(leader=1)) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert replicas.code_of(state(1, 1)) == ErrorCode.NONE
    assert replicas.partition.fetched_topic_id == TOPIC_ID
    assert replicas.code_of(state(2, 2), topic_id=ZERO_UUID) == ErrorCode.NONE
    assert replicas.partition.fetched_topic_id == ZERO_UUID


def test_another_topic_of_the_same_name_does_not_get_its_log() -> None:
    replicas = Replicas()
    replicas.say(state())
    assert replicas.code_of(state(epoch=1), topic_id=b"some other topic") == ErrorCode.INCONSISTENT_TOPIC_ID
    assert replicas.partition.leader_epoch == 0


def test_a_log_on_disk_of_another_topic_is_not_served() -> None:
    replicas = Replicas()
    replicas.say(state())
    again = ReplicaManager(0, replicas.logs, replicas.cluster, replicas.clock)
    replicas.manager = again
    assert replicas.code_of(state(epoch=1), topic_id=b"some other topic") == ErrorCode.INCONSISTENT_TOPIC_ID
    assert again.partitions == {}


def test_a_partition_that_is_not_ours_is_unknown() -> None:
    replicas = Replicas()
    assert replicas.code_of(state(leader=1, isr=[1], replicas=[1, 2])) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replicas.logs.get(T0) is None


@pytest.mark.parametrize("leader", [-1, 7])
def test_a_leader_that_is_not_alive_is_not_followed_but_the_log_is_made(leader: int) -> None:
    replicas = Replicas()
    assert replicas.code_of(state(leader=leader)) == ErrorCode.NONE
    assert replicas.partition.leader_epoch == -1
    assert not replicas.partition.is_leader
    with pytest.raises(NotLeaderOrFollower):
        replicas.append()


def test_what_has_no_leader_is_an_ordinary_event_and_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ottla.replication.control.controller_requests")
    replicas = Replicas()
    replicas.say(*(state(-1, index=index) for index in range(12)), state(7, index=12))
    replicas.say(state(-1, 1))
    named = ", ".join(f"{TOPIC}-{index}" for index in range(10))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", f"12 partitions have no leader; they are followed once one is elected: {named} and others"),
        ("ERROR", f"cannot follow broker 7, which is not alive, in 1 partitions: {TOPIC}-12"),
        ("INFO", f"1 partitions have no leader; they are followed once one is elected: {TOPIC}-0"),
    ]


def test_many_partitions_are_taken_over_in_turns_and_others_are_served_between() -> None:
    replicas = Replicas()
    topic_states = [state(index=index, isr=[0], replicas=[0]) for index in range(40)]
    turns = 0

    async def scenario() -> None:
        nonlocal turns
        request = LeaderAndIsrRequest(controller_id=1, controller_epoch=1)
        request.topic_states = [_topic_state(topic_states)]
        work = asyncio.ensure_future(replicas.manager.on_leader_and_isr(request))
        while not work.done():
            turns += 1
            await asyncio.sleep(0)
        assert {error.error_code for error in work.result().topics[0].partition_errors} == {0}

    asyncio.run(scenario())
    assert turns > 2
    assert len(list(replicas.manager)) == 40


def test_an_error_with_one_partition_leaves_out_no_other(caplog: pytest.LogCaptureFixture) -> None:
    replicas = Replicas()

    def listen(partition: Partition) -> None:
        if partition.topic_partition.partition == 0:
            raise ValueError("a fault of a listener")

    replicas.manager.leadership_listeners.append(listen)
    request = LeaderAndIsrRequest(controller_id=1, controller_epoch=1)
    request.topic_states = [_topic_state([state(index=index, isr=[0], replicas=[0]) for index in range(2)])]
    response = asyncio.run(replicas.manager.on_leader_and_isr(request))
    codes = {each.partition_index: each.error_code for each in response.topics[0].partition_errors}
    assert codes == {0: ErrorCode.UNKNOWN_SERVER_ERROR, 1: ErrorCode.NONE}
    assert replicas.manager.partition_or_raise(TOPIC, 1).is_leader
    assert f"{TOPIC}-0: LeaderAndIsr could not be applied" in caplog.text


def test_a_controller_that_is_deposed_while_its_request_is_worked_off_is_not_obeyed_to_the_end() -> None:
    replicas = Replicas()
    topic_states = [state(index=index, isr=[0], replicas=[0]) for index in range(40)]

    async def scenario() -> int:
        request = LeaderAndIsrRequest(controller_id=1, controller_epoch=1)
        request.topic_states = [_topic_state(topic_states)]
        work = asyncio.ensure_future(replicas.manager.on_leader_and_isr(request))
        await asyncio.sleep(0)
        replicas.alive(0, controller_epoch=2)
        return (await work).error_code

    assert asyncio.run(scenario()) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert 0 < len(list(replicas.manager)) < 40


def _topic_state(states: list[LeaderAndIsrPartitionState]) -> LeaderAndIsrTopicState:
    return LeaderAndIsrTopicState(topic_name=TOPIC, topic_id=TOPIC_ID, partition_states=states)


def test_a_deposed_controller_is_refused_whatever_it_says() -> None:
    replicas = Replicas()
    replicas.say(state(), controller_epoch=5)
    assert replicas.alive(0, controller_epoch=4).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert replicas.say(state(epoch=9), controller_epoch=4).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert replicas.stop(9, delete=True, controller_epoch=4).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert replicas.partition.leader_epoch == 0
    assert set(replicas.cluster.brokers) == {0, 1, 2}


def test_the_highest_epoch_of_any_request_deposes() -> None:
    replicas = Replicas()
    replicas.alive(0, 1, 2, controller_epoch=7)
    assert replicas.say(state(), controller_epoch=6).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    replicas.stop(0, controller_epoch=8)
    assert replicas.alive(0, controller_epoch=7).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


# -- StopReplica -------------------------------------------------------------------------------------------------------


def test_a_replica_that_is_stopped_and_not_deleted_keeps_its_place_and_its_high_watermark() -> None:
    replicas = Replicas()
    replicas.say(state(isr=[0], replicas=[0]))
    replicas.append(3)
    assert replicas.stop(0).partition_errors[0].error_code == ErrorCode.NONE
    assert replicas.partition.log.high_watermark == 3


@pytest.mark.parametrize("epoch", [0, 1, EPOCH_DURING_DELETE, NO_EPOCH])
def test_a_replica_is_deleted_with_its_log(epoch: int) -> None:
    replicas = Replicas()
    replicas.say(state(isr=[0], replicas=[0]))
    partition = replicas.partition
    assert replicas.stop(epoch, delete=True).partition_errors[0].error_code == ErrorCode.NONE
    assert replicas.manager.partitions == {}
    assert replicas.logs.get(T0) is None
    assert not partition.is_online
    with pytest.raises(NotLeaderOrFollower):
        partition.check_leader(or_follower=True)


def test_a_stop_of_an_older_leader_epoch_is_fenced() -> None:
    replicas = Replicas()
    replicas.say(state(epoch=4))
    assert replicas.stop(3, delete=True).partition_errors[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert replicas.partition.is_leader


def test_a_replica_that_is_not_here_is_deleted_without_ado() -> None:
    replicas = Replicas()
    assert replicas.stop(EPOCH_DURING_DELETE, delete=True).partition_errors[0].error_code == ErrorCode.NONE


def test_a_topic_created_again_starts_empty() -> None:
    replicas = Replicas()
    replicas.say(state(isr=[0], replicas=[0]))
    replicas.append(3)
    replicas.stop(EPOCH_DURING_DELETE, delete=True)
    assert replicas.code_of(state(isr=[0], replicas=[0]), topic_id=b"some other topic") == ErrorCode.NONE
    assert replicas.partition.log.log_end_offset == 0


# -- disks -------------------------------------------------------------------------------------------------------------


def failing(log_dirs: str = "/data") -> tuple[Replicas, FaultyFileSystem]:
    disk = FaultyFileSystem(MemoryFileSystem())
    return Replicas(disk, log_dirs), disk


def test_a_failed_directory_takes_its_partitions_offline_and_no_others() -> None:
    replicas, _ = failing("/a,/b")
    for index in (0, 1):
        replicas.say(state(index=index, isr=[0], replicas=[0]))
    here, there = replicas.manager.partitions[TOPIC].values()
    assert here.log.log_dir != there.log.log_dir
    replicas.manager.on_log_dir_failure(here.log.log_dir)
    assert list(replicas.manager) == [there]
    with pytest.raises(ReplicaStorageFailure):
        replicas.fetch(Asked(0))
    assert replicas.code_of(state(epoch=1, isr=[0], replicas=[0])) == ErrorCode.KAFKA_STORAGE_ERROR
    assert replicas.stop(1, delete=True).partition_errors[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_log_that_cannot_be_deleted_is_a_storage_error_to_the_controller() -> None:
    replicas, disk = failing("/a,/b")
    replicas.say(state(isr=[0], replicas=[0]))
    disk.fails_if = lambda name, path: name == "rename" and path.endswith(f"{TOPIC}-0")
    assert replicas.stop(EPOCH_DURING_DELETE, delete=True).partition_errors[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(replicas.logs.offline_log_dirs) == 1


def test_a_log_that_cannot_be_made_is_a_storage_error_to_the_controller() -> None:
    replicas, disk = failing()
    disk.fails_if = lambda name, path: TOPIC in path
    assert replicas.code_of(state(isr=[0], replicas=[0])) == ErrorCode.KAFKA_STORAGE_ERROR
    assert replicas.manager.partitions == {}
    assert T0 in replicas.manager.offline


# -- what a real controller said ---------------------------------------------------------------------------------------


def recorded(key: ApiKey) -> list[GoldenFrame]:
    return [frame for frame in golden_frames("interbroker") if frame.api.key is key and frame.is_request]


@pytest.mark.slow
def test_what_a_real_controller_said_is_carried_out() -> None:
    """Every recorded LeaderAndIsr, to a broker that has heard of all brokers: it leads or follows as it was told."""
    for frame in recorded(ApiKey.LEADER_AND_ISR):
        request = _decoded(frame)
        assert isinstance(request, LeaderAndIsrRequest)
        for broker_id in (0, 1, 2):
            replicas = Replicas()
            replicas.manager.broker_id = broker_id
            response = asyncio.run(replicas.manager.on_leader_and_isr(request))
            assert response.error_code == 0
            for topic, answer in zip(request.topic_states, response.topics, strict=True):
                for said, error in zip(topic.partition_states, answer.partition_errors, strict=True):
                    partition = replicas.manager.partition(topic.topic_name, said.partition_index)
                    if broker_id not in said.replicas:
                        assert error.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        continue
                    assert error.error_code == 0
                    assert partition is not None
                    assert partition.is_leader == (said.leader == broker_id)
                    assert partition.leader_epoch == (said.leader_epoch if said.leader >= 0 else -1)


@pytest.mark.parametrize("version", range(8))
def test_leader_and_isr_of_every_version_means_the_same(version: int) -> None:
    request = LeaderAndIsrRequest(controller_id=1, controller_epoch=1)
    states = [state(isr=[0], replicas=[0], index=0), state(leader=1, index=1)]
    if version < 2:
        for each in states:
            each.topic_name = TOPIC
        request.ungrouped_partition_states = states
    else:
        request.topic_states = [_topic_state(states)]
    sent, _ = LeaderAndIsrRequest.decode(memoryview(bytearray(request.encode(version))), version, 0)
    replicas = Replicas()
    response = asyncio.run(replicas.manager.on_leader_and_isr(sent))
    assert [error.error_code for topic in response.topics for error in topic.partition_errors] == [0, 0]
    assert [error.topic_name for error in response.partition_errors] == [TOPIC, TOPIC]
    assert [partition.is_leader for partition in replicas.manager] == [True, False]
    assert replicas.partition.topic_id == (TOPIC_ID if version >= 5 else ZERO_UUID)


@pytest.mark.parametrize("version", range(5))
def test_stop_replica_of_every_version_means_the_same(version: int) -> None:
    request = StopReplicaRequest(controller_id=1, controller_epoch=1)
    if version >= 3:
        stopped = StopReplicaPartitionState(partition_index=0, leader_epoch=0, delete_partition=True)
        request.topic_states = [StopReplicaTopicState(topic_name=TOPIC, partition_states=[stopped])]
    else:
        request.delete_partitions = True
        if version == 0:
            request.ungrouped_partitions = [StopReplicaPartitionV0(topic_name=TOPIC, partition_index=0)]
        else:
            request.topics = [StopReplicaTopicV1(name=TOPIC, partition_indexes=[0])]
    sent, _ = StopReplicaRequest.decode(memoryview(bytearray(request.encode(version))), version, 0)
    replicas = Replicas()
    replicas.say(state(isr=[0], replicas=[0]))
    with replicas.disks.background.hurried():
        response = asyncio.run(replicas.manager.on_stop_replica(sent))
    assert [error.error_code for error in response.partition_errors] == [0]
    assert replicas.manager.partitions == {}


def test_what_is_deleted_while_its_log_is_made_is_not_made_again() -> None:
    """The first request is of an earlier session: the controller did not wait for its answer."""
    replicas = Replicas()
    background = replicas.disks.background
    background.done_at_once.clear()
    topic = LeaderAndIsrTopicState(topic_name=TOPIC, topic_id=TOPIC_ID, partition_states=[state(isr=[0], replicas=[0])])
    host = LeaderAndIsrRequest(controller_id=1, controller_epoch=1, topic_states=[topic])
    deleted = StopReplicaPartitionState(partition_index=0, leader_epoch=EPOCH_DURING_DELETE, delete_partition=True)
    stop = StopReplicaRequest(
        controller_id=1, controller_epoch=1, topic_states=[StopReplicaTopicState(topic_name=TOPIC, partition_states=[deleted])]
    )

    async def both() -> None:
        hosting = asyncio.create_task(replicas.manager.on_leader_and_isr(host))
        await asyncio.sleep(0)
        stopping = asyncio.create_task(replicas.manager.on_stop_replica(stop))
        await asyncio.sleep(0)
        while not (hosting.done() and stopping.done()):
            background.advance()
            await asyncio.sleep(0)

    asyncio.run(both())
    assert replicas.manager.partitions == {}
    assert replicas.logs.get(T0) is None


def _decoded(frame: GoldenFrame) -> object:
    data = memoryview(bytearray(frame.data))
    _, offset = frame.header_class.decode(data, frame.header_version, 0)
    return frame.body_class.decode(data, frame.version, offset)[0]


def test_a_replica_that_is_hosted_again_starts_at_the_high_watermark_that_was_written_down() -> None:
    replicas = Replicas()
    replicas.say(state())
    replicas.append(5)
    replicas.follow(1, 5)
    replicas.follow(2, 3)
    replicas.manager.checkpoint_high_watermarks()
    replicas.disks.settle()
    replicas.logs.shutdown()
    again = Replicas(replicas.disks.filesystem)
    again.say(state(leader=1, epoch=1, partition_epoch=1))
    assert again.partition.log.high_watermark == 3
    assert again.partition.log.log_end_offset == 5
