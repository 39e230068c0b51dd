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
from tests.simulation.clients import Consumer, History, Producer
from tests.simulation.cluster import SESSION_TIMEOUT_S, SimulatedCluster
from tests.simulation.invariants import Invariants, batches
from tests.simulation.loop import NODE
from tests.simulation.network import CLIENT
from tests.simulation.store import ENSEMBLE

TOPIC = "story"
PARTITIONS = 2
PRODUCERS = 2
CHECK_S = 0.02
QUIET_S = 120.0


@dataclass(slots=True)
class Told:
    """What came of it."""

    seed: int
    faults: int = 0
    elections: int = 0
    acknowledged: int = 0
    seen: int = 0
    checks: int = 0
    virtual_seconds: float = 0.0


class Story:
    """See the module. `say` is told of every fault."""

    def __init__(self, seed: int, seconds: float = 30.0, say: Callable[[str], None] = lambda line: None) -> None:
        self.cluster = SimulatedCluster(seed)
        self.random = self.cluster.random
        self.history = History()
        self.invariants = Invariants(self.cluster, TOPIC, PARTITIONS)
        self.told = Told(seed)
        self._seconds = seconds
        self._say = say
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
        producing = [asyncio.create_task(producer.run()) for producer in producers]
        consuming = [asyncio.create_task(consumer.run()) for consumer in consumers]
        misfortune = asyncio.create_task(self._misfortune())
        await self._until_done([misfortune], [*producing, *consuming])
        for producer in producers:
            producer.stopping = True
        await self._make_good()
        await self._until_done(producing, consuming)
        await self._until(self._is_whole, "every replica to be in sync")
        self.invariants.check_replicas_agree()
        await self._until(lambda: all(consumer.position == self._end(consumer.partition) for consumer in consumers), "the consumers")
        self._check_logs(producers)
        for task in consuming:
            task.cancel()

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

    # What goes wrong

    async def _misfortune(self) -> None:
        end = self.cluster.loop.time() + self._seconds
        faults = [
            self._kill,
            self._kill,
            self._pause,
            self._isolate,
            self._lose_ensemble,
            self._cut,
            self._stop,
            self._expire,
            self._slow,
            self._skew,
        ]
        while self.cluster.loop.time() < end:
            await asyncio.sleep(self.random.expovariate(1.0))
            fault = self.random.choice(faults)
            self.told.faults += 1
            await fault(self.random.choice(list(self.cluster.nodes)))

    def _note(self, what: str) -> None:
        self._say(f"{self.cluster.loop.time():8.3f} s  {what}")

    def _later(self, seconds: float, what: str, action: Callable[[], object]) -> None:
        def act() -> None:
            self._note(what)
            action()

        self.cluster.loop.call_later(seconds, act)

    async def _kill(self, broker_id: int) -> None:
        self._note(f"broker {broker_id} is killed")
        self.cluster.kill(broker_id)
        self._later(self.random.expovariate(1 / 3), f"broker {broker_id} is started again", lambda: self._start(broker_id))

    def _start(self, broker_id: int) -> None:
        if not self.cluster.nodes[broker_id].is_up:
            starting = self.cluster.start(broker_id)
            starting.add_done_callback(lambda task: self._on_started(broker_id, task))

    def _on_started(self, broker_id: int, task: asyncio.Task[list[str]]) -> None:
        if task.cancelled() or task.exception() is None:
            return
        node = self.cluster.nodes[broker_id]
        if node.starting is task:
            self._note(f"broker {broker_id} does not start: {task.exception()}")
            self.cluster.kill(broker_id)
            self._later(1.0, f"broker {broker_id} is started again", lambda: self._start(broker_id))

    async def _pause(self, broker_id: int) -> None:
        seconds = self.random.uniform(0, 2 * SESSION_TIMEOUT_S)
        self._note(f"broker {broker_id} hangs for {seconds:.1f} s")
        self.cluster.pause(broker_id)
        self._later(seconds, f"broker {broker_id} goes on", lambda: self.cluster.resume(broker_id))

    async def _isolate(self, broker_id: int) -> None:
        host = self.cluster.nodes[broker_id].host
        others = [CLIENT, *(node.host for node in self.cluster.nodes.values())]
        if self.random.random() < 0.5:
            others.remove(CLIENT)
        self._note(f"broker {broker_id} is cut off from {', '.join(each for each in others if each != host)}")
        self.cluster.network.isolate(host, others)
        self._later(self.random.uniform(0, 8), "the network is whole", self.cluster.network.heal)

    async def _lose_ensemble(self, broker_id: int) -> None:
        self._note(f"broker {broker_id} is cut off from the metadata store")
        self.cluster.network.cut(self.cluster.nodes[broker_id].host, ENSEMBLE)
        self._later(self.random.uniform(0, 3 * SESSION_TIMEOUT_S), "the network is whole", self.cluster.network.heal)

    async def _cut(self, broker_id: int) -> None:
        other = self.random.choice([each for each in self.cluster.nodes if each != broker_id])
        self._note(f"the link between brokers {broker_id} and {other} is cut")
        self.cluster.network.cut(self.cluster.nodes[broker_id].host, self.cluster.nodes[other].host)
        self._later(self.random.uniform(0, 8), "the network is whole", self.cluster.network.heal)

    async def _stop(self, broker_id: int) -> None:
        self._note(f"broker {broker_id} is stopped")
        await self.cluster.stop(broker_id)
        self._later(self.random.expovariate(1), f"broker {broker_id} is started again", lambda: self._start(broker_id))

    async def _expire(self, broker_id: int) -> None:
        self._note(f"the session of broker {broker_id} is ended")
        self.cluster.expire_session(broker_id)

    async def _slow(self, broker_id: int) -> None:
        factor = self.random.choice([10.0, 100.0, 1000.0])
        host = self.cluster.nodes[broker_id].host
        self._note(f"everything to and from broker {broker_id} takes {factor:.0f} times as long")
        self.cluster.network.slowness[host] = factor
        self._later(
            self.random.uniform(0, 5), f"broker {broker_id} is as fast as ever", lambda: self.cluster.network.slowness.pop(host, None)
        )

    async def _skew(self, broker_id: int) -> None:
        skew_ms = self.random.randint(-600_000, 600_000)
        self._note(f"the clock of broker {broker_id} is wrong by {skew_ms} ms")
        self.cluster.nodes[broker_id].clock.skew_ms = skew_ms

    # How it ends

    async def _make_good(self) -> None:
        self._note("quiet")
        self.cluster.network.heal()
        self.cluster.network.slowness.clear()
        for broker_id, node in self.cluster.nodes.items():
            self.cluster.resume(broker_id)
            if not node.is_up:
                self._start(broker_id)

    def _is_whole(self) -> bool:
        for index in range(PARTITIONS):
            replicas = self.cluster.replicas(TOPIC, index)
            leaders = [replica for replica in replicas.values() if replica.is_leader]
            ends = {(replica.log.log_end_offset, replica.log.high_watermark) for replica in replicas.values()}
            if len(replicas) < len(self.cluster.nodes) or len(leaders) != 1 or len(leaders[0].isr) != len(replicas) or len(ends) != 1:
                return False
        return True

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
