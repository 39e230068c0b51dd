"""One simulated story, told by its seed: a cluster, clients, and everything that goes wrong; then quiet, and the reckoning.

python -m tests.simulation --seed 17            one story, with what happened
python -m tests.simulation --minutes 5          as many as there is time for, beginning with a seed by chance
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from replication.peer import PeerUnavailable
from storage.topic_partition import TopicPartition
from tests.simulation.administration import Administrator
from tests.simulation.clients import Consumer, History, Producer
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.groups import Assignments, Committer, Member, is_settled
from tests.simulation.invariants import Invariants, batches
from tests.simulation.loop import NODE
from tests.simulation.misfortune import Misfortune

TOPIC = "story"
PARTITIONS = 2
PRODUCERS = 2
BROKERS = 4
GROUPS = ("one", "two")
MEMBERS = 3
CHECK_S = 0.02
QUIET_S = 120.0


@dataclass(slots=True)
class Told:
    """What came of it."""

    seed: int
    faults: int = 0
    orders: int = 0
    elections: int = 0
    acknowledged: int = 0
    rebalances: int = 0
    seen: int = 0
    checks: int = 0
    virtual_seconds: float = 0.0


class Story:
    """See the module. `say` is told of every fault."""

    def __init__(self, seed: int, seconds: float = 30.0, say: Callable[[str], None] = lambda line: None) -> None:
        self.cluster = SimulatedCluster(seed, BROKERS)
        self.random = self.cluster.random
        self.history = History()
        self.assignments = Assignments()
        self.invariants = Invariants(self.cluster, TOPIC, PARTITIONS)
        self.told = Told(seed)
        self._seconds = seconds
        self._say = say
        self._misfortune = Misfortune(self.cluster, seconds, say)
        self._violations: list[BaseException] = []

    def tell(self) -> Told:
        """Raises AssertionError when something was not as it always must be."""
        try:
            self.cluster.run(self._tell())
        except BaseException:
            self._say(self.picture())
            raise
        finally:
            self.cluster.close()
        told = self.told
        told.elections = self.invariants.elections
        told.acknowledged = self.history.acknowledgements
        told.rebalances = self.assignments.rebalances
        told.seen = self.history.seen
        told.checks = self.invariants.checks
        told.virtual_seconds = self.cluster.loop.time()
        return told

    async def _tell(self) -> None:
        cluster = self.cluster
        await asyncio.gather(*(cluster.start(broker_id) for broker_id in cluster.nodes))
        await self._create_topic()
        self._watch()
        producers = [
            Producer(cluster, TOPIC, index, f"p{index}{number}", self.history, self.random.getrandbits(32))
            for index in range(PARTITIONS)
            for number in range(PRODUCERS)
        ]
        consumers = [Consumer(cluster, TOPIC, index, self.history, self.random.getrandbits(32)) for index in range(PARTITIONS)]
        administrator = Administrator(cluster, TOPIC, PARTITIONS, self.random.getrandbits(32))
        committers = [Committer(cluster, TOPIC, group, self.random.getrandbits(32)) for group in GROUPS]
        members = [Member(cluster, TOPIC, "members", self.assignments, self.random.getrandbits(32)) for _ in range(MEMBERS)]
        active: list[Producer | Administrator | Committer] = [*producers, administrator, *committers]
        acting = [asyncio.create_task(each.run()) for each in active]
        consuming = [asyncio.create_task(each.run()) for each in (*consumers, *members)]
        misfortune = asyncio.create_task(self._misfortune.run())
        await self._until_done([misfortune], [*acting, *consuming])
        for each in active:
            each.stopping = True
        await self._misfortune.make_good()
        await self._until_done(acting, consuming)
        await self._until(self._is_whole, "every replica to be in sync")
        self.invariants.check_replicas_agree()
        await self._until(lambda: all(consumer.position == self._end(consumer.partition) for consumer in consumers), "the consumers")
        self._check_logs(producers)
        try:
            await self._until(lambda: self._topics_are_right(administrator), "topics to come and go")
        except AssertionError:
            self._say(", ".join(self._wrong_topics(administrator)))
            raise
        for committer in committers:
            await self._check_group(committer)
        for member in members:
            member.settling = True
        await self._until(lambda: is_settled(members), "the group to settle")
        for task in consuming:
            task.cancel()
        self.told.faults, self.told.orders = self._misfortune.count, administrator.orders

    def picture(self) -> str:
        """How the cluster stands, for whoever looks for what went wrong."""
        lines = [f"{self.cluster.loop.time():8.3f} s  this is how it stands:"]
        for broker in self.cluster.brokers():
            cluster = broker.services.cluster
            controller = broker.controller
            role = f"controller in epoch {controller.context.epoch}" if controller.is_active else f"follows {cluster.controller_id}"
            lines.append(
                f"  broker {broker.services.broker_id}, epoch {broker.services.broker_epoch}, {role}, knows {sorted(cluster.brokers)}"
            )
            for index in range(PARTITIONS):
                replica = broker.services.replica_manager.partition(TOPIC, index)
                if replica is not None:
                    log = replica.log
                    epochs = f"{replica.leader_epoch}.{replica.partition_epoch}"
                    lines.append(
                        f"    {index}: leader {replica.leader_id} epoch {epochs} isr {sorted(replica.isr)}"
                        f" high watermark {log.high_watermark} end {log.log_end_offset}"
                        f" followers {[(each.broker_id, each.log_end_offset) for each in replica.followers.values()]}"
                    )
        return "\n".join(lines)

    async def _until_done(self, wanted: list[asyncio.Task[None]], others: list[asyncio.Task[None]]) -> None:
        """Wait for tasks; whatever else ends meanwhile ended by an error."""
        async with asyncio.timeout(self._seconds + QUIET_S):
            while not all(task.done() for task in wanted):
                await asyncio.wait([task for task in (*wanted, *others) if not task.done()], return_when=asyncio.FIRST_COMPLETED, timeout=1)
                self._raise([*wanted, *others])

    def _raise(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            if task.done():
                task.result()
        if self._violations:
            raise self._violations[0]

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = self.cluster.loop.time() + QUIET_S
        while not condition():
            assert self.cluster.loop.time() < deadline, f"waited {QUIET_S:.0f} virtual seconds for {what}"
            await asyncio.sleep(0.1)
            self._raise([])

    async def _create_topic(self) -> None:
        request = CreateTopicsRequest(topics=[CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=3)], timeout_ms=5000)
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

    def _watch(self) -> None:
        """Check in nobody's name, as long as the story lasts."""
        token = NODE.set(None)

        def check() -> None:
            try:
                self.invariants.check()
            except AssertionError as violation:
                self._violations.append(violation)
                return
            self.cluster.loop.call_later(CHECK_S, check)

        try:
            check()
        finally:
            NODE.reset(token)

    # How it ends

    async def _check_group(self, committer: Committer) -> None:
        for _ in range(100):
            if await committer.check():
                return
            await asyncio.sleep(0.5)
        raise AssertionError(f"nobody tells the offset of group {committer.group}")

    def _is_whole(self) -> bool:
        for index in range(PARTITIONS):
            hosted = self.cluster.replicas(TOPIC, index)
            leaders = [replica for replica in hosted.values() if replica.is_leader]
            if len(leaders) != 1 or not hosted.keys() >= set(leaders[0].replicas):
                return False
            # A broker that was down when a replica was moved away from it keeps the log, as with Apache Kafka.
            replicas = {broker_id: hosted[broker_id] for broker_id in leaders[0].replicas}
            ends = {(replica.log.log_end_offset, replica.log.high_watermark) for replica in replicas.values()}
            if len(ends) != 1 or leaders[0].is_reassigning or sorted(leaders[0].isr) != sorted(replicas):
                return False
        return True

    def _topics_are_right(self, administrator: Administrator) -> bool:
        """Those that were made are led everywhere; of those that were dropped nothing is left, neither in the store nor on a disk."""
        return not self._wrong_topics(administrator)

    def _wrong_topics(self, administrator: Administrator) -> list[str]:
        wanted = {TOPIC, *administrator.made}
        wrong: list[str] = []
        for broker in self.cluster.brokers():
            where = f"on broker {broker.services.broker_id}"
            known = broker.services.cluster.topics
            wrong += [f"{name} is not known {where}" for name in wanted - known.keys()]
            wrong += [f"{name} is still known {where}" for name in administrator.dropped & known.keys()]
            for name in wanted & known.keys():
                wrong += [f"{name}-{index} has no leader {where}" for index, state in known[name].partitions.items() if state.leader < 0]
        wrong += [path for path in self.cluster.keeper.ensemble.dump() if path.startswith("/admin/delete_topics/")]
        for node in self.cluster.nodes.values():
            logs = [path.split("/")[2] for path in node.disk.directories if path.startswith("/data/")]
            wrong += [f"{log} on the disk of {node.host}" for log in logs if log.rpartition("-")[0] in administrator.dropped]
        return wrong

    def _end(self, partition: int) -> int:
        return max(replica.log.high_watermark for replica in self.cluster.replicas(TOPIC, partition).values())

    def _check_logs(self, producers: list[Producer]) -> None:
        """Every acknowledged record is where it was acknowledged, once; every producer's in its order."""
        for index in range(PARTITIONS):
            log = next(iter(self.cluster.replicas(TOPIC, index).values())).log
            values: dict[int, bytes] = {}
            from protocol.record_reader import iter_records

            for batch in batches(log, 0, log.log_end_offset):
                for record in iter_records(batch):
                    assert record.value is not None
                    values[record.offset] = record.value
            for offset, value in self.history.records.get(index, {}).items():
                assert values.get(offset) == value, (
                    f"{TopicPartition(TOPIC, index)}: {value!r} was at {offset}; now there is {values.get(offset)!r}"
                )
            for producer in producers:
                if producer.partition == index:
                    own = [value for value in values.values() if value.startswith(producer.name.encode() + b"-")]
                    assert own[: producer.sent] == [f"{producer.name}-{number}".encode() for number in range(producer.sent)], producer.name
