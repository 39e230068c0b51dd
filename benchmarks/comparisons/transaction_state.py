"""Measures the transaction coordinator at its largest: `python -m benchmarks.comparisons.transaction_state [--ids 1000000] [--partitions
100000]`.

    load   a partition of `__transaction_state` with one record of each of N transactional ids is loaded; memory per id is what the
           process has more of afterwards
    crowd  10,000 ids, of which 1,000 have an open transaction at once, each of three partitions
    large  one transaction of N partitions is opened, committed and marked; the longest turn of the event loop is that of its thread's
           processor time; another one adds one partition of each of N topics

The coordinator, its log and everything below are real. Files are kept in memory, and the leaders that write markers answer at once. The
collector of garbage pauses while ids are loaded, as in a broker. `--json FILE` writes the numbers that the part `transaction-state` of
`benchmarks.bench` shows.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeAlias

from benchmarks.brokers.process import resident_bytes
from benchmarks.stalls.long_turns import Turns
from ottla.broker.loop.collector import collector_paused
from ottla.coordination.internal_topics import TRANSACTION_STATE_TOPIC
from ottla.coordination.partitions.topic_log import TopicLog, encode_pairs
from ottla.coordination.transactions.log_records import transaction_key, transaction_value
from ottla.coordination.transactions.metadata import VERSION_0, TransactionState, TransitMetadata
from ottla.coordination.transactions.partitions import Partitions
from ottla.pauses import begin_slices
from ottla.protocol.compiled import describe
from ottla.protocol.errors import ErrorCode
from tests.support.clocks import ManualClock
from tests.support.log_manager import Disks
from tests.support.pauses import at_once
from tests.support.transaction_bench import TIMEOUT_MS, TransactionBench, a_transaction_bench

RECORDS_PER_BATCH: Final = 5_000
PARTITIONS_PER_TOPIC: Final = 1_000
FIRST_PRODUCER_ID: Final = 1 << 20
CROWD: Final = 10_000
OPEN_AT_ONCE: Final = 1_000

Numbers: TypeAlias = dict[str, float]
"""The results by name."""


def a_record(number: int) -> tuple[bytes, bytes]:
    """A transactional id as long as those of Kafka Streams, whose last transaction was committed."""
    transit = TransitMetadata(
        producer_id=FIRST_PRODUCER_ID + number,
        previous_producer_id=-1,
        producer_epoch=7,
        last_producer_epoch=-1,
        timeout_ms=TIMEOUT_MS,
        state=TransactionState.COMPLETE_COMMIT,
        partitions={},
        start_ms=1_700_000_000_000 + number,
        last_update_ms=1_700_000_000_500 + number,
    )
    return transaction_key(f"application-5fe3a6c4-7f0d-4d8e-9d0f-{number:012d}-1"), at_once(transaction_value(transit, 0))


@asynccontextmanager
async def a_bench(disks: Disks | None = None, **config: str | int) -> AsyncIterator[TransactionBench]:
    """A coordinator whose long work pauses as in a broker, which it does not in unit tests."""
    async with a_transaction_bench(disks, **config) as bench:
        begin_slices(asyncio.get_running_loop())
        yield bench


async def load(ids: int) -> Numbers:
    """Print and return how long loading takes, and what it leaves in memory."""
    disks = Disks()
    disks.clock = _Running()
    async with a_bench(disks) as bench:
        await bench.coordinate()
        partition = bench.replica_manager.partition_or_raise(TRANSACTION_STATE_TOPIC, 0)
        log = TopicLog(TRANSACTION_STATE_TOPIC, bench.replica_manager, bench.purgatory, bench.clock, timeout_ms=TIMEOUT_MS)
        for first in range(0, ids, RECORDS_PER_BATCH):
            count = min(RECORDS_PER_BATCH, ids - first)
            log.append(0, encode_pairs([a_record(number) for number in range(first, first + count)]), count, _check)
        log_bytes = partition.log.size_bytes
        await bench.coordinate(epoch=1, leader=1)
        gc.collect()
        before = resident_bytes(os.getpid())
        longest = _Longest()
        began, began_cpu = time.monotonic(), time.process_time()
        with collector_paused():
            await bench.lead(topic=TRANSACTION_STATE_TOPIC, epoch=2)
            while bench.transactions.transactions.is_loading:
                longest.turn()
                await asyncio.sleep(0)
        took, cpu = time.monotonic() - began, time.process_time() - began_cpu
        loaded = sum(1 for _ in bench.transactions.transactions)
        assert loaded == ids
        gc.collect()
        more = resident_bytes(os.getpid()) - before
        print(f"load: {ids} ids, {log_bytes / 2**20:.0f} MiB of log: {took:.1f} s, {cpu:.1f} s of processor time", flush=True)
        print(f"      {more / ids:.0f} bytes per id; longest turn {longest.ms:.1f} ms", flush=True)
        return {"load_s": took, "load_cpu_s": cpu, "load_bytes_per_id": more / ids, "load_turn_ms": longest.ms}


def _check(error: ErrorCode, _: int) -> None:
    assert not error, error.name


class _Running(ManualClock):
    """Runs, so that loading knows when others have the event loop."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary point."""
        return time.monotonic()


class _Longest:
    """The longest turn of the loop, in processor time of its thread, as seen by a task that runs in every turn."""

    def __init__(self) -> None:
        self.ms = 0.0
        self._last = time.thread_time()

    def turn(self) -> None:
        """A turn is over."""
        now = time.thread_time()
        self.ms = max(self.ms, (now - self._last) * 1000)
        self._last = now


async def large(partitions: int) -> Numbers:
    """Print the turns of a transaction with many partitions; returns the longest ones."""
    async with a_bench() as bench:
        await bench.coordinate()
        topics = [f"topic-{number}" for number in range(-(-partitions // PARTITIONS_PER_TOPIC))]
        all_of_them = frozenset(range(PARTITIONS_PER_TOPIC))
        bench.announce(dict.fromkeys(topics, PARTITIONS_PER_TOPIC))
        bench.partitions_in_store |= dict.fromkeys(topics, PARTITIONS_PER_TOPIC)
        named: Partitions = dict.fromkeys(topics, all_of_them)
        bench.init()
        turns = Turns(where=False)
        added_ms = await _in_one_turn(bench, "AddPartitionsToTxn", lambda reply: _add(bench, named, reply), turns)
        ended_ms = await _in_one_turn(bench, "EndTxn", lambda reply: _end(bench, reply), turns)
        await bench.until(lambda: bench.state() == "CompleteCommit")
        marked_ms = turns.longest_ms()
        turns.report("markers")
        return {"large_add_ms": added_ms, "large_end_ms": ended_ms, "large_markers_ms": marked_ms}


def _add(bench: TransactionBench, named: Partitions, reply: Callable[[ErrorCode], None]) -> None:
    bench.transactions.add_partitions("id", bench.producer(), named, VERSION_0, reply)


def _end(bench: TransactionBench, reply: Callable[[ErrorCode], None]) -> None:
    bench.transactions.end("id", bench.producer(), True, VERSION_0, lambda result: reply(result.error))


async def many_topics(topics: int) -> Numbers:
    """Print the turns of a request that adds one partition of each of many topics; returns the longest one."""
    async with a_bench(message_max_bytes=64 << 20) as bench:
        await bench.coordinate()
        named: Partitions = {f"topic-{number}": frozenset((0,)) for number in range(topics)}
        bench.init()
        turns = Turns(where=False)
        name = f"AddPartitionsToTxn of {topics} topics"
        return {"topics_add_ms": await _in_one_turn(bench, name, lambda reply: _add(bench, named, reply), turns)}


async def crowd(ids: int, open_at_once: int) -> Numbers:
    """Print and return the time of many ids, some of which have open transactions at once, and the longest turn of their markers."""
    async with a_bench() as bench:
        await bench.coordinate()
        names = [f"application-5fe3a6c4-7f0d-4d8e-9d0f-{number:012d}-1" for number in range(ids)]
        turns = Turns(where=False)
        began = time.monotonic()
        for name in names:
            bench.init(name)
        for name in names[:open_at_once]:
            bench.add(0, 1, 2, name=name)
        for name in names[:open_at_once]:
            bench.end(name=name)
        await bench.until(lambda: bench.transactions.stats.commits == open_at_once)
        took = time.monotonic() - began
        print(f"crowd: {ids} ids, {open_at_once} transactions open at once and committed: {took:.1f} s", flush=True)
        longest_ms = turns.longest_ms(but=crowd.__name__)  # in its own turns it sends all requests
        turns.report("markers of the crowd")
        return {"crowd_s": took, "crowd_turn_ms": longest_ms}


async def _in_one_turn(bench: TransactionBench, name: str, ask: Callable[[Callable[[ErrorCode], None]], None], turns: Turns) -> float:
    """Print how long the request holds the loop. Returns its longest turn, ms."""
    answers: list[ErrorCode] = []
    began = time.thread_time()
    ask(answers.append)
    print(f"{name}: {(time.thread_time() - began) * 1000:.1f} ms in the turn of the request", flush=True)
    await bench.until(lambda: bool(answers))
    assert answers == [ErrorCode.NONE]
    longest_ms = turns.longest_ms()
    turns.report(name)
    return longest_ms


def main() -> None:
    """Run all, print, and write the numbers where they are wanted."""
    parser = argparse.ArgumentParser(description="The transaction coordinator with many ids, and with a large transaction.")
    parser.add_argument("--ids", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--json", type=Path, help="a file for the numbers")
    arguments = parser.parse_args()
    print(describe())
    numbers: Numbers = {}
    if arguments.partitions:
        numbers |= asyncio.run(large(arguments.partitions))
        numbers |= asyncio.run(many_topics(arguments.partitions))
        numbers |= asyncio.run(crowd(CROWD, OPEN_AT_ONCE))
    if arguments.ids:
        numbers |= asyncio.run(load(arguments.ids))
    if arguments.json:
        arguments.json.write_text(json.dumps(numbers), encoding="ascii")


if __name__ == "__main__":
    main()
