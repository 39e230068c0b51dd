"""Transactional producers of a simulated cluster, and the consumers that read only what they commit.

Several instances may share a transactional id; the newest one fences the others. A producer that is refused begins anew, with another
epoch. Where the cluster allows it, a producer chooses the version of each transaction (KIP-890). It moves from version 1 to 2 with a new
epoch only, as Java's producer does. Otherwise a leader that has the last transaction's records, and not its marker yet, would take the
first records of version 2 for more of them.

In version 0 it begins anew also after a request without an answer, which could arrive in its next transaction: nothing else keeps such a
request from that transaction. What its coordinator says about the end of a transaction is certain only if that broker had begun the
transaction, too. A deposed coordinator may confirm a repeated EndTxn from memory, with Apache Kafka as well. In version 2 the raised epoch
does both: it keeps late requests out, and an EndTxn that comes once more gets the recorded answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, AddPartitionsToTxnTopic
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.fetch import PartitionData
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.builder import ControlRecordType, build_batch, parse_end_transaction_marker
from ottla.protocol.records.reader import Record, iter_records
from ottla.protocol.schema.message import Message
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.ports.peer import PeerUnavailable
from tests.simulation.clients import BACKOFF_S, PRODUCE_TIMEOUT_MS, TRANSACTIONAL_ID, Consumer, CoordinatorClient, Leaders
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.committed import Committed
from tests.simulation.ledger import Fate, Ledger, ProducerEpoch, Transaction, TransactionalId

TRANSACTIONS_PER_S = 10.0
COMMITTED_OF_ALL = 0.7
VANISHES = 0.03
"""How likely a producer leaves its transaction open, without a word."""
OVERSLEEPS = 0.03
"""How likely it ends the transaction only after its timeout."""
LATE = 0.1
"""How likely something arrives that it had sent for a transaction that has ended."""
RETURNS_PER_S = 2.0
REFUSALS = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""Errors that end the transaction for this instance. A deposed coordinator may say so of what it has not heard of."""
NEVER = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR})


class Refused(Exception):
    """The instance cannot go on with its epoch."""


class TransactionalClient(CoordinatorClient):
    """One instance of the producer of a transactional id. Subclasses say what a transaction is."""

    version_2 = 0.7
    """How likely a transaction has version 2, where the cluster allows it."""

    def __init__(self, cluster: SimulatedCluster, leaders: Leaders, owner: TransactionalId, instance: str, topic: str, seed: int) -> None:
        super().__init__(cluster, topic, TRANSACTIONAL_ID, owner.name, seed)
        self.stopping = False
        self.owner = owner
        self.instance = instance
        self.producer: ProducerEpoch | None = None
        self._leaders = leaders
        self.timeout_ms = self.random.randint(1500, 5000)
        self._sequences: dict[int, int] = {}
        self.in_version_2 = False
        """Whether the transaction has version 2."""
        self._stays_in_version_1 = False
        """Whether a transaction of this epoch had version 1."""
        self._ended: tuple[ProducerEpoch, dict[int, int]] | None = None
        """The producer and the sequence numbers of the last transaction of version 2."""
        self._is_clean = True
        """Whether every request of the transaction was answered."""
        self._began_at: set[int | None] = set()
        """The brokers that confirmed the beginning of the transaction."""

    async def run(self) -> None:
        """Until `stopping`, epoch after epoch."""
        while not self.stopping:
            try:
                await self.take_epoch()
                await self.prepare()
                may_go_on = True
                while may_go_on and not self.stopping:
                    await asyncio.sleep(self.random.expovariate(TRANSACTIONS_PER_S))
                    may_go_on = await self.transact()
            except Refused:
                await asyncio.sleep(self.random.expovariate(RETURNS_PER_S))

    async def prepare(self) -> None:
        """The instance has a new epoch, and everything before it has ended."""

    async def transact(self) -> bool:
        """Do one transaction. Returns whether the next one may have the same epoch. Raises Refused."""
        raise NotImplementedError

    # Steps of a transaction

    async def take_epoch(self) -> None:
        """Sometimes as the instance that it was (KIP-360), sometimes as a new one."""
        before, sequences = self.producer, self._sequences
        expected = before if self.random.random() < 0.5 else None
        while True:
            request = InitProducerIdRequest(transactional_id=self.owner.name, transaction_timeout_ms=self.timeout_ms)
            if expected is not None:
                request.producer_id, request.producer_epoch = expected
            answer = cast("InitProducerIdResponse | None", await self.ask_coordinator(ApiKey.INIT_PRODUCER_ID, 4, request))
            if answer is not None and answer.error_code == ErrorCode.NONE:
                break
            if answer is not None and answer.error_code in REFUSALS:
                expected = None
            await self._wait(None if answer is None else answer.error_code)
        self.producer = ProducerEpoch(answer.producer_id, answer.producer_epoch)
        self.owner.give(self.instance, self.producer)
        self._sequences = {}
        self._stays_in_version_1 = False
        self._ended = None
        if before is not None and before != self.producer and sequences and self.random.random() < LATE:
            await self._try_to_send_late(before, sequences)

    def begin(self) -> Transaction:
        """A new transaction."""
        self._is_clean = True
        self._began_at = set()
        may_rise = self.cluster.transaction_version == 2 and self.random.random() < self.version_2
        self.in_version_2 = may_rise and not self._stays_in_version_1
        self._stays_in_version_1 |= not self.in_version_2
        return self.owner.begin()

    async def add_partitions(self, partitions: list[int]) -> None:
        """AddPartitionsToTxn; in version 2 Produce adds them."""
        if self.in_version_2:
            return
        producer = self._own()
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.owner.name,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self.topic, partitions=partitions)],
        )

        def code(answer: Message) -> int:
            (topic,) = cast("AddPartitionsToTxnResponse", answer).results_by_topic_v3_and_below
            return max(each.partition_error_code for each in topic.results_by_partition)

        await self.ask_until_done(self, ApiKey.ADD_PARTITIONS_TO_TXN, 3, request, code)
        self._began_at.add(self.coordinator)

    async def send(self, partition: int, values: list[bytes]) -> None:
        """Produce a batch until it is acknowledged."""
        producer = self._own()
        sequence = self._sequences.get(partition, 0)
        batch = self._batch(values, producer, sequence)
        while True:
            leader = await self._leaders.leader(partition)
            code = await self._produce(leader, partition, batch)
            if code == ErrorCode.NONE:
                break
            assert code not in NEVER, f"{self.instance}: {code.name} for {values} to {self.topic}-{partition}"
            if code in REFUSALS:
                raise Refused
            self._leaders.forget(partition, leader)
            await asyncio.sleep(BACKOFF_S * (0.5 + self.random.random()))
        self._sequences[partition] = sequence + len(values)
        ended, self._ended = self._ended, None
        if ended is not None and ended[1] and self.random.random() < LATE:  # a transaction with records follows the last marker
            await self._try_to_send_late(*ended)

    async def end(self, transaction: Transaction) -> bool:
        """EndTxn, or not. Returns whether the next transaction may follow with the same epoch."""
        chance = self.random.random()
        if chance < VANISHES:
            return False
        if chance < VANISHES + OVERSLEEPS:
            await asyncio.sleep(self.timeout_ms / 1000 + self.random.random())
        return await self.finish(transaction, is_commit=self.random.random() < COMMITTED_OF_ALL)

    async def finish(self, transaction: Transaction, *, is_commit: bool) -> bool:
        """EndTxn until it is confirmed. Returns whether the next transaction may follow without a new InitProducerId. Raises Refused."""
        producer, newest = self._own(), self.owner.newest
        if is_commit:
            self.owner.ask_commit(transaction)
        request = EndTxnRequest(
            transactional_id=self.owner.name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=is_commit,
        )
        version = 5 if self.in_version_2 else 3
        answer = await self.ask_until_done(self, ApiKey.END_TXN, version, request, lambda answer: cast("EndTxnResponse", answer).error_code)
        if not self.in_version_2 and self.coordinator not in self._began_at:
            return False
        assert producer == newest, f"{self.instance} ended a transaction as {producer}; {newest} had been given before"
        transaction.fate = Fate.COMMITTED if is_commit else Fate.ABORTED
        if not self.in_version_2:
            return self._is_clean
        self._take_next_epoch(producer, cast("EndTxnResponse", answer))
        return True

    def _take_next_epoch(self, before: ProducerEpoch, answer: EndTxnResponse) -> None:
        """The end of a transaction of version 2 has raised the epoch."""
        self.producer = ProducerEpoch(answer.producer_id, answer.producer_epoch)
        self.owner.give(self.instance, self.producer)
        self._ended = before, self._sequences
        self._sequences = {}

    async def ask_until_done(
        self, coordinator: CoordinatorClient, key: ApiKey, version: int, request: Message, code_of: Callable[[Message], int]
    ) -> Message:
        """Ask a coordinator until it has done it, and return its answer. Raises Refused."""
        while True:
            answer = await coordinator.ask_coordinator(key, version, request)
            if answer is None:
                self._is_clean = False
                code = None
            else:
                code = code_of(answer)
                if code == ErrorCode.NONE:
                    return answer
                if code in REFUSALS:
                    raise Refused
            await self._wait(code, coordinator)

    async def _wait(self, code: int | None, coordinator: CoordinatorClient | None = None) -> None:
        """Before a coordinator is asked again."""
        if code is not None:
            assert code not in NEVER, f"{self.instance}: {ErrorCode.of(code).name} from ottla.broker {(coordinator or self).coordinator}"
            if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                (coordinator or self).forget_coordinator()
        await asyncio.sleep(BACKOFF_S * (0.5 + self.random.random()))

    async def _try_to_send_late(self, before: ProducerEpoch, sequences: dict[int, int]) -> None:
        """A batch of a transaction that has ended reaches its partition, and must not begin another one."""
        partition = self.random.choice(list(sequences))
        batch = self._batch([b"too late"], before, sequences[partition])
        code = await self._produce(await self._leaders.leader(partition), partition, batch)
        said = f"{self.instance}: a late batch of {before} was taken by {self.topic}-{partition}; {self.producer} had been given before"
        assert code != ErrorCode.NONE, said
        assert code not in NEVER, said

    def _own(self) -> ProducerEpoch:
        assert self.producer is not None
        return self.producer

    def _batch(self, values: list[bytes], producer: ProducerEpoch, sequence: int) -> bytes:
        records = [Record(i, self.cluster.clock.now_ms(), None, value) for i, value in enumerate(values)]
        producer_id, epoch = producer
        return bytes(build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True))

    async def _produce(self, leader: int, partition: int, batch: bytes) -> ErrorCode:
        data = [TopicProduceData(name=self.topic, partition_data=[PartitionProduceData(index=partition, records=memoryview(batch))])]
        request = ProduceRequest(transactional_id=self.owner.name, acks=-1, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=data)
        try:
            answer = await self.ask(leader, ApiKey.PRODUCE, 12 if self.in_version_2 else 11, request)
        except PeerUnavailable:
            return ErrorCode.NETWORK_EXCEPTION
        (result,) = cast("ProduceResponse", answer).responses[0].partition_responses
        return ErrorCode.of(result.error_code)


class TransactionalProducer(TransactionalClient):
    """Writes to some of the partitions in each transaction."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        leaders: Leaders,
        owner: TransactionalId,
        instance: str,
        topic: str,
        partitions: int,
        seed: int,
    ) -> None:
        super().__init__(cluster, leaders, owner, instance, topic, seed)
        self._partitions = partitions

    async def transact(self) -> bool:
        """See TransactionalClient."""
        transaction = self.begin()
        partitions = self.random.sample(range(self._partitions), self.random.randint(1, self._partitions))
        await self.add_partitions(partitions)
        for partition in [*partitions, self.random.choice(partitions)]:
            await self.send(partition, [transaction.add(partition) for _ in range(self.random.randint(1, 3))])
        return await self.end(transaction)


class CommittedConsumer(Consumer):
    """Reads what was committed in one partition, as consumers with `isolation.level=read_committed` do."""

    isolation_level = 1

    def __init__(
        self, cluster: SimulatedCluster, partition: TopicPartition, leaders: Leaders, committed: Committed, ledger: Ledger, seed: int
    ) -> None:
        super().__init__(cluster, partition, leaders, committed, seed)
        self._ledger = ledger

    def take(self, answer: PartitionData) -> None:
        """Read what a leader sent, but for what it says was aborted."""
        where = f"partition {self.partition} of {self.topic}"
        stable = answer.last_stable_offset
        self.committed.check_last_stable_offset(stable, where)
        aborted = sorted(((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ()), reverse=True)
        gone: set[int] = set()
        data = bytes(answer.records or b"")
        for at, header in iter_batches(data):
            assert header.base_offset <= self.position <= header.last_offset, f"{where}: {header.base_offset} is read at {self.position}"
            assert header.last_offset < stable, f"{where}: {header.last_offset} was read, and all is stable up to {stable}"
            while aborted and aborted[-1][0] <= header.last_offset:
                gone.add(aborted.pop()[1])
            for record in iter_records(data, at, header):
                if header.is_control:
                    if parse_end_transaction_marker(record).type is ControlRecordType.ABORT:
                        gone.discard(header.producer_id)
                elif record.offset >= self.position and header.producer_id not in gone:
                    assert record.value is not None
                    self.committed.see(record.offset, record.value)
                    self._ledger.see(TopicPartition(self.topic, self.partition), record.offset, record.value)
            self.position = header.last_offset + 1
