"""Runs a transaction coordinator with replica manager, partitions and logs in memory. `Leaders` plays the brokers that write markers.

    async with a_transaction_bench() as bench:
        await bench.lead()

Broker 0 is under test. The test advances time by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import count

from ottla.coordination.internal_topics import TRANSACTION_STATE_TOPIC
from ottla.coordination.transactions.coordinator import TransactionCoordinator
from ottla.coordination.transactions.effects import ProducerResult
from ottla.coordination.transactions.log_records import read_key, read_value
from ottla.coordination.transactions.metadata import VERSION_0, ProducerIdAndEpoch, TransactionMetadata
from ottla.coordination.transactions.state import NewProducerId
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.reader import iter_records
from ottla.replication.ports.peer import PeerUnavailable
from tests.support.group_bench import GroupBench
from tests.support.log_manager import Disks
from tests.support.logs import read_all
from tests.support.pauses import no_pause_waits

TIMEOUT_MS = 60_000


class Leaders:
    """Brokers that are asked to write markers."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, WriteTxnMarkersRequest]] = []
        self.codes: dict[tuple[str, int], list[ErrorCode]] = {}
        """The first error codes for a partition; later answers have NONE."""
        self.unreachable: set[int] = set()
        self.answering = asyncio.Event()
        self.answering.set()

    async def write(self, broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        self.asked.append((broker_id, request))
        await self.answering.wait()
        if broker_id in self.unreachable:
            raise PeerUnavailable(f"broker {broker_id} is not there")
        return WriteTxnMarkersResponse(markers=[self._result(marker) for marker in request.markers])

    def answer_at_once_from_now_on(self) -> asyncio.Event:
        """Hold back only what was asked before; the event answers that."""
        held, self.answering = self.answering, asyncio.Event()
        self.answering.set()
        return held

    def _result(self, marker: WritableTxnMarker) -> WritableTxnMarkerResult:
        topics = []
        for topic in marker.topics:
            result = WritableTxnMarkerTopicResult(name=topic.name)
            for index in topic.partition_indexes:
                planned = self.codes.get((topic.name, index))
                code = planned.pop(0) if planned else ErrorCode.NONE
                result.partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
            topics.append(result)
        return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)

    @property
    def partitions(self) -> list[tuple[int, str, int]]:
        """(broker, topic, index) of every marker that was asked for, in order."""
        return [
            (broker_id, topic.name, index)
            for broker_id, request in self.asked
            for marker in request.markers
            for topic in marker.topics
            for index in topic.partition_indexes
        ]


class TransactionBench(GroupBench):
    """See the module."""

    def __init__(self, disks: Disks, workers: ThreadPoolExecutor, **config: str | int) -> None:
        disks.topics[TRANSACTION_STATE_TOPIC] = {"cleanup.policy": "compact"}
        super().__init__(disks, workers, transaction_state_log_num_partitions=1, **config)
        self.leaders = Leaders()
        self.partitions_in_store: dict[str, int] = {"t": 3, "u": 1}
        self.new_producer_id: NewProducerId = count(1_000).__next__
        self.level = 0
        """Of transaction.version."""
        self.transactions = TransactionCoordinator(
            disks.broker,
            self.clock,
            self.wheel,
            self.replica_manager,
            self.purgatory,
            workers,
            self.leaders.write,
            self._partitions_of,
            self._next_producer_id,
            lambda: self.level,
        )
        self.replica_manager.leadership_listeners.append(self.transactions.on_leadership_change)
        self.transactions.start()
        self.announce({"t": 3, "u": 1})

    def _next_producer_id(self) -> int | None:
        return self.new_producer_id()

    async def _partitions_of(self, topic: str) -> range:
        return range(self.partitions_in_store.get(topic, 0))

    async def take_turns(self) -> None:
        """Let tasks do what they can do now."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def coordinate(self, *, epoch: int = 0, leader: int = 0, isr: tuple[int, ...] = (0,)) -> None:
        """Broker `leader` leads the partition of `__transaction_state`."""
        await self.lead(topic=TRANSACTION_STATE_TOPIC, epoch=epoch, leader=leader, isr=isr)
        await self.until(lambda: not self.transactions.transactions.is_loading)

    def init(self, name: str = "id", expected: ProducerIdAndEpoch | None = None) -> list[ProducerResult]:
        """InitProducerId; the answer is put into the list."""
        answers: list[ProducerResult] = []
        self.transactions.init_producer_id(name, TIMEOUT_MS, expected, answers.append)
        return answers

    def add(self, *indexes: int, topic: str = "t", name: str = "id", version: int = VERSION_0) -> list[ErrorCode]:
        """AddPartitionsToTxn of the present producer; the answer is put into the list."""
        answers: list[ErrorCode] = []
        self.transactions.add_partitions(name, self.producer(name), {topic: frozenset(indexes)}, version, answers.append)
        return answers

    def end(self, is_commit: bool = True, name: str = "id", version: int = VERSION_0) -> list[ErrorCode]:
        """EndTxn of the present producer; the answer is put into the list."""
        answers: list[ErrorCode] = []
        self.transactions.end(name, self.producer(name), is_commit, version, lambda result: answers.append(result.error))
        return answers

    def producer(self, name: str = "id") -> ProducerIdAndEpoch:
        """The id and epoch of the producer."""
        txn = self.txn(name)
        return ProducerIdAndEpoch(txn.producer_id, txn.producer_epoch)

    def txn(self, name: str = "id") -> TransactionMetadata:
        """The transactional id as the coordinator knows it."""
        txn = self.transactions.transactions.get(name)
        assert txn is not None
        return txn

    def state(self, name: str = "id") -> str:
        """Kafka's name of its state."""
        return self.txn(name).state.label

    def stored(self) -> list[tuple[str, str]]:
        """(transactional id, state) of all records in the log; the state of a tombstone is empty."""
        data = read_all(self.replica_manager.partition_or_raise(TRANSACTION_STATE_TOPIC, 0).log)
        found = []
        for position, header in iter_batches(data):
            for record in iter_records(data, position, header):
                name = read_key(record.key or b"") or ""
                found.append((name, "" if record.value is None else read_value(name, record.value).state.label))
        return found


@asynccontextmanager
async def a_transaction_bench(disks: Disks | None = None, **config: str | int) -> AsyncIterator[TransactionBench]:
    """A started coordinator that leads nothing yet."""
    no_pause_waits()
    with ThreadPoolExecutor(1) as workers:
        bench = TransactionBench(disks or Disks(), workers, **config)
        try:
            yield bench
        finally:
            await bench.transactions.stop()
            await bench.groups.stop()
            bench.manager.shutdown()


def run(scenario: Callable[[TransactionBench], Awaitable[None]], disks: Disks | None = None, **config: str | int) -> None:
    """Runs the scenario on an event loop of its own."""

    async def main() -> None:
        async with a_transaction_bench(disks, **config) as bench:
            await scenario(bench)

    asyncio.run(main())
