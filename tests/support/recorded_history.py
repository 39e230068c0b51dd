"""Replays the history of the recorded cluster of Apache Kafka to controllers over a tree in memory.

External events are repeated: znodes that clients and request handlers wrote, brokers that came and went, ISRs that leaders proposed,
requests to the controller. The controller under test makes the writes of the controller itself, which are compared at every moment.
"""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from ottla.controller.errors import StoreError
from ottla.controller.events.isr_changes import IsrChange
from ottla.controller.state.context import Leadership
from ottla.controller.store.memory_store import MemoryStore
from ottla.controller.store.metadata_store import Create, Request, SetData
from ottla.controller.store.tree import Node
from ottla.controller.znodes.layout import NO_LEADER, PartitionState, decode_partition_state, encode_partition_state, partition_state_path
from ottla.protocol.topic_partition import TopicPartition
from tests.support.controlled_cluster import Cluster

GOLDEN = Path(__file__).parents[1] / "golden" / "zookeeper"

# Values that differ between any two clusters: ids, times, and the address of JMX.
_VARYING = (
    (re.compile(r'"id":"[\w-]{22}"'), '"id":"*"'),
    (re.compile(r'"timestamp":"\d+"'), '"timestamp":"*"'),
    (re.compile(r'"jmx_port":-?\d+'), '"jmx_port":*'),
    # State that Ottla keeps beyond Apache Kafka (docs/differences.md).
    (re.compile(r',"original_order":\{.*?\}'), ""),
)
_STATE = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")

ComparableNode = tuple[str | None, bool, int]
"""Data, whether it is ephemeral, version."""


def without_what_varies(data: str | None) -> str | None:
    """The data of a node as it would stand in any cluster."""
    if data is not None:
        for pattern, replacement in _VARYING:
            data = pattern.sub(replacement, data)
    return data


def recorded_tree(moment: str) -> dict[str, ComparableNode]:
    """The tree of Apache Kafka at a moment."""
    (path,) = GOLDEN.glob(f"[0-9][0-9]-{moment}.json")
    nodes = json.loads(path.read_text())["tree"]
    return {node["path"]: (without_what_varies(node["data"]), node["ephemeral"], node["version"]) for node in nodes}


def _comparable(node: Node) -> ComparableNode:
    return without_what_varies(None if node.data is None else node.data.decode()), node.ephemeral_owner != 0, node.version


class RecordedHistory:
    """One run through the recording."""

    def __init__(self) -> None:
        self.cluster = Cluster(on_zookeeper=True)
        self.spared: Counter[TopicPartition] = Counter()
        """The number of states that Apache Kafka wrote and Ottla does not. A new controller of Apache Kafka removes a dead leader before it
        elects another one, although a member of the ISR lives. Our leader epochs and versions are lower by this number
        (docs/differences.md)."""
        self._client: MemoryStore = self.cluster.ensemble.store()

    async def moments(self) -> AsyncIterator[str]:
        """Plays on to the next moment that was recorded, and yields its name."""
        await self._client.open_session()
        lines = [json.loads(line) for line in (GOLDEN / "writes.jsonl").read_text().splitlines()]
        for at, line in enumerate(lines):
            if "moment" in line:
                await self.cluster.settle()
                yield line["moment"]
                if line["moment"] == "log-dir-failed":  # its end was not marked: broker 2 was stopped
                    await self._leave(2)
            elif "event" in line:
                await self._on_event(line["event"], lines[at + 1 :])
            elif line["op"] == "closeSession":
                await self._on_session_closed(line["by"], lines[at + 1 :])
            elif any(each["op"] == "delete" and each["path"] == "/controller" for each in _operations(line)):
                self._let_win(lines[at + 1 :])
                await self._client.delete("/controller")
                await self._everybody_hears()
            else:
                await self._on_write(line)

    def tree(self) -> dict[str, ComparableNode]:
        """The tree as it stands, as Apache Kafka would have counted."""
        dump = self.cluster.ensemble.dump()
        tree = {path: _comparable(node) for path, node in dump.items()}
        for partition, behind in self.spared.items():
            path = partition_state_path(partition)
            if path in tree:
                state = decode_partition_state(path, dump[path].data)
                data = encode_partition_state(state._replace(leader_epoch=state.leader_epoch + behind))
                tree[path] = (data.decode(), False, dump[path].version + behind)
        return tree

    async def stop(self) -> None:
        """End all brokers."""
        for broker in self.cluster.brokers.values():
            await broker.stop()

    # Events that left no znode of their own

    async def _on_event(self, event: str, following: list[dict[str, Any]]) -> None:
        name = event.split(maxsplit=1)[0]
        controller = self.cluster.controller.controller
        move, other, move2 = TopicPartition("move", 0), TopicPartition("move", 1), TopicPartition("move2", 0)
        if name == "reassign-start":
            for targets in ({move: (2, 1)}, {other: (2, 0)}, {move2: (0, 1, 2)}):
                await controller.alter_reassignments(targets)
        elif name == "reassign-cancel":
            # Not None: that restores the order of the replicas, which Apache Kafka lost.
            await controller.alter_reassignments({other: (0, 1)})
        elif name == "elect-preferred":
            await controller.elect_leaders(None, unclean=False)
        elif name == "stop-broker-1":
            await self._leave(1)
        elif name == "stop-controller":
            await self._leave(0)
        elif name == "unclean-prepare":
            await self._leave(2)
        elif name == "log-dir-failure":
            self._fail_log_dir(following)
        await self.cluster.settle()

    async def _leave(self, broker_id: int) -> None:
        epoch = self.cluster.brokers[broker_id].controller.broker_epoch
        await self.cluster.controller.controller.controlled_shutdown(broker_id, epoch)
        await self.cluster.settle()

    def _fail_log_dir(self, following: list[dict[str, Any]]) -> None:
        failed = set()
        for line in following:
            if "moment" in line:
                break
            for partition, state in _states(line):
                if 2 not in state.isr:
                    failed.add(partition)
        self.cluster.peers[2].error_of = lambda partition: 56 if partition in failed else 0

    # Sessions

    async def _on_session_closed(self, who: str, following: list[dict[str, Any]]) -> None:
        kind, _, broker_id = who.partition(" ")
        if kind == "broker" and int(broker_id) in self.cluster.brokers:
            self._let_win(following)
            await self.cluster.kill(int(broker_id))
            await self._everybody_hears()
            self.cluster.peers[int(broker_id)].error_of = lambda _: 0

    def _let_win(self, following: list[dict[str, Any]]) -> None:
        """Let the recorded broker become controller; otherwise chance would decide, by the order of notifications."""
        for line in following:
            if "moment" in line:
                return
            if any(each["op"] == "create" and each["path"] == "/controller" for each in _operations(line)):
                winner = int(line["by"].split()[1])
                for broker in self.cluster.brokers.values():
                    broker.store.latency = 0 if broker.broker_id == winner else 50
                return

    async def _everybody_hears(self) -> None:
        await self.cluster.settle()
        for broker in self.cluster.brokers.values():
            broker.store.latency = 0

    # Writes

    async def _on_write(self, line: dict[str, Any]) -> None:
        operations = _operations(line)
        if not operations:
            return
        last = operations[-1]
        registered = re.fullmatch(r"/brokers/ids/(\d+)", operations[0]["path"])
        if registered:
            broker_id = int(registered.group(1))
            if broker_id not in self.cluster.brokers:
                await self.cluster.start(broker_id, rack=f"r{broker_id}")
        elif operations[0]["path"] == "/controller_epoch" and operations[0]["op"] == "check":
            for partition, state in _states(line):
                await self._on_state(partition, state)
        elif self.cluster.brokers and not last["path"].startswith(("/controller_epoch", "/feature", "/cluster")):
            if last["op"] != "delete":
                await self._repeat(last)
            if last["path"] == "/config/topics/unclean" and last["op"] == "setData":
                await self.cluster.controller.controller.enable_unclean_election("unclean")
            await self.cluster.settle()

    async def _repeat(self, operation: dict[str, Any]) -> None:
        path, data = operation["path"], operation.get("data")
        body = None if data is None else data.encode()
        if operation.get("ephemeral"):
            return
        request: Request = Create(path, body) if operation["op"] == "create" else SetData(path, body)
        (outcome,) = await self._client.pipeline([request])
        assert not isinstance(outcome, StoreError), (operation, outcome)

    async def _on_state(self, partition: TopicPartition, recorded: PartitionState) -> None:
        """A state that the controller wrote. When a leader had proposed it, it is proposed again."""
        node = self.cluster.ensemble.dump().get(partition_state_path(partition))
        if node is None:
            return
        context = self.cluster.controller.controller.context
        lives = any(context.is_online(member, partition) for member in recorded.isr)
        if recorded.leader == NO_LEADER and lives and not context.is_being_deleted(partition.topic):
            self.spared[partition] += 1
            return
        recorded = recorded._replace(leader_epoch=recorded.leader_epoch - self.spared[partition])
        state = decode_partition_state(partition_state_path(partition), node.data)
        if state.leader in self.cluster.brokers and recorded == self._preferred(partition, state):
            await self.cluster.controller.controller.elect_leaders([partition], unclean=False)  # some elections left no event
            await self.cluster.settle()
            return
        if (state.leader, state.leader_epoch) != (recorded.leader, recorded.leader_epoch) or state.isr == recorded.isr:
            return
        change = IsrChange(state.leader_epoch, recorded.isr, node.version, recorded.leader_recovery_state)
        epoch = self.cluster.brokers[state.leader].controller.broker_epoch
        result = await self.cluster.controller.controller.alter_isr(state.leader, epoch, {partition: change})
        assert isinstance(result[partition], Leadership), (partition, state, recorded, result)
        await self.cluster.settle()

    def _preferred(self, partition: TopicPartition, state: PartitionState) -> PartitionState:
        preferred = self.cluster.assignment(partition).replicas[0]
        epoch = self.cluster.controller.controller.context.epoch
        return state._replace(leader=preferred, leader_epoch=state.leader_epoch + (preferred != state.leader), controller_epoch=epoch)


def _operations(line: dict[str, Any]) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = line.get("ops", [line] if "op" in line else [])
    return operations if all(each["op"] in {"create", "setData", "delete", "check"} for each in operations) else []


def _states(line: dict[str, Any]) -> Iterator[tuple[TopicPartition, PartitionState]]:
    for operation in _operations(line):
        match = _STATE.fullmatch(operation["path"])
        if match and operation["op"] == "setData":
            yield TopicPartition(match[1], int(match[2])), decode_partition_state(operation["path"], operation["data"].encode())
