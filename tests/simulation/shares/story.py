"""One simulated story of share groups, told by its seed: members that come, go and vanish, while leaders and coordinators fail.

In the end the members accept all that they get. Then every record was accepted, rejected, or delivered as often as allowed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Final

from ottla.coordination.shares.state.stored_state import SharePartitionKey
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.leader.partition import Partition
from ottla.replication.ports.peer import PeerUnavailable
from tests.simulation.administration import Administrator
from tests.simulation.clients import Leaders, Producer
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.misfortune import Misfortune
from tests.simulation.shares.deliveries import LOCK_MS, Deliveries
from tests.simulation.shares.members import LeadersById, ShareMember
from tests.simulation.shares.topics import Filler, Phoenix
from tests.simulation.stage import Stage

BROKERS: Final = 4
QUEUE: Final = "queue"
PARTITIONS: Final = 3
PRODUCERS: Final = 4
GROWING: Final = "growing"
REBORN: Final = "reborn"
TOPICS: Final = [QUEUE, GROWING, REBORN]
GROUPS: Final = {"workers": 4, "watchers": 2}
"""The number of members."""
GROUP_RESOURCE: Final = 32
STATE_TOPIC: Final = "__share_group_state"
WATCHED: Final = [
    *(TopicPartition(QUEUE, index) for index in range(PARTITIONS)),
    *(TopicPartition(STATE_TOPIC, index) for index in range(2)),
    TopicPartition("__consumer_offsets", 0),
]
CONFIG: Final = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "group.share.session.timeout.ms": "6000",
    "group.share.min.session.timeout.ms": "6000",
    "group.share.initialize.retry.interval.ms": "3000",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
    "share.coordinator.state.topic.prune.interval.ms": "2000",
    "share.coordinator.cold.partition.snapshot.interval.ms": "3000",
}


@dataclass(slots=True)
class SharesTold:
    """What came of it."""

    faults: Counter[str] = field(default_factory=Counter)
    failovers: Counter[str] = field(default_factory=Counter)
    elections: int = 0
    births: int = 0
    records: int = 0
    terms: int = 0
    acquired: int = 0
    completed: int = 0
    virtual_seconds: float = 0.0

    def add(self, other: SharesTold) -> None:
        """Of both."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class ShareStory(Stage):
    """See the module. `say` is told of every fault."""

    def __init__(self, seed: int, seconds: float = 30.0, say: Callable[[str], None] = lambda line: None) -> None:
        super().__init__(SimulatedCluster(seed, BROKERS, CONFIG, share_version=1), WATCHED, [])
        self.deliveries = Deliveries(self.cluster)
        self._seconds = seconds
        self._say = say
        self._misfortune = Misfortune(self.cluster, seconds, self.is_well, say)
        self._administrator = Administrator(self.cluster, WATCHED, GROWING, self.random.getrandbits(32))
        self._members: list[ShareMember] = []
        self._phoenix = Phoenix(self.cluster, REBORN, self.random.getrandbits(32))

    @property
    def digest(self) -> int:
        """Of everything that anybody said to anybody: the same seed has the same."""
        return self.cluster.network.digest

    def tell(self) -> SharesTold:
        """Raises AssertionError when something was not as it always must be."""
        with self.deliveries.watching():
            try:
                self.cluster.run(self._tell())
            except BaseException:
                self._say(self._picture())
                raise
            finally:
                self.cluster.close()
        return SharesTold(
            faults=self._misfortune.faults,
            failovers=self.elections.failovers,
            elections=self.elections.elections,
            births=self._phoenix.births,
            records=self.deliveries.records,
            terms=self.deliveries.terms,
            acquired=self.deliveries.acquired,
            completed=self.deliveries.completed,
            virtual_seconds=self.cluster.loop.time(),
        )

    def raise_errors(self) -> None:
        """See Stage. Also those of the leaders."""
        super().raise_errors()
        assert not self.deliveries.wrong, "; ".join(self.deliveries.wrong[:3])

    async def _tell(self) -> None:
        cluster = self.cluster
        await asyncio.gather(*(cluster.start(broker_id) for broker_id in cluster.nodes))
        await self.create_topic(QUEUE, PARTITIONS)
        await self.create_topic(GROWING, 1)
        for group in GROUPS:
            await self._begin_at_the_first_record(group)
        leaders = Leaders(cluster, QUEUE, self.random.getrandbits(32))
        queue = [partition for partition in WATCHED if partition.topic == QUEUE]
        producers = [
            Producer(cluster, partition, leaders, f"p{number}", self.invariants.committed[partition], self.random.getrandbits(32))
            for number in range(PRODUCERS)
            for partition in [queue[number % PARTITIONS]]
        ]
        self._administrator.made[GROWING] = 1
        active = [*producers, self._administrator, self._phoenix, Filler(cluster, GROWING, self.random.getrandbits(32))]
        members = self._members = [
            ShareMember(
                cluster, TOPICS, group, LeadersById(cluster, self.random.getrandbits(32)), self.deliveries, self.random.getrandbits(32)
            )
            for group, count in GROUPS.items()
            for _ in range(count)
        ]
        acting = [asyncio.create_task(each.run()) for each in active]
        misfortune = asyncio.create_task(self._misfortune.run())
        self.tasks = [*acting, misfortune, *(asyncio.create_task(member.run()) for member in members)]
        await self.until(misfortune.done, "the misfortunes", self._seconds)
        for each in active:
            each.stopping = True
        await self._misfortune.make_good()
        await self.until(lambda: all(task.done() for task in acting), "the writers")
        for member in members:
            member.settling = True
        await self.until(self._is_drained, "the members to complete all records")
        await self.until(self._is_tidy, "the states of deleted topics to be deleted")
        await self.until(self.is_whole, "every replica to be in sync")
        self.raise_errors()
        self.invariants.check_at_the_end()
        for key, partition in self._led():
            self.deliveries.check_at_the_end(key, range(partition.log.high_watermark))
        for task in self.tasks:
            task.cancel()

    async def _begin_at_the_first_record(self, group: str) -> None:
        config = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        while True:
            try:
                answer = await self.cluster.client(0).request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request, timeout_ms=5000)
            except PeerUnavailable:
                continue
            assert isinstance(answer, IncrementalAlterConfigsResponse)
            if answer.responses[0].error_code == ErrorCode.NONE:
                break
            await asyncio.sleep(0.1)
        await self.until(
            lambda: all(broker.services.administration.group_configs.of(group) for broker in self.cluster.brokers()), "the configuration"
        )

    # How it ends

    def _led(self) -> list[tuple[SharePartitionKey, Partition]]:
        """Each partition that the groups have, at its leader."""
        found = []
        for broker in self.cluster.brokers():
            for name in TOPICS:
                topic = broker.services.metadata.topics.get(name)
                hosted = broker.services.data.replica_manager.partitions.get(name, {})
                for index, partition in hosted.items():
                    if partition.is_leader and topic is not None:
                        found += [(SharePartitionKey(group, topic.topic_id, index), partition) for group in GROUPS]
        return found

    def _is_drained(self) -> bool:
        """Whether no group has a record before it in any partition, and each partition has a leader."""
        led = self._led()
        known = [topics for broker in self.cluster.brokers() if (topics := broker.services.metadata.topics).keys() >= set(TOPICS)]
        if len(known) <= BROKERS // 2:
            return False
        wanted = {(name, index) for topics in known for name in TOPICS for index in topics[name].partitions}
        if {tuple(partition.topic_partition) for _, partition in led} != wanted:
            return False
        return all(self._has_all(key, partition) for key, partition in led)

    def _has_all(self, key: SharePartitionKey, partition: Partition) -> bool:
        broker = self.cluster.nodes[partition.broker_id].broker
        found = None if broker is None else broker.services.coordinators.share_leader.led.find(key)
        if partition.log.high_watermark == 0:
            return True
        if found is None or found.machine is None:
            return False
        return found.machine.start_offset == partition.log.high_watermark == partition.log.log_end_offset

    def _is_tidy(self) -> bool:
        """Whether coordinators and leaders keep nothing of topics that were deleted."""
        return not self._leftovers()

    def _leftovers(self) -> list[str]:
        found: list[str] = []
        brokers = list(self.cluster.brokers())
        knowing = Counter(topic_id for broker in brokers for topic_id in broker.services.metadata.names_by_id)
        known = {topic_id for topic_id, count in knowing.items() if count > len(brokers) // 2}
        for broker in brokers:
            states, led = broker.services.coordinators.shares.states, broker.services.coordinators.share_leader.led
            where = f"of a deleted topic at broker {broker.services.broker_id}"
            found += [f"the state {where}: {state.key}" for state in states if state.key.topic_id not in known]
            found += [f"a share partition {where}: {each.key}" for each in led if each.key.topic_id not in known]
        return found

    def _picture(self) -> str:
        """How the share partitions stand, for whoever looks for what went wrong."""
        lines = [f"{self.cluster.loop.time():8.3f} s  this is how it stands:"]
        for key, partition in self._led():
            broker = self.cluster.nodes[partition.broker_id].broker
            led = None if broker is None else broker.services.coordinators.share_leader.led.find(key)
            machine = None if led is None else led.machine
            runs = [] if machine is None else list(machine.runs)[:5]
            lines.append(
                f"  {partition.topic_partition} of {key.group_id} at broker {partition.broker_id}: high watermark"
                f" {partition.log.high_watermark}, start {machine and machine.start_offset}, {runs}"
            )
        lines += [f"  {member.member_id} in epoch {member.epoch} has {member.assigned_texts()}" for member in self._members]
        return "\n".join([*lines, *(f"  {line}" for line in self._leftovers())])
