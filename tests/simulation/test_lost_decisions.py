"""Loses the end of `__transaction_state` in an unclean election; the transactional id and the last stable offset go on.

What the coordinator had decided is lost then, so nothing is said of what is read of that transaction. Apache Kafka does the same.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.leader.partition import Partition
from tests.simulation.clients import Leaders
from tests.simulation.cluster import SESSION_TIMEOUT_S, SimulatedCluster
from tests.simulation.committed import batches
from tests.simulation.ledger import Fate, TransactionalId
from tests.simulation.network import Exchange
from tests.simulation.outcomes import TRANSACTION_STATE
from tests.simulation.scene import SteppedProducer, is_api
from tests.simulation.transactions import Refused

OUTPUT = TopicPartition("transfers", 0)
DECISIONS = TopicPartition(TRANSACTION_STATE, 0)
CONFIG = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "min.insync.replicas": "1",
}
UNCLEAN = 1
TIMEOUT_MS = 3_000
PATIENCE_S = 60.0
EMPTY, ONGOING, PREPARE, COMPLETE = range(1, 5)
"""Records of the transactional id, in their order."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class UncleanScene:
    """One transaction, of whose records the second coordinator has the first `kept`; with or without its marker in the partition."""

    def __init__(self, seed: int, kept: int, *, marked: bool) -> None:
        self.cluster = SimulatedCluster(seed, 3, CONFIG)
        self.kept = kept
        self.marked = marked
        self.leaders = Leaders(self.cluster, OUTPUT.topic, 1)
        self.owner = TransactionalId("one")
        self.producers = 0

    def play(self) -> None:
        try:
            self.cluster.run(self._play())
        finally:
            self.cluster.close()

    async def _play(self) -> None:
        cluster = self.cluster
        await asyncio.gather(*(cluster.start(broker_id) for broker_id in cluster.nodes))
        producer = await self.producer()
        former = self.leader(DECISIONS)
        (follower,) = (broker_id for broker_id in former.replicas if broker_id != former.broker_id)
        (other,) = (broker_id for broker_id in cluster.nodes if broker_id not in former.replicas)
        await self.create_output(other)
        held: list[Exchange] = []

        def hold(exchange: Exchange) -> bool:
            if is_api(exchange, ApiKey.WRITE_TXN_MARKERS):
                held.append(exchange)
                return False
            return True

        cluster.network.may_arrive = hold
        await self.maybe_lose(EMPTY, former, follower)
        transaction = await producer.write(1)
        await self.maybe_lose(ONGOING, former, follower)
        await producer.finish(transaction, is_commit=True)
        await self.maybe_lose(PREPARE, former, follower)
        if self.marked:
            cluster.network.may_arrive = lambda exchange: True
            for exchange in held:
                exchange.arrive()
            await self.until(self.is_stable, "the marker")
            await self.until(lambda: former.log.high_watermark == COMPLETE, "the end to be stored")
        await self.maybe_lose(COMPLETE, former, follower)
        cluster.kill(former.broker_id)
        cluster.network.may_arrive = lambda exchange: True
        await asyncio.sleep(2 * SESSION_TIMEOUT_S)
        await cluster.start(follower)
        while not self.leads(follower):  # the controller may not know yet which broker is gone, or which one is back
            await self.elect_uncleanly()
            await asyncio.sleep(0.5)
        await cluster.start(former.broker_id)
        await self.goes_on()
        await self.until(self.replicas_agree, "the former coordinator to truncate its log")

    async def goes_on(self) -> None:
        """A new producer of the id commits, and all of the partition is stable, without an operator."""
        transaction = None
        while transaction is None or transaction.fate is not Fate.COMMITTED:
            with suppress(Refused):
                producer = await self.producer()
                transaction = await producer.write(1)
                await producer.finish(transaction, is_commit=True)
        await self.until(self.is_stable, "the last stable offset")
        coordinator = next(broker for broker in self.cluster.brokers() if broker.services.broker_id == self.leader(DECISIONS).broker_id)
        transactions = coordinator.services.coordinators.transactions
        await self.until(lambda: [txn.state.label for txn in transactions.transactions] == ["CompleteCommit"], "the end of the transaction")

    async def maybe_lose(self, record: int, former: Partition, follower: int) -> None:
        """The follower dies when it has this record, if it is the last one that is kept. The coordinator goes on alone."""
        if record == self.kept:
            await self.until(lambda: former.log.high_watermark == former.log.log_end_offset == record, "the record to be replicated")
            self.cluster.kill(follower)
            await self.until(lambda: len(former.isr) == 1, "the coordinator to go on alone")

    async def producer(self) -> SteppedProducer:
        """A new instance of the producer, with an epoch."""
        self.producers += 1
        producer = SteppedProducer(self.cluster, self.leaders, self.owner, f"producer {self.producers}", OUTPUT.topic, seed=self.producers)
        producer.timeout_ms = TIMEOUT_MS
        await producer.take_epoch()
        return producer

    async def create_output(self, broker_id: int) -> None:
        """The topic has one replica, on a broker without `__transaction_state`."""
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[broker_id])
        topic = CreatableTopic(name=OUTPUT.topic, num_partitions=-1, replication_factor=-1, assignments=[assignment])
        request = CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
        await self.cluster.client(self.controller()).request(ApiKey.CREATE_TOPICS, 7, request, timeout_ms=10_000)

    async def elect_uncleanly(self) -> None:
        """As `kafka-leader-election.sh --election-type unclean` does."""
        topics = [TopicPartitions(topic=DECISIONS.topic, partitions=[DECISIONS.partition])]
        request = ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=topics, timeout_ms=5_000)
        await self.cluster.client(self.controller()).request(ApiKey.ELECT_LEADERS, 2, request, timeout_ms=10_000)

    def controller(self) -> int:
        """The broker with the active controller."""
        return next(broker.services.broker_id for broker in self.cluster.brokers() if broker.controller.is_active)

    def leader(self, partition: TopicPartition) -> Partition:
        """The replica that leads."""
        return next(replica for replica in self.cluster.replicas(*partition).values() if replica.is_leader)

    def is_stable(self) -> bool:
        """Whether no transaction holds readers of the partition back."""
        log = self.leader(OUTPUT).log
        return log.last_stable_offset == log.log_end_offset

    def leads(self, broker_id: int) -> bool:
        """Whether the broker leads `__transaction_state`."""
        replica = self.cluster.replicas(*DECISIONS).get(broker_id)
        return replica is not None and replica.is_leader

    def replicas_agree(self) -> bool:
        """Whether both logs of `__transaction_state` have the same batches, and both replicas are in sync."""
        replicas = self.cluster.replicas(*DECISIONS).values()
        logs = [list(batches(each.log, 0, each.log.log_end_offset)) for each in replicas]
        return len(logs) == 2 and logs[0] == logs[1] and len(self.leader(DECISIONS).isr) == 2

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait, but not for ever."""
        deadline = self.cluster.loop.time() + PATIENCE_S
        while not condition():
            assert self.cluster.loop.time() < deadline, f"waited {PATIENCE_S:.0f} virtual seconds for {what}"
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("seed", range(20) if "OTTLA_SOAK" in os.environ else (7,))
@pytest.mark.parametrize(
    ("kept", "marked"), [(EMPTY, True), (EMPTY, False), (ONGOING, True), (ONGOING, False), (PREPARE, False), (COMPLETE, True)]
)
def test_a_coordinator_that_lost_its_last_records_in_an_unclean_election_blocks_nobody(seed: int, kept: int, marked: bool) -> None:
    UncleanScene(seed, kept, marked=marked).play()
