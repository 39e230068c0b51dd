"""Plays transactions step by step on a simulated cluster, so that a fault can strike at a chosen step. The stories have theirs by chance.

A scene ends as a story does: all faults pass, and every transaction ends by itself. The transactional id serves a new producer. Consumers
of committed records have read each transaction whole, or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.topic_partition import TopicPartition
from tests.simulation.clients import Leaders
from tests.simulation.cluster import SESSION_TIMEOUT_S, Node, SimulatedCluster
from tests.simulation.ledger import Fate, Transaction
from tests.simulation.loop import Life
from tests.simulation.network import Exchange
from tests.simulation.outcomes import TRANSACTION_STATE
from tests.simulation.stage import Stage
from tests.simulation.transactions import Refused, TransactionalClient

OUTPUT = "transfers"
PARTITIONS = 3
ID = "one"
DECISIONS = TopicPartition(TRANSACTION_STATE, 0)
DATA = [TopicPartition(OUTPUT, index) for index in range(PARTITIONS)]
CONFIG = {"transaction.state.log.num.partitions": "1"}
RECORDS = 2
RESTART_S = 1.0

OnWrite = Callable[[int, TopicPartition], None]
OnArrival = Callable[[Exchange], bool]


class SteppedProducer(TransactionalClient):
    """Does what it is told, and no more."""

    version_2 = 1.0

    async def write(self, partitions: int = PARTITIONS) -> Transaction:
        """A transaction with some records in each partition, not ended. Raises Refused."""
        transaction = self.begin()
        indexes = list(range(partitions))
        await self.add_partitions(indexes)
        for index in indexes:
            await self.send(index, [transaction.add(index) for _ in range(RECORDS)])
        return transaction


class Scene(Stage):
    """See the module. With `transaction_version` 2 all transactions have version 2. `on_write` is told of each batch that is appended to a
    watched partition, by broker and partition.
    """

    def __init__(self, seed: int, brokers: int = 3, transaction_version: int = 0) -> None:
        super().__init__(SimulatedCluster(seed, brokers, CONFIG, transaction_version), [*DATA, DECISIONS], [ID])
        self.leaders = Leaders(self.cluster, OUTPUT, self.random.getrandbits(32))
        self.on_write: OnWrite = lambda broker_id, partition: None
        self._ends: dict[tuple[int, TopicPartition], int] = {}
        self.cluster.loop.after_step = self._after_step

    def play(self, scenario: Callable[[Scene], Awaitable[None]]) -> None:
        """Raises AssertionError when something was not as it always must be."""
        try:
            self.cluster.run(self._play(scenario))
        finally:
            self.cluster.close()

    async def _play(self, scenario: Callable[[Scene], Awaitable[None]]) -> None:
        await asyncio.gather(*(self.cluster.start(broker_id) for broker_id in self.cluster.nodes))
        await self.create_topic(OUTPUT, PARTITIONS)
        consumers = self.committed_consumers(OUTPUT, self.leaders)
        self.tasks = [asyncio.create_task(each.run()) for each in consumers]
        await scenario(self)
        self.on_write = lambda broker_id, partition: None
        self.on_arrival(lambda exchange: True)
        self.cluster.network.heal()
        await self.restart()
        await self.until(self.has_no_transaction, "every transaction to end")
        last = await self.committed("last")
        await self.until(self.has_no_transaction, "the last transaction to end")
        await self.until(self.is_whole, "every replica to be in sync")
        self.invariants.check_at_the_end()
        await self.until(lambda: all(each.position == each.committed.end_offset for each in consumers), "the consumers")
        self.ledger.check_at_the_end()
        assert is_read(last), "the transactional id does not serve a new producer"
        for task in self.tasks:
            task.cancel()

    # -- who does what -----------------------------------------------------------------------------------------------------

    async def producer(self, instance: str, timeout_ms: int = 20_000) -> SteppedProducer:
        """A new instance of the producer, with an epoch."""
        seed = self.random.getrandbits(32)
        producer = SteppedProducer(self.cluster, self.leaders, self.ledger.ids[ID], instance, OUTPUT, seed)
        producer.timeout_ms = timeout_ms
        await producer.take_epoch()
        return producer

    async def opened(self, instance: str, timeout_ms: int = 20_000) -> tuple[SteppedProducer, Transaction]:
        """A transaction of a new instance with records in all partitions. A leader that moves may refuse it, and another one is begun."""
        while True:
            producer = await self.producer(instance, timeout_ms)
            with suppress(Refused):
                return producer, await producer.write()

    async def committed(self, instance: str) -> Transaction:
        """A transaction whose commit is confirmed by the coordinator that had begun it."""
        while True:
            producer, transaction = await self.opened(instance)
            with suppress(Refused):
                await producer.finish(transaction, is_commit=True)
                if transaction.fate is Fate.COMMITTED:
                    return transaction

    def leader(self, partition: TopicPartition) -> int:
        """The broker that leads a partition now, as the metadata store has it."""
        return self.elections.states[partition].leader

    def coordinator(self) -> int:
        """The broker that coordinates the transactional id."""
        return self.leader(DECISIONS)

    def controller(self) -> int:
        """The broker with the active controller."""
        return next(broker.services.broker_id for broker in self.cluster.brokers() if broker.controller.is_active)

    def led_elsewhere(self) -> TopicPartition:
        """A partition whose leader is neither the coordinator nor the controller, with which the coordinator has to speak."""
        return next(partition for partition in DATA if self.leader(partition) not in (self.coordinator(), self.controller()))

    def node(self, broker_id: int) -> Node:
        """The machine of a broker."""
        return self.cluster.nodes[broker_id]

    # -- faults ------------------------------------------------------------------------------------------------------------

    def on_arrival(self, may_arrive: OnArrival) -> None:
        """Ask about each request that arrives anywhere; one that may not is held back, until its `arrive` is called again."""
        self.cluster.network.may_arrive = may_arrive

    def later(self, seconds: float, exchange: Exchange) -> None:
        """Let a request arrive after this time."""
        self.cluster.loop.in_nobodys_name(seconds, exchange.arrive)

    def copy(self, exchange: Exchange) -> Exchange:
        """The same request once more, whose answer nobody waits for."""
        return Exchange(self.cluster.network, exchange.client, exchange.address, exchange.frame)

    async def restart(self) -> None:
        """Start the brokers that are down, once their sessions have ended, and wait until every replica is in sync."""
        down = [broker_id for broker_id, node in self.cluster.nodes.items() if not node.is_up]
        if down:
            await asyncio.sleep(SESSION_TIMEOUT_S + RESTART_S)
            await asyncio.gather(*(self.cluster.start(broker_id) for broker_id in down))
        await self.until(self.is_whole, "every replica to be in sync after a restart")

    def _after_step(self, life: Life) -> None:
        self.invariants.after_step(life)
        node = self.cluster.nodes[life.broker_id]
        if node.life is not life or node.broker is None or not hasattr(node.broker, "services"):
            return
        replica_manager = node.broker.services.data.replica_manager
        for partition in self.watched:
            replica = replica_manager.partition(*partition)
            if replica is None:
                continue
            place = life.broker_id, partition
            grown = replica.log.log_end_offset > self._ends.get(place, 0)
            self._ends[place] = replica.log.log_end_offset
            if grown:
                self.on_write(life.broker_id, partition)
                if life.is_dead:
                    return


def is_api(exchange: Exchange, key: ApiKey) -> bool:
    """Whether the request is one of this API."""
    return int.from_bytes(exchange.frame[:2], "big") == key


def is_read(transaction: Transaction) -> bool:
    """Whether all records of the transaction were read, at the end of a scene."""
    return transaction.read == {index: len(values) for index, values in transaction.values.items()}
