"""The machinery of coordinators serves any topic and state: here counters in `__transaction_state`, beside the groups in their topic."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext
from typing import NamedTuple

import pytest

from ottla.coordination.internal_topics import TRANSACTION_STATE_TOPIC
from ottla.coordination.partitions import elections
from ottla.coordination.partitions.effects import Arm, Disarm, Many, Reply
from ottla.coordination.partitions.elections import Elections
from ottla.coordination.partitions.owned import OwnedStates
from ottla.coordination.partitions.runner import LARGE, EffectRunner
from ottla.coordination.partitions.topic_log import TopicLog, encode_pairs
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.compression import CompressionCodec
from ottla.protocol.records.reader import iter_records
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.leader.partition import Partition
from ottla.replication.waiting.timing_wheel import TimerTask
from ottla.storage.disk.clock import elapsed_ms
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.pending_topic_id import make_durable
from tests.support.group_bench import GroupBench, a_bench
from tests.support.log_manager import Disks
from tests.support.logs import read_all
from tests.support.pauses import every_pause_waits

TIMEOUT_MS = 5_000
EACH_ONE = "every second"


class Counter:
    """Counts by itself while it is armed."""

    def __init__(self, name: str, total: int = 0) -> None:
        self.name = name
        self.total = total
        self.is_dead = False
        self.timers: dict[Hashable, TimerTask] = {}


class Write(NamedTuple):
    """Store the total, and reply when it is safe."""

    reply: Callable[[ErrorCode], None]


class CounterLoader:
    def __init__(self) -> None:
        self.skipped = 0
        self._found: dict[str, int] = {}

    def feed(self, data: bytes) -> Iterator[None]:
        for position, header in iter_batches(data):
            for record in iter_records(data, position, header):
                self._found[(record.key or b"").decode()] = int(record.value or b"0")
                yield

    def states(self, now_ms: int, into: MutableMapping[str, Counter]) -> Iterator[None]:
        for name, total in self._found.items():
            into[name] = Counter(name, total)
            yield

    def found(self, states: int) -> str:
        return f"{states} counters"


class Counters:
    """A coordinator of counters."""

    noun = "counters"

    waits_for_replicas = False

    def __init__(self, bench: GroupBench, workers: ThreadPoolExecutor) -> None:
        self.owned: OwnedStates[Counter] = OwnedStates(TRANSACTION_STATE_TOPIC, bench.replica_manager.cluster, 1)
        self.owned.is_active = True
        self.log = TopicLog(TRANSACTION_STATE_TOPIC, bench.replica_manager, bench.purgatory, bench.clock, timeout_ms=TIMEOUT_MS)
        self.runner: EffectRunner[Counter, Write] = EffectRunner(self, bench.wheel)
        self.workers = workers
        self.loaded: list[str] = []
        self.elections = Elections(self.owned, self, bench.clock, workers, 1 << 20, nullcontext)
        bench.replica_manager.leadership_listeners.append(self.elections.on_leadership_change)
        self.unloaded: list[str] = []
        self.new_loader: Callable[[], CounterLoader] = CounterLoader

    def loader(self, name: str) -> CounterLoader:
        return self.new_loader()

    def on_loaded(self, state: Counter) -> None:
        self.loaded.append(state.name)
        self.runner.run(state, [Arm(EACH_ONE, 1_000)])

    def on_lost(self) -> None:
        pass

    def on_unloaded(self, state: Counter) -> None:
        state.is_dead = True
        self.runner.cancel_timers(state)
        self.unloaded.append(state.name)

    def name_of(self, subject: Counter) -> str:
        return f"counter {subject.name}"

    def on_timer(self, subject: Counter, key: Hashable) -> list[Reply | Arm | Disarm | Many | Write]:
        assert key == EACH_ONE
        subject.total += 1
        return [Arm(EACH_ONE, 1_000)]

    def carry_out(self, subject: Counter, effect: Write) -> None:
        records = encode_pairs([(subject.name.encode(), str(subject.total).encode())])
        self.log.append(self.owned.partition_for(subject.name), records, 1, lambda error, _: effect.reply(error))

    def count(self, name: str) -> list[ErrorCode]:
        """Count by one, and store that; the answer is put into the list."""
        answers: list[ErrorCode] = []
        error, counter = self.owned.find(name)
        if error:
            return [error]
        if counter is None:
            counter = Counter(name)
            self.owned.add(name, counter)
        counter.total += 1
        self.runner.run(counter, [Write(answers.append)])
        return answers


@asynccontextmanager
async def counters(disks: Disks | None = None) -> AsyncIterator[tuple[GroupBench, Counters]]:
    async with a_bench(disks) as bench:
        with ThreadPoolExecutor(1) as workers:
            made = Counters(bench, workers)
            yield bench, made
            await made.elections.stop()


def run(scenario: Callable[[GroupBench, Counters], Awaitable[None]], disks: Disks | None = None) -> None:
    async def main() -> None:
        async with counters(disks) as (bench, made):
            await scenario(bench, made)

    asyncio.run(main())


def run_after_a_count(scenario: Callable[[GroupBench, Counters], Awaitable[None]]) -> None:
    """Run the scenario after an earlier coordinator, in epoch 0, has counted `a` by one."""

    async def count(bench: GroupBench, made: Counters) -> None:
        await lead(bench)
        made.count("a")

    disks = Disks()
    run(count, disks)
    run(scenario, disks)


async def lead(bench: GroupBench, **how: int | tuple[int, ...]) -> None:
    await bench.lead(topic=TRANSACTION_STATE_TOPIC, **how)  # type: ignore[arg-type]  # passed on as they are


def test_each_coordinator_has_the_partitions_of_its_own_topic() -> None:
    async def scenario(bench: GroupBench, made: Counters) -> None:
        await lead(bench)
        assert made.count("a") == [ErrorCode.NONE]
        assert bench.commit() == [ErrorCode.NOT_COORDINATOR]
        await bench.lead()
        await lead(bench, epoch=1, leader=1)
        assert made.count("a") == [ErrorCode.NOT_COORDINATOR]
        assert made.unloaded == ["a"]
        assert bench.commit() == [ErrorCode.NONE]

    run(scenario)


def test_a_new_partition_is_served_when_its_log_takes_appends() -> None:
    async def scenario(bench: GroupBench, made: Counters) -> None:
        logs = bench.replica_manager.log_manager
        asked: list[PartitionLog] = []
        logs.context.on_topic_id_due = asked.append
        log = logs.get_or_create(TopicPartition(TRANSACTION_STATE_TOPIC, 0), b"id of the topic.", is_new=True)
        await lead(bench)
        assert made.count("a") == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        assert set(asked) == {log}
        make_durable(log)
        await bench.until(lambda: not made.owned.is_loading)
        assert made.count("a") == [ErrorCode.NONE]

    run(scenario)


def test_a_record_is_safe_when_all_replicas_in_sync_have_it() -> None:
    async def scenario(bench: GroupBench, made: Counters) -> None:
        await lead(bench, isr=(0, 1))
        answers = made.count("a")
        assert answers == []
        partition = bench.replica_manager.partition_or_raise(TRANSACTION_STATE_TOPIC, 0)
        partition.on_follower_fetch(1, partition.log.log_end_offset, 0, elapsed_ms(bench.clock))
        assert answers == [ErrorCode.NONE]
        late = made.count("a")
        bench.pass_time(TIMEOUT_MS + 1_000)
        assert late == [ErrorCode.REQUEST_TIMED_OUT]

    run(scenario)


def test_a_record_is_recompressed_at_once_for_a_topic_whose_compression_was_changed() -> None:
    async def scenario(bench: GroupBench, made: Counters) -> None:
        await lead(bench)
        assert made.count("a") == [ErrorCode.NONE]
        log = bench.replica_manager.partition_or_raise(TRANSACTION_STATE_TOPIC, 0).log
        ((at, header),) = iter_batches(records := read_all(log))
        assert header.compression_codec == CompressionCodec.GZIP
        assert [record.value for record in iter_records(records, at)] == [b"1"]

    disks = Disks()
    disks.topics[TRANSACTION_STATE_TOPIC] = {"cleanup.policy": "compact", "compression.type": "gzip"}
    run(scenario, disks)


def test_a_record_that_waits_is_refused_when_its_leader_is_cut_off() -> None:
    async def scenario(bench: GroupBench, made: Counters) -> None:
        await lead(bench, isr=(0, 1))
        answers = made.count("a")
        assert answers == []
        bench.replica_manager.partition_or_raise(TRANSACTION_STATE_TOPIC, 0).set_cut_off(True)
        assert answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    run(scenario)


class DiskFailure:
    """Waits for an append, and meets a failed disk then."""

    completed = False

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def try_complete(self) -> bool:
        self._partition.has_failed = True
        self._partition.take_offline()
        self.completed = True
        return True


def test_an_append_that_brings_a_disk_failure_to_light_is_answered() -> None:
    async def scenario(bench: GroupBench, made: Counters) -> None:
        await lead(bench)
        partition = bench.replica_manager.partition_or_raise(TRANSACTION_STATE_TOPIC, 0)
        partition.waiters.add(DiskFailure(partition))
        assert made.count("a") == [ErrorCode.KAFKA_STORAGE_ERROR]

    run(scenario)


def test_the_next_coordinator_has_the_states_and_a_newer_epoch() -> None:
    disks = Disks()

    async def first() -> None:
        async with counters(disks) as (bench, made):
            await lead(bench, epoch=3)
            assert made.owned.partitions[0].leader_epoch == 3
            assert [made.count("a"), made.count("a"), made.count("b")] == [[ErrorCode.NONE]] * 3
            await lead(bench, epoch=4)
            assert made.owned.partitions[0].leader_epoch == 4
            assert made.unloaded == []

    async def second() -> None:
        async with counters(disks) as (bench, made):
            await lead(bench, epoch=5)
            assert made.count("a") == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
            await bench.until(lambda: not made.owned.is_loading)
            assert {counter.name: counter.total for counter in made.owned} == {"a": 2, "b": 1}
            assert made.owned.partitions[0].leader_epoch == 5
            bench.pass_time(3_000)
            assert {counter.name: counter.total for counter in made.owned} == {"a": 5, "b": 4}

    asyncio.run(first())
    asyncio.run(second())


def test_a_partition_that_is_lost_while_it_loads_is_not_served() -> None:
    async def scenario(bench: GroupBench, made: Counters) -> None:
        await lead(bench, epoch=1)
        await lead(bench, epoch=2, leader=1)
        await lead(bench, epoch=3)
        await bench.until(lambda: not made.owned.is_loading)
        assert [counter.total for counter in made.owned] == [1]
        assert len(made.owned.partitions) == 1

    run_after_a_count(scenario)


def test_a_partition_that_is_lost_while_a_thread_reads_its_log_is_not_loaded(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: GroupBench, made: Counters) -> None:
        may_read = threading.Event()
        made.workers.submit(may_read.wait, 60)
        await lead(bench, epoch=1)
        for _ in range(5):
            await asyncio.sleep(0)
        await lead(bench, epoch=2, leader=1)
        may_read.set()
        await bench.until(lambda: "loaded" in caplog.text)
        assert "not loaded to the end" in caplog.text
        assert made.loaded == []

    caplog.set_level(logging.INFO, elections.__name__)
    run_after_a_count(scenario)


class Unreadable(CounterLoader):
    """Finds the counters, and then that the disk is broken."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def states(self, now_ms: int, into: MutableMapping[str, Counter]) -> Iterator[None]:
        yield from super().states(now_ms, into)
        raise self._error


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), MemoryError()])
def test_a_partition_that_cannot_be_read_is_not_served_and_tried_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(elections, "RETRY_SECONDS", 0.001)

    async def scenario(bench: GroupBench, made: Counters) -> None:
        made.new_loader = lambda: Unreadable(error)
        await lead(bench, epoch=1)
        await bench.until(lambda: caplog.text.count("could not be loaded") > 1)
        assert type(error).__name__ in caplog.text or "Input/output error" in caplog.text
        assert made.count("a") == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        assert list(made.owned) == []
        assert set(made.unloaded) == {"a"}
        made.new_loader = CounterLoader
        await bench.until(lambda: not made.owned.is_loading)
        assert [counter.total for counter in made.owned] == [1]

    run_after_a_count(scenario)


def test_a_partition_whose_loading_fails_is_not_served_before_it_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: GroupBench, made: Counters) -> None:
        made.new_loader = lambda: Unreadable(ValueError("unexpected"))
        await lead(bench, epoch=1)
        called: list[str] = []
        made.owned.partitions[0].once_loaded(lambda: called.append("early"))
        await bench.until(lambda: "could not be loaded" in caplog.text)
        made.owned.partitions[0].once_loaded(lambda: called.append("late"))
        assert made.count("a") == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        assert (list(made.owned), made.unloaded, called) == ([], ["a"], [])

        await lead(bench, epoch=2, leader=1)
        made.new_loader = CounterLoader
        await lead(bench, epoch=3)
        await bench.until(lambda: not made.owned.is_loading)
        assert [counter.total for counter in made.owned] == [1]

    run_after_a_count(scenario)


def test_a_coordinator_that_is_not_active_serves_nothing() -> None:
    async def scenario(bench: GroupBench, made: Counters) -> None:
        await lead(bench)
        made.owned.is_active = False
        assert made.count("a") == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert made.owned.check("a") == ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(scenario)


def test_effects_are_carried_out_in_order_and_a_failed_one_does_not_stop_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: GroupBench, made: Counters) -> None:
        done: list[object] = []
        counter = Counter("a")

        def fail(_: object) -> None:
            made.runner.run(counter, [Reply(done.append, "follows")])
            raise ValueError("no")

        made.runner.run(counter, [Reply(fail, None), Many(iter([Reply(done.append, 1), Reply(done.append, 2)]), 2), Reply(done.append, 3)])
        assert done == [1, 2, 3, "follows"]
        assert "counter a: Reply could not be carried out; the rest goes on" in caplog.text

    run(scenario)


def test_much_to_do_is_done_some_in_a_turn_and_no_timer_passes_it() -> None:
    async def scenario(bench: GroupBench, made: Counters) -> None:
        done: list[object] = []
        counter = Counter("a")
        made.runner.run(counter, [Arm(EACH_ONE, 1_000)])
        many = 100
        every_pause_waits()
        made.runner.run(counter, [Many((Reply(done.append, number) for number in range(many)), LARGE + 1), Disarm(EACH_ONE)])
        assert done == []
        bench.pass_time(2_000)
        await asyncio.sleep(0)
        assert len(done) == 1
        await bench.until(lambda: len(done) == many)
        await bench.until(lambda: not counter.timers)
        assert counter.total == 0
        assert done == list(range(many))

    run(scenario)


def test_the_dead_have_no_timers() -> None:
    async def scenario(bench: GroupBench, made: Counters) -> None:
        counter = Counter("a")
        counter.is_dead = True
        made.runner.run(counter, [Arm(EACH_ONE, 1_000)])
        assert not counter.timers

    run(scenario)
