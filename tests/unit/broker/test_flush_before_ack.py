"""With flush.messages an acknowledged record is on the disk: the answer waits for the flush that the append made due."""

import asyncio

from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition
from tests.support.batches import a_batch
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.handler_bench import HandlerBench, on_a_loop
from tests.support.replicas import TOPIC, Replicas, state


def alone(**topic_config: str) -> HandlerBench:
    """Broker 0 leads partitions 0 and 1, which have no other replica."""
    bench = HandlerBench(**topic_config)
    bench.replicas.say(*(state(isr=[0], replicas=[0], index=index) for index in (0, 1)))
    bench.know(p0=0, p1=0)
    return bench


@on_a_loop
async def test_the_answer_waits_for_the_flush_with_acks_1_and_all() -> None:
    bench = alone(flush_messages="1")
    log = bench.replicas.partition.log
    for acks in (1, -1):
        asked = bench.produce(a_batch(2), acks=acks)
        assert asked.waits
        bench.replicas.disks.settle()
        (produced,) = asked.produced
        assert produced.error_code == ErrorCode.NONE
        assert log.recovery_point == produced.base_offset + 2


@on_a_loop
async def test_several_partitions_wait_for_all_their_flushes() -> None:
    bench = alone(flush_messages="1")
    asked = bench.produce(a_batch(), a_batch(), acks=1)
    assert asked.waits
    bench.replicas.disks.settle()
    assert [each.error_code for each in asked.produced] == [0, 0]


@on_a_loop
async def test_only_the_append_that_makes_a_flush_due_waits() -> None:
    bench = alone(flush_messages="3")
    assert not bench.produce(a_batch(2)).waits
    due = bench.produce(a_batch(1))
    assert due.waits
    assert not bench.produce(a_batch(1)).waits, "that one belongs to the next three"
    bench.replicas.disks.settle()
    assert due.produced[0].base_offset == 2
    assert bench.replicas.partition.log.recovery_point >= 3


@on_a_loop
async def test_without_flush_messages_nothing_waits() -> None:
    bench = alone()
    assert not any(bench.produce(a_batch(5), acks=acks).waits for acks in (1, -1))


@on_a_loop
async def test_a_duplicate_waits_for_the_flush_of_the_first() -> None:
    bench = alone(flush_messages="1")
    batch = a_batch(1, producer_id=7)
    first, again = bench.produce(batch), bench.produce(batch)
    assert first.waits
    assert again.waits
    bench.replicas.disks.settle()
    assert (first.produced[0].base_offset, again.produced[0].base_offset) == (0, 0)
    assert not bench.produce(batch).waits


@on_a_loop
async def test_a_flush_that_a_roll_began_does_not_stand_in_for_it() -> None:
    bench = alone(flush_messages="3", segment_bytes=str(len(a_batch(2)) + 10))
    assert not bench.produce(a_batch(2)).waits
    asked = bench.produce(a_batch(2))
    assert asked.waits
    bench.replicas.disks.settle()
    assert asked.produced[0].error_code == ErrorCode.NONE
    assert bench.replicas.partition.log.recovery_point == 4


@on_a_loop
async def test_acks_1_is_not_timed_out_by_the_producer() -> None:
    bench = alone(flush_messages="1")
    asked = bench.produce(acks=1)
    bench.time.advance(5_000)
    assert asked.waits
    bench.replicas.disks.settle()
    assert asked.produced[0].error_code == ErrorCode.NONE


@on_a_loop
async def test_a_disk_that_refuses_the_flush_is_told_to_the_producer() -> None:
    bench = alone(flush_messages="1")
    faulty = FaultyFileSystem(MemoryFileSystem())
    bench.replicas = Replicas(faulty, flush_messages="1")
    bench.replicas.say(state(isr=[0], replicas=[0]))
    bench.services.data.replica_manager = bench.replicas.manager
    bench.services.metadata = bench.replicas.cluster
    bench.know(p0=0)
    bench.replicas.disks.settle()
    asked = bench.produce()
    assert asked.waits
    faulty.fails_if = lambda name, path: name == "sync" and path.endswith(".log")
    bench.replicas.disks.settle()
    assert asked.produced[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


@on_a_loop
async def test_a_disk_that_refuses_the_index_entries_of_a_flush_is_told_to_the_producer() -> None:
    """They are written as soon as the append makes the flush due."""
    bench = alone(flush_messages="1")
    faulty = FaultyFileSystem(MemoryFileSystem())
    bench.replicas = Replicas(faulty, flush_messages="1", index_interval_bytes="0")
    bench.replicas.say(state(isr=[0], replicas=[0]))
    bench.services.data.replica_manager = bench.replicas.manager
    bench.services.metadata = bench.replicas.cluster
    bench.know(p0=0)
    bench.produce()
    bench.replicas.disks.settle()
    faulty.fails_if = lambda name, path: name == "pwrite" and path.endswith(".index")
    asked = bench.produce()
    assert asked.waits
    bench.replicas.disks.settle()
    assert asked.produced[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_who_waits_for_a_flush_is_answered_by_the_log_that_takes_its_place() -> None:
    replicas = Replicas(log_dirs="/a,/b", flush_messages="1")
    replicas.say(state(isr=[0], replicas=[0]))
    partition = replicas.partition
    log = partition.log
    replicas.append(3)
    assert not partition.log.flushes.covers(3)
    target = "/b" if log.log_dir == "/a" else "/a"
    assert asyncio.run(replicas.manager.alter_log_dirs({TopicPartition(TOPIC, 0): target})) == {TopicPartition(TOPIC, 0): None}
    replicas.disks.background.advance(100)
    assert (partition.log.log_dir, partition.log.recovery_point) == (target, 3)
    assert partition.log.flushes.covers(3)
