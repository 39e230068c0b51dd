"""One simulated story, told by its seed: a cluster, clients, and everything that goes wrong; then quiet, and the reckoning.

python -m tests.simulation --seed 17            one story, with what happened
python -m tests.simulation --minutes 5          as many as there is time for, beginning with a seed by chance
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields

from ottla.protocol.topic_partition import TopicPartition
from tests.simulation.administration import Administrator
from tests.simulation.clients import Consumer, Leaders, Producer
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.consumers import ConsumerMember, Owners, is_shared
from tests.simulation.copiers import Copier
from tests.simulation.groups import Assignments, Committer, Member, is_settled
from tests.simulation.ledger import Fate
from tests.simulation.misfortune import Misfortune
from tests.simulation.outcomes import TRANSACTION_STATE
from tests.simulation.stage import QUIET_S, Stage
from tests.simulation.transactions import CommittedConsumer, TransactionalClient, TransactionalProducer
from tests.simulation.vandal import Vandal

TOPIC = "story"
PARTITIONS = 16
OUTPUT = "transfers"
OUTPUT_PARTITIONS = 3
COORDINATED = [TopicPartition("__consumer_offsets", 0), *(TopicPartition(TRANSACTION_STATE, index) for index in range(2))]
WATCHED = [
    *(TopicPartition(TOPIC, index) for index in range(PARTITIONS)),
    *(TopicPartition(OUTPUT, index) for index in range(OUTPUT_PARTITIONS)),
    *COORDINATED,
]
GROWING = "growing"
"""The topic of the group of the new protocol."""
GROWING_PARTITIONS = 2
"""At the beginning."""
INSTANCES = {"one": 1, "other": 1, "shared": 2}
"""Transactional id -> how many producers have it."""
COPY = "copy"
COPIERS = 2
"""They have this transactional id, and fence each other."""
PRODUCERS = 16
BROKERS = 4
GROUPS = ("one", "two")
MEMBERS = 3


@dataclass(slots=True)
class Told:
    """What came of it."""

    faults: Counter[str] = field(default_factory=Counter)
    failovers: Counter[str] = field(default_factory=Counter)
    """How often a broker other than before led a partition since the other's session had ended, by what had ended it (`elections`)."""
    elections: int = 0
    """How often another broker led a partition, for whatever reason."""
    orders: int = 0
    controllers: int = 0
    commits: int = 0
    aborts: int = 0
    acknowledged: int = 0
    seen: int = 0
    rebalances: int = 0
    given: int = 0
    """How often a member of the new protocol got a partition."""
    checks: int = 0
    copied: int = 0
    """How many segments were copied to the remote store, and below, how many copies were removed."""
    removed: int = 0
    steps: int = 0
    virtual_seconds: float = 0.0

    def add(self, other: Told) -> None:
        """Of both."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class Story(Stage):
    """See the module. `say` is told of every fault. With an odd seed transactions may have version 2."""

    def __init__(self, seed: int, seconds: float = 30.0, say: Callable[[str], None] = lambda line: None) -> None:
        transaction_version = 2 if seed % 2 else 0
        super().__init__(SimulatedCluster(seed, BROKERS, transaction_version=transaction_version), WATCHED, [*INSTANCES, COPY])
        self.assignments = Assignments()
        self.owners = Owners(self.cluster, self.elections)
        self._seconds = seconds
        self._say = say
        self._misfortune = Misfortune(self.cluster, seconds, self.is_well, say)
        self._administrator = Administrator(self.cluster, WATCHED, GROWING, self.random.getrandbits(32))

    def tell(self) -> Told:
        """Raises AssertionError when something was not as it always must be."""
        try:
            self.cluster.run(self._tell())
        except BaseException:
            self._say(self.picture())
            raise
        finally:
            self.cluster.close()
        story = [self.invariants.committed[partition] for partition in WATCHED if partition.topic == TOPIC]
        return Told(
            faults=self._misfortune.faults,
            failovers=self.elections.failovers,
            elections=self.elections.elections,
            orders=self._administrator.orders,
            controllers=self.elections.controllers,
            commits=sum(each.count(Fate.COMMITTED) for each in self.ledger.ids.values()),
            aborts=sum(each.count(Fate.ABORTED) for each in self.ledger.ids.values()),
            acknowledged=sum(each.acknowledged for each in story),
            seen=sum(each.seen for each in story),
            rebalances=self.assignments.rebalances,
            given=self.owners.given,
            checks=self.invariants.checks,
            steps=self.cluster.loop.steps,
            virtual_seconds=self.cluster.loop.time(),
        )

    @property
    def digest(self) -> int:
        """Of everything that anybody said to anybody: the same seed has the same."""
        return self.cluster.network.digest

    async def _tell(self) -> None:
        cluster = self.cluster
        await asyncio.gather(*(cluster.start(broker_id) for broker_id in cluster.nodes))
        await self.create_topic(TOPIC, PARTITIONS)
        await self.create_topic(OUTPUT, OUTPUT_PARTITIONS)
        await self.create_topic(GROWING, GROWING_PARTITIONS)
        committed = self.invariants.committed
        leaders = Leaders(cluster, TOPIC, self.random.getrandbits(32))
        producers = [
            Producer(cluster, partition, leaders, f"p{number}", committed[partition], self.random.getrandbits(32))
            for number in range(PRODUCERS)
            for partition in [TopicPartition(TOPIC, number % PARTITIONS)]
        ]
        consumers = [
            Consumer(cluster, partition, leaders, committed[partition], self.random.getrandbits(32))
            for partition in WATCHED
            if partition.topic == TOPIC
        ]
        administrator = self._administrator
        administrator.made[GROWING] = GROWING_PARTITIONS
        committers = [Committer(cluster, TOPIC, group, self.random.getrandbits(32)) for group in GROUPS]
        members = [Member(cluster, TOPIC, "members", self.assignments, self.random.getrandbits(32)) for _ in range(MEMBERS)]
        sharing = [ConsumerMember(cluster, GROWING, "sharing", self.owners, self.random.getrandbits(32)) for _ in range(MEMBERS)]
        vandal = Vandal(cluster, TOPIC, PARTITIONS, leaders, self.random.getrandbits(32))
        copiers, transactional, committed_consumers = self._transactional_clients(leaders)
        active: list[Producer | Administrator | Committer | Vandal | TransactionalClient] = [*producers, administrator, *committers]
        active += [vandal, *transactional, *copiers]
        acting = [asyncio.create_task(each.run()) for each in active]
        consumers += committed_consumers
        consuming = [asyncio.create_task(each.run()) for each in (*consumers, *members, *sharing)]
        misfortune = asyncio.create_task(self._misfortune.run())
        self.tasks = [*acting, *consuming, misfortune]
        await self._until_done([misfortune])
        for each in active:
            each.stopping = True
        await self._misfortune.make_good()
        await self._until_done(acting)
        await self.until(self.has_no_transaction, "every transaction to end")
        await self.until(self.is_whole, "every replica to be in sync")
        self.invariants.check_at_the_end()
        await self.until(lambda: all(each.position == each.committed.end_offset for each in consumers), "the consumers")
        self.ledger.check_at_the_end()
        self._check_order(producers)
        try:
            await self.until(lambda: self._topics_are_right(administrator), "topics to come and go")
        except AssertionError:
            self._say(", ".join(self._wrong_topics(administrator)))
            raise
        for committer in committers:
            await self._check_group(committer)
        await self._check_copies(copiers[0])
        for member in (*members, *sharing):
            member.settling = True
        await self.until(lambda: is_settled(members), "the group to settle")
        await self.until(lambda: is_shared(sharing, self._grown_partitions()), "the members of the new protocol to share all partitions")
        self.raise_errors()
        for task in consuming:
            task.cancel()

    def _transactional_clients(self, sources: Leaders) -> tuple[list[Copier], list[TransactionalProducer], list[CommittedConsumer]]:
        """Those that write in transactions, and those that read what is committed."""
        leaders = Leaders(self.cluster, OUTPUT, self.random.getrandbits(32))
        source, target = TopicPartition(TOPIC, 0), TopicPartition(OUTPUT, 0)
        copiers = [
            Copier(
                self.cluster,
                self.elections,
                source,
                sources,
                target,
                leaders,
                self.ledger.ids[COPY],
                f"{COPY}-{number}",
                self.random.getrandbits(32),
            )
            for number in range(COPIERS)
        ]
        producers = [
            TransactionalProducer(
                self.cluster, leaders, self.ledger.ids[name], f"{name}-{number}", OUTPUT, OUTPUT_PARTITIONS, self.random.getrandbits(32)
            )
            for name, instances in INSTANCES.items()
            for number in range(instances)
        ]
        return copiers, producers, self.committed_consumers(OUTPUT, leaders)

    def picture(self) -> str:
        """How the cluster stands, for whoever looks for what went wrong."""
        lines = [f"{self.cluster.loop.time():8.3f} s  this is how it stands:"]
        for partition, state in self.elections.states.items():
            lines.append(f"  {partition}: {state}, committed up to {self.invariants.committed[partition].end_offset}")
        for broker in self.cluster.brokers():
            cluster = broker.services.metadata
            controller = broker.controller
            role = f"controller in epoch {controller.context.epoch}" if controller.is_active else f"follows {cluster.controller_id}"
            who = f"broker {broker.services.broker_id}, epoch {broker.services.cluster.controller.broker_epoch}"
            lines.append(f"  {who}, {role}, knows {sorted(cluster.brokers)}")
            for partition in WATCHED:
                replica = broker.services.data.replica_manager.partition(*partition)
                if replica is not None:
                    log = replica.log
                    epochs = f"{replica.leader_epoch}.{replica.partition_epoch}"
                    lines.append(
                        f"    {partition}: leader {replica.leader_id} epoch {epochs} isr {sorted(replica.isr)}"
                        f" high watermark {log.high_watermark} end {log.log_end_offset}"
                        f" followers {[(each.broker_id, each.log_end_offset) for each in replica.followers.values()]}"
                    )
        return "\n".join(lines)

    async def _until_done(self, wanted: list[asyncio.Task[None]]) -> None:
        """Wait for tasks; whatever else ends meanwhile ended by an error."""
        async with asyncio.timeout(self._seconds + QUIET_S):
            while not all(task.done() for task in wanted):
                await asyncio.wait([task for task in self.tasks if not task.done()], return_when=asyncio.FIRST_COMPLETED)
                self.raise_errors()

    # How it ends

    async def _check_group(self, committer: Committer) -> None:
        for _ in range(100):
            if await committer.check():
                return
            await asyncio.sleep(0.5)
        raise AssertionError(f"nobody tells the offset of group {committer.group}")

    async def _check_copies(self, copier: Copier) -> None:
        """The offset of the group is behind the last record that was copied."""
        for _ in range(100):
            offset = await copier.committed_offset()
            if offset is not None:
                copied = self.ledger.copied.get(0, 0)
                assert max(offset, 0) == copied, f"the offset of the copiers is {offset}; they have copied the records below {copied}"
                return
            await asyncio.sleep(0.5)
        raise AssertionError("nobody tells the offset of the copiers")

    def _topics_are_right(self, administrator: Administrator) -> bool:
        """Those that were made are led everywhere; of those that were dropped nothing is left, neither in the store nor on a disk."""
        return not self._wrong_topics(administrator)

    def _wrong_topics(self, administrator: Administrator) -> list[str]:
        wanted = {TOPIC, OUTPUT, *administrator.made}
        wrong: list[str] = []
        for broker in self.cluster.brokers():
            where = f"on broker {broker.services.broker_id}"
            known = broker.services.metadata.topics
            wrong += [f"{name} is not known {where}" for name in wanted - known.keys()]
            wrong += [f"{name} is still known {where}" for name in administrator.dropped & known.keys()]
            wrong += [
                f"{name} has fewer than {count} partitions {where}"
                for name, count in administrator.made.items()
                if name in known and len(known[name].partitions) < count
            ]
            for name in wanted & known.keys():
                wrong += [f"{name}-{index} has no leader {where}" for index, state in known[name].partitions.items() if state.leader < 0]
        wrong += [path for path in self.cluster.keeper.ensemble.dump() if path.startswith("/admin/delete_topics/")]
        for node in self.cluster.nodes.values():
            logs = [path.split("/")[2] for path in node.disk.directories if path.startswith("/data/")]
            wrong += [f"{log} on the disk of {node.host}" for log in logs if log.rpartition("-")[0] in administrator.dropped]
        return wrong

    def _grown_partitions(self) -> int:
        """How many partitions the group of the new protocol has among its members in the end."""
        return max(len(broker.services.metadata.topics[GROWING].partitions) for broker in self.cluster.brokers())

    def _check_order(self, producers: list[Producer]) -> None:
        """Every producer's records are there once each, in its order, and nothing else but what was never acknowledged."""
        for producer in producers:
            own = [value for value in producer.committed.values() if value.startswith(producer.name.encode() + b"-")]
            assert own == [f"{producer.name}-{number}".encode() for number in range(producer.sent)], producer.name
