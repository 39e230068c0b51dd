"""What a simulated cluster is played on: the invariants that watch it, the ledger of its transactions, and how it comes to rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.ports.peer import PeerUnavailable
from tests.simulation.clients import Leaders
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.elections import Elections
from tests.simulation.invariants import Invariants
from tests.simulation.ledger import Ledger
from tests.simulation.transactions import CommittedConsumer

REPLICAS = 3
QUIET_S = 120.0


class Stage:
    """See the module. `tasks` run beside what is waited for; one that raises ends the play."""

    def __init__(self, cluster: SimulatedCluster, watched: list[TopicPartition], transactional_ids: list[str]) -> None:
        self.cluster = cluster
        self.random = cluster.random
        self.watched = watched
        self.ledger = Ledger(transactional_ids)
        self.elections = Elections(cluster.ensemble, watched, cluster.keeper.ended)
        self.invariants = Invariants(cluster, self.elections, watched)
        cluster.loop.after_step = self.invariants.after_step
        self.tasks: list[asyncio.Task[None]] = []

    def raise_errors(self) -> None:
        """Raise what a task raised."""
        for task in self.tasks:
            if task.done():
                task.result()

    async def until(self, condition: Callable[[], bool], what: str, seconds: float = 0.0, why: Callable[[], str] = lambda: "") -> None:
        """Wait, but not for ever, for what takes so long at least. `why` says what is not yet as it is waited for."""
        seconds += QUIET_S
        deadline = self.cluster.loop.time() + seconds
        while not condition():
            assert self.cluster.loop.time() < deadline, f"waited {seconds:.0f} virtual seconds for {what}; {why()}"
            await asyncio.sleep(0.1)
            self.raise_errors()

    async def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Ask one broker after the other until one has done it."""
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=REPLICAS, configs=configs)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
        while True:
            for broker_id in self.cluster.nodes:
                try:
                    answer = await self.cluster.client(broker_id).request(ApiKey.CREATE_TOPICS, 7, request, timeout_ms=10_000)
                except PeerUnavailable:
                    continue
                assert isinstance(answer, CreateTopicsResponse)
                if answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    return
            await asyncio.sleep(0.1)

    def committed_consumers(self, topic: str, leaders: Leaders) -> list[CommittedConsumer]:
        """One for each watched partition of the topic."""
        return [
            CommittedConsumer(
                self.cluster, partition, leaders, self.invariants.committed[partition], self.ledger, self.random.getrandbits(32)
            )
            for partition in self.watched
            if partition.topic == topic
        ]

    def is_well(self) -> bool:
        """Whether every partition has a leader and somebody who could take over."""
        return all(state.leader >= 0 and len(state.isr) > 1 for state in self.elections.states.values())

    def is_whole(self) -> bool:
        """Whether every replica is in sync, has all records and knows that they are committed, and none is being moved."""
        for partition in self.watched:
            hosted = self.cluster.replicas(*partition)
            leaders = [replica for replica in hosted.values() if replica.is_leader]
            if len(leaders) != 1 or not hosted.keys() >= set(leaders[0].replicas):
                return False
            # A broker that was down when a replica was moved away from it keeps the log, as with Apache Kafka.
            replicas = {broker_id: hosted[broker_id] for broker_id in leaders[0].replicas}
            ends = {offset for replica in replicas.values() for offset in (replica.log.log_end_offset, replica.log.high_watermark)}
            if len(ends) != 1 or leaders[0].is_reassigning or sorted(leaders[0].isr) != sorted(replicas):
                return False
        return True

    def has_no_transaction(self) -> bool:
        """No coordinator has an unfinished one, nor has a partition: what producers left open timed out."""
        if self.invariants.decisions.unfinished():
            return False
        return all(committed.transactions.first_open is None for committed in self.invariants.committed.values())
