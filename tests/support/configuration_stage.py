"""Stands one broker's dynamic configuration on a tree in memory, with stand-ins for its logs and replicas."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

from ottla.broker.cluster.control_requests import ControlRequests
from ottla.broker.configuration.dynamic_config import DynamicConfig
from ottla.broker.configuration.topic_config_changes import TopicConfigChanges
from ottla.config.topic import TopicConfig
from ottla.controller.admin.config_admin import ConfigAdmin
from ottla.controller.admin.metadata_waits import MetadataWaits
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse, LeaderAndIsrTopicState
from ottla.protocol.topic_partition import TopicPartition
from tests.support.background import ManualBackground
from tests.support.clocks import ManualClock
from tests.support.controlled_cluster import BrokerUnderTest, new_ensemble


class FakeLog:
    is_closed = False

    def __init__(self, topic: str, config: TopicConfig) -> None:
        self.topic_partition = TopicPartition(topic, 0)
        self.config = config


class FakeReplicas:
    """Stands for the log manager and the replica manager."""

    def __init__(self) -> None:
        self.logs: list[FakeLog] = []
        self.background = ManualBackground(ManualClock())
        self.changed: list[str] = []
        self.partitions: dict[str, object] = {}
        self.cluster = SimpleNamespace(topics={})
        self.leadership_listeners: list[Callable[[Any], None]] = []
        self.deletion_listeners: list[Callable[[list[TopicPartition]], Awaitable[None]]] = []
        self.known_at_creation: dict[str, dict[str, str]] = {}
        self.config_of: Callable[[str], TopicConfig] | None = None

    def all_logs(self) -> list[FakeLog]:
        return self.logs

    def update_config(self, log: FakeLog, config: TopicConfig) -> None:
        log.config = config

    def on_config_change(self, log: FakeLog) -> None:
        self.changed.append(log.topic_partition.topic)

    async def on_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        assert self.config_of is not None
        for topic in request.topic_states:
            self.known_at_creation[topic.topic_name] = dict(self.config_of(topic.topic_name).overrides)
        return LeaderAndIsrResponse()


class Stage:
    """One broker's configuration over a tree in memory."""

    def __init__(self, node: BrokerUnderTest) -> None:
        self.node = node
        self.config = node.config
        self.admin = ConfigAdmin(node.store, node.broker_id, node.config)
        self.dynamic = DynamicConfig(node.config, node.store, self.admin, node.broker_id, node.ensemble.clock)
        self.replicas = FakeReplicas()
        self.replicas.config_of = self.dynamic.topic_config_of
        self.elections: list[str | None] = []

    async def enable_unclean_election(self, topic: str | None) -> None:
        self.elections.append(topic)

    def follow(self) -> None:
        """Apply changes to the logs, the replicas and the controller from now on."""
        replicas, controller = cast("Any", self.replicas), SimpleNamespace(enable_unclean_election=self.enable_unclean_election)
        self.changes = TopicConfigChanges(self.config, self.dynamic, replicas, replicas, cast("Any", controller))
        self.node.controller.on_new_session(self.dynamic.on_new_session)

    def host(self, topic: str) -> FakeLog:
        log = FakeLog(topic, self.dynamic.topic_config_of(topic))
        self.replicas.logs.append(log)
        self.replicas.partitions[topic] = object()
        return log


@asynccontextmanager
async def a_stage() -> AsyncIterator[Stage]:
    node = BrokerUnderTest(new_ensemble())
    await node.start()
    await node.topics.create_topics([], timeout_ms=0)
    stage = Stage(node)
    try:
        yield stage
    finally:
        await stage.dynamic.close()
        await node.stop()


def on_a_stage(scenario: Callable[[Stage], Awaitable[None]]) -> None:
    async def play() -> None:
        async with asyncio.timeout(20), a_stage() as stage:
            await scenario(stage)

    asyncio.run(play())


def asks_to_host(*topics: str) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(topic_states=[LeaderAndIsrTopicState(topic_name=topic) for topic in topics])


def control(stage: Stage) -> ControlRequests:
    return ControlRequests(cast("Any", stage.replicas), stage.dynamic, MetadataWaits())
