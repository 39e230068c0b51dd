"""Produce: acks, replicas that are waited for, and what is said when it does not work."""

import errno

import pytest

from ottla.broker.handlers.data.produce import AT_ONCE
from ottla.broker.network.request_channel import CLOSE, NO_RESPONSE
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.protocol.records.batch import HEADER_SIZE
from tests.support.batches import a_batch, a_record, with_bytes
from tests.support.controlled_cluster import until
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.golden_replay import request_frame
from tests.support.handler_bench import Asking, HandlerBench, on_a_loop
from tests.support.pauses import at_once, every_pause_waits
from tests.support.replicas import LAG_MS, TOPIC, TOPIC_ID, brokers, metadata, state


def alone(**topic_config: str) -> HandlerBench:
    """Broker 0 leads partitions 0 and 1, which have no other replica."""
    bench = HandlerBench(**topic_config)
    bench.replicas.say(*(state(isr=[0], replicas=[0], index=index) for index in (0, 1)))
    bench.know(p0=0, p1=0)
    return bench


def followed(**topic_config: str) -> HandlerBench:
    """Broker 0 leads partition 0, which 1 and 2 follow."""
    bench = HandlerBench(**topic_config)
    bench.replicas.say(state())
    bench.know(p0=0)
    return bench


# -- acks --------------------------------------------------------------------------------------------------------------


@on_a_loop
async def test_acks_all_without_followers_is_answered_at_once() -> None:
    bench = alone()
    assert [bench.produce(a_batch(2)).produced[0].base_offset for _ in range(2)] == [0, 2]


@on_a_loop
async def test_acks_1_does_not_wait_for_followers() -> None:
    bench = followed()
    assert bench.produce(acks=1).produced[0].error_code == ErrorCode.NONE
    assert bench.replicas.partition.log.high_watermark == 0


@on_a_loop
async def test_acks_all_waits_until_every_member_of_the_isr_has_it() -> None:
    bench = followed()
    asked = bench.produce(a_batch(2))
    assert asked.waits
    assert asked.pending.appended
    bench.replicas.follow(1, 2)
    assert asked.waits
    bench.replicas.follow(2, 1)
    assert asked.waits
    bench.replicas.follow(2, 2)
    (produced,) = asked.produced
    assert (produced.error_code, produced.base_offset) == (0, 0)
    assert bench.services.data.produce_purgatory.delayed == 0


@on_a_loop
async def test_acks_all_of_several_partitions_waits_for_all_of_them() -> None:
    bench = alone()
    bench.replicas.say(state(epoch=1, index=1, partition_epoch=1))
    asked = bench.produce(a_batch(), a_batch())
    assert asked.waits
    for broker_id in (1, 2):
        bench.replicas.manager.partitions[TOPIC][1].on_follower_fetch(broker_id, 1, 0, 0)
    assert [each.error_code for each in asked.produced] == [0, 0]


@on_a_loop
async def test_acks_all_times_out_and_the_records_stay() -> None:
    bench = followed()
    asked = bench.produce()
    bench.time.advance(999)
    assert asked.waits
    bench.time.advance(10)
    assert asked.produced[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert bench.replicas.partition.log.log_end_offset == 1


@on_a_loop
async def test_a_leader_that_is_deposed_says_so_to_those_who_wait() -> None:
    bench = followed()
    asked = bench.produce()
    bench.replicas.say(state(leader=1, epoch=1, partition_epoch=1))
    assert asked.produced[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@on_a_loop
async def test_an_isr_that_shrank_below_the_minimum_after_the_append_is_told() -> None:
    bench = followed(min_insync_replicas="2")
    asked = bench.produce()
    bench.replicas.follow(1, 1)
    bench.replicas.clock.move(LAG_MS + 1)
    partition = bench.replicas.partition
    partition.isr = partition.maximal_isr = (0,)
    partition.log.update_high_watermark(1)
    partition.waiters.notify()
    assert asked.produced[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


@on_a_loop
async def test_too_few_replicas_in_sync_refuse_acks_all_before_the_append() -> None:
    bench = followed(min_insync_replicas="2")
    bench.replicas.partition.isr = bench.replicas.partition.maximal_isr = (0,)
    assert bench.produce().produced[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert bench.replicas.partition.log.log_end_offset == 0
    assert bench.produce(acks=1).produced[0].error_code == ErrorCode.NONE


@on_a_loop
async def test_who_may_append_is_asked_before_what_the_batch_holds() -> None:
    bench = followed(min_insync_replicas="2", cleanup_policy="compact")
    without_key, damaged = a_batch(), a_batch()
    damaged[-1] ^= 1
    bench.replicas.partition.isr = bench.replicas.partition.maximal_isr = (0,)
    for batch in (without_key, damaged):
        assert bench.produce(bytearray(batch)).produced[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    bench.replicas.say(state(leader=1, epoch=1, partition_epoch=1))
    for batch in (without_key, damaged):
        assert bench.produce(bytearray(batch), acks=1).produced[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@on_a_loop
async def test_acks_0_is_not_answered_and_an_error_closes_the_connection_with_one_line() -> None:
    bench = alone()
    assert bench.produce(acks=0).control is NO_RESPONSE
    assert bench.replicas.partition.log.log_end_offset == 1
    assert bench.produce(acks=0, topic="nowhere").control is CLOSE
    (reason,) = bench.connection.reasons
    assert "nowhere-0" in reason
    assert "UNKNOWN_TOPIC_OR_PARTITION" in reason


@on_a_loop
async def test_other_acks_are_refused() -> None:
    bench = alone()
    assert bench.produce(acks=2).produced[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert bench.replicas.partition.log.log_end_offset == 0


@on_a_loop
async def test_only_those_partitions_time_out_that_are_not_replicated() -> None:
    bench = HandlerBench()
    bench.replicas.say(state(), state(index=1))
    bench.know(p0=0, p1=0)
    asked = bench.produce(a_batch(2), a_batch(3))
    partitions = bench.replicas.manager.partitions[TOPIC]
    for broker_id in (1, 2):
        partitions[0].on_follower_fetch(broker_id, 2, 0, 0)
    bench.time.advance(999)
    assert asked.waits
    assert [len(each.waiters.waiting) for each in partitions.values()] == [0, 1]
    bench.time.advance(10)
    assert [(each.error_code, each.base_offset) for each in asked.produced] == [(0, 0), (ErrorCode.REQUEST_TIMED_OUT, 0)]
    bench.services.data.produce_purgatory.purge()
    assert partitions[1].waiters.waiting == {}


# -- what is refused -----------------------------------------------------------------------------------------------------


def test_malformed_records_get_one_line_in_the_log_that_says_who_and_why(caplog: pytest.LogCaptureFixture) -> None:
    """The answer has no reason. Records that a rule of the topic refuses have one, and get no line."""

    @on_a_loop
    async def scenario() -> None:
        bench = alone(cleanup_policy="compact")
        asked = bench.produce(with_bytes(a_batch(2, "gzip"), 57, (200).to_bytes(4, "big")), a_batch(1, key=None))
        assert [partition.error_code for partition in asked.produced] == [ErrorCode.INVALID_RECORD] * 2

    scenario()
    (line,) = [each.getMessage() for each in caplog.records if each.name == "ottla.broker.request.refused_records"]
    assert line.startswith("local:1-host:2-0 on listener PLAINTEXT: records for orders-0 are refused: ")
    assert "offset range" in line


@on_a_loop
async def test_one_refused_partition_does_not_hold_up_the_others() -> None:
    bench = alone()
    damaged = a_batch()
    damaged[-1] ^= 1
    refused, accepted = bench.produce(damaged, a_batch()).produced
    assert refused.error_code == ErrorCode.CORRUPT_MESSAGE
    assert (accepted.error_code, accepted.base_offset) == (0, 0)


@on_a_loop
async def test_a_partition_led_elsewhere_names_its_leader_from_version_10_on() -> None:
    bench = HandlerBench()
    bench.know(p0=2)
    for version in (9, 10):
        answer = bench.produce(version=version).response
        (partition,) = answer.responses[0].partition_responses
        assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        if version >= 10:
            assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (2, 3)
            assert [(node.node_id, node.host, node.port, node.rack) for node in answer.node_endpoints] == [(2, "host", 9092, "r2")]
        else:
            assert partition.current_leader.leader_id == -1


@on_a_loop
async def test_a_follower_names_the_leader_that_it_follows() -> None:
    bench = followed()
    bench.replicas.say(state(leader=1, epoch=7, partition_epoch=1))
    (partition,) = bench.produce(version=10).produced
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (1, 7)


@on_a_loop
async def test_a_leader_that_is_not_alive_is_named_without_an_address() -> None:
    bench = HandlerBench()
    topic = metadata(TOPIC, TOPIC_ID, p0=2)
    at_once(
        bench.replicas.manager.on_update_metadata(
            UpdateMetadataRequest(controller_epoch=1, live_brokers=brokers(0, 1), topic_states=[topic])
        )
    )
    answer = bench.produce(version=10).response
    assert answer.responses[0].partition_responses[0].current_leader.leader_id == 2
    assert answer.node_endpoints == []


@on_a_loop
async def test_null_records_are_answered() -> None:
    bench = alone()
    assert bench.produce(None).produced[0].error_code == ErrorCode.INVALID_RECORD


@on_a_loop
async def test_an_internal_topic_is_for_the_admin_client_only() -> None:
    bench = HandlerBench()
    name = "__consumer_offsets"
    assert bench.produce(topic=name).produced[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic_states = [metadata(name, TOPIC_ID, p0=0)]
    at_once(
        bench.replicas.manager.on_update_metadata(
            UpdateMetadataRequest(controller_epoch=1, live_brokers=brokers(0), topic_states=topic_states)
        )
    )
    bench.replicas.say(state(isr=[0], replicas=[0]), topic=name)
    assert bench.produce(topic=name).produced[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    keyed = a_batch([a_record(key=b"key")])
    assert bench.produce(keyed, topic=name, client_id="__admin_client").produced[0].error_code == ErrorCode.NONE


@on_a_loop
async def test_a_partition_named_twice_is_appended_to_once_with_the_last() -> None:
    bench = alone()
    data = [PartitionProduceData(index=0, records=bytes(a_batch(records))) for records in (1, 3)]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])
    assert len(bench.ask(request, ApiKey.PRODUCE, 9).produced) == 1
    assert bench.replicas.partition.log.log_end_offset == 3


# -- what takes longer ---------------------------------------------------------------------------------------------------


@on_a_loop
async def test_a_batch_that_is_recompressed_is_appended_when_the_worker_has_done_it() -> None:
    bench = alone(compression_type="gzip")
    asked = bench.produce(a_batch(400, value_bytes=200))
    assert asked.waits
    assert not asked.pending.appended
    await until(lambda: not asked.waits)
    assert asked.produced[0].error_code == ErrorCode.NONE
    log = bench.replicas.partition.log
    assert log.log_end_offset == 400
    assert log.size_bytes < 400 * 200


@on_a_loop
async def test_what_workers_did_is_answered_in_the_place_that_the_request_gave_it() -> None:
    bench = HandlerBench(compression_type="gzip")
    bench.replicas.say(*(state(isr=[0], replicas=[0], index=index) for index in range(4)))
    bench.know(p0=0, p1=0, p2=0, p3=0)
    damaged, misfit = a_batch(400), with_bytes(a_batch(400), HEADER_SIZE, b"\x7e")
    damaged[-1] ^= 1
    asked = bench.produce(a_batch(400), damaged, misfit, a_batch(3, "gzip"))
    await until(lambda: not asked.waits)
    assert [(each.index, each.error_code, each.base_offset) for each in asked.produced] == [
        (0, ErrorCode.NONE, 0),
        (1, ErrorCode.CORRUPT_MESSAGE, -1),
        (2, ErrorCode.INVALID_RECORD, -1),
        (3, ErrorCode.NONE, 0),
    ]


@on_a_loop
async def test_a_batch_for_a_worker_is_worked_on_and_then_appended_like_any_other() -> None:
    """So no connection is closed meanwhile that only waits for the broker."""
    bench = followed(compression_type="gzip")
    asked = bench.produce(a_batch(400))
    assert asked.pending.is_worked_on_in_turns
    await until(lambda: bench.replicas.partition.log.log_end_offset == 400)
    await until(lambda: asked.pending.appended)
    assert asked.waits
    assert not asked.pending.is_worked_on_in_turns


@on_a_loop
async def test_a_request_that_goes_on_in_turns_needs_its_buffer_no_more() -> None:
    bench = HandlerBench()
    count = 3 * AT_ONCE
    bench.replicas.say(*(state(isr=[0], replicas=[0], index=index) for index in range(count)))
    bench.know(**{f"p{index}": 0 for index in range(count)})
    every_pause_waits()
    data = [PartitionProduceData(index=index, records=bytes(a_batch(2))) for index in range(count)]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])
    frame = memoryview(bytearray(request_frame(request, ApiKey.PRODUCE, 9)[4:]))
    asked = Asking(bench.dispatcher.handle(frame, bench.connection), ApiKey.PRODUCE, 9)  # type: ignore[arg-type]  # all it needs of one
    assert asked.waits
    frame[:] = bytes(len(frame))
    await until(lambda: not asked.waits)
    assert [(each.index, each.error_code) for each in asked.produced] == [(index, 0) for index in range(count)]
    assert {partition.log.log_end_offset for partition in bench.replicas.manager} == {2}


@on_a_loop
async def test_leadership_lost_while_a_worker_recompresses_refuses_the_batch() -> None:
    bench = alone(compression_type="gzip")
    asked = bench.produce(a_batch(400, value_bytes=200))
    bench.replicas.say(state(leader=1, epoch=1, partition_epoch=1))
    await until(lambda: not asked.waits)
    assert asked.produced[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert bench.replicas.partition.log.log_end_offset == 0


def test_a_fault_in_a_worker_is_answered_all_the_same(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fault(*_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr("ottla.replication.leader.completion.complete_validation", fault)

    @on_a_loop
    async def scenario() -> None:
        bench = alone(compression_type="gzip")
        asked = bench.produce(a_batch(400, value_bytes=200))
        await until(lambda: not asked.waits)
        assert asked.produced[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    scenario()
    (record,) = caplog.records
    assert record.exc_info is not None


def test_a_fault_behind_a_worker_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = alone(compression_type="gzip")
        asked = bench.produce(a_batch(400, value_bytes=200))
        bench.services.error_counts = None  # type: ignore[assignment]  # a fault
        await until(lambda: not asked.waits)
        assert asked.control is CLOSE

    scenario()
    (record,) = caplog.records
    assert record.exc_info is not None


# -- disks ---------------------------------------------------------------------------------------------------------------


def a_full_disk() -> FaultyFileSystem:
    """On which no log can be written to."""
    disk = FaultyFileSystem(MemoryFileSystem())
    disk.error_number = errno.ENOSPC
    disk.fails_if = lambda name, path: name == "pwrite" and path.endswith(".log")
    return disk


@on_a_loop
async def test_a_failed_disk_is_what_the_producer_hears_of_however_many_partitions_it_holds() -> None:
    bench = HandlerBench(a_full_disk())
    bench.replicas.say(*(state(isr=[0], replicas=[0], index=index) for index in (1, 0)))
    bench.know(p0=0, p1=0)
    every_pause_waits()  # the other one's turn comes first
    assert bench.produce().produced[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


@on_a_loop
async def test_a_disk_that_fails_takes_its_partitions_offline() -> None:
    bench = HandlerBench(a_full_disk())
    bench.replicas.say(*(state(isr=[0], replicas=[0], index=index) for index in (0, 1)))
    bench.know(p0=0, p1=0)
    assert bench.produce().produced[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert list(bench.replicas.manager) == []
    assert bench.produce().produced[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


@on_a_loop
async def test_a_batch_with_two_faults_is_counted_once() -> None:
    bench = alone()
    asked = bench.produce(with_bytes(a_batch(), 16, b"\3"), topic="missing")
    assert asked.produced[0].error_code == ErrorCode.CORRUPT_MESSAGE
    assert bench.replicas.manager.topic_stats.total("produce_requests") == 1
