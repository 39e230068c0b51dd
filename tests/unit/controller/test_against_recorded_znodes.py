"""A controller over a tree in memory writes what Apache Kafka wrote: the same nodes, the same bytes, in the same order."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from ottla.controller.admin.topic_admin import CreatedTopic, NewTopic
from ottla.controller.store.memory_store import MemoryEnsemble
from ottla.controller.store.metadata_store import Check, Create, Delete, SetData, Write
from tests.support.controlled_cluster import BrokerUnderTest, new_ensemble

GOLDEN = Path(__file__).parents[2] / "golden" / "zookeeper"

# What differs between any two clusters: ids, times, ports, and the address of JMX.
_VARYING = (
    (re.compile(r'"id":"[\w-]{22}"'), '"id":"*"'),
    (re.compile(r'"topic_id":"[\w-]{22}"'), '"topic_id":"*"'),
    (re.compile(r'"timestamp":"\d+"'), '"timestamp":"*"'),
    (re.compile(r'"jmx_port":-?\d+'), '"jmx_port":*'),
)


def without_what_varies(data: str | None) -> str | None:
    if data is not None:
        for pattern, replacement in _VARYING:
            data = pattern.sub(replacement, data)
    return data


def recorded_tree(name: str) -> dict[str, dict[str, Any]]:
    moment = json.loads((GOLDEN / name).read_text())
    return {node["path"]: node for node in moment["tree"]}


def recorded_writes(until: str) -> list[tuple[tuple[str, str, str | None], ...]]:
    """The successful writes before a moment, each a multi of one or more."""
    writes = []
    for line in (GOLDEN / "writes.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry.get("moment") == until:
            return writes
        operations = entry.get("ops", [entry])
        if all(operation.get("op") in {"create", "setData", "delete", "check"} for operation in operations):
            writes.append(
                tuple((operation["op"], operation["path"], without_what_varies(operation.get("data"))) for operation in operations)
            )
    raise AssertionError(f"no moment {until}")


def said(write: Write) -> tuple[str, str, str | None]:
    if isinstance(write, Check):
        return "check", write.path, None
    if isinstance(write, Delete):
        return "delete", write.path, None
    operation = "create" if isinstance(write, Create) else "setData"
    return operation, write.path, without_what_varies(None if write.data is None else write.data.decode())


def dumped(ensemble: MemoryEnsemble) -> dict[str, tuple[str | None, bool, int, int]]:
    return {
        path: (
            without_what_varies(None if node.data is None else node.data.decode()),
            node.ephemeral_owner != 0,
            node.version,
            node.cversion,
        )
        for path, node in ensemble.dump().items()
    }


def expected(name: str) -> dict[str, tuple[str | None, bool, int, int]]:
    return {
        path: (without_what_varies(node["data"]), node["ephemeral"], node["version"], node["cversion"])
        for path, node in recorded_tree(name).items()
    }


def test_the_first_start_makes_the_recorded_tree_by_the_recorded_writes() -> None:
    async def scenario() -> None:
        ensemble = new_ensemble()
        broker = BrokerUnderTest(ensemble, rack="r0")
        await broker.start()
        assert dumped(ensemble) == expected("01-fresh-one-broker.json")
        assert [tuple(map(said, writes)) for writes in broker.store.written] == recorded_writes("fresh-one-broker")
        await broker.stop()

    asyncio.run(scenario())


def test_a_topic_is_made_by_the_recorded_writes() -> None:
    async def scenario() -> None:
        ensemble = new_ensemble()
        broker = BrokerUnderTest(ensemble, rack="r0")
        await broker.start()
        result = (await broker.topics.create_topics([NewTopic("cfg-topic", 1, 1)]))["cfg-topic"]
        assert isinstance(result, CreatedTopic)
        assert dumped(ensemble) == expected("02-one-broker-one-topic.json")
        assert [tuple(map(said, writes)) for writes in broker.store.written] == recorded_writes("one-broker-one-topic")
        order = {path: node["czxid"] for path, node in recorded_tree("02-one-broker-one-topic.json").items()}
        by_age = sorted(ensemble.dump().items(), key=lambda item: item[1].czxid)
        assert [path for path, _ in by_age] == sorted(order, key=lambda path: int(order[path], 16))
        await broker.stop()

    asyncio.run(scenario())


def test_a_deletion_removes_nodes_in_the_recorded_order() -> None:
    async def scenario() -> None:
        broker = BrokerUnderTest(new_ensemble())
        await broker.start()
        await broker.topics.create_topics([NewTopic("log-plain", 1, 1)])
        broker.store.written.clear()
        assert await broker.topics.delete_topics(["log-plain"]) == {"log-plain": None}
        await broker.settle()
        written = [said(write) for writes in broker.store.written for write in writes if not isinstance(write, Check)]
        assert written == [
            ("create", "/admin/delete_topics/log-plain", None),
            (
                "setData",
                "/brokers/topics/log-plain/partitions/0/state",
                '{"controller_epoch":1,"leader":-1,"version":1,"leader_epoch":1,"isr":[0]}',
            ),
            ("delete", "/brokers/topics/log-plain/partitions/0/state", None),
            ("delete", "/brokers/topics/log-plain/partitions/0", None),
            ("delete", "/brokers/topics/log-plain/partitions", None),
            ("delete", "/brokers/topics/log-plain", None),
            ("delete", "/config/topics/log-plain", None),
            ("delete", "/admin/delete_topics/log-plain", None),
        ]
        assert all(len(writes) == 2 for writes in broker.store.written[1:]), "each but the order checks the controller's epoch"
        await broker.stop()

    asyncio.run(scenario())


def test_a_set_of_data_is_recognised_as_such() -> None:
    assert said(SetData("/a", b"x", 0)) == ("setData", "/a", "x")
