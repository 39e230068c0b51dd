"""Provides log directories that Apache Kafka wrote, with the metadata that a broker without ZooKeeper needs to serve them."""

import asyncio
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from ottla.broker.loop.clock import SystemClock
from ottla.broker.metadata_store import METADATA_FILE
from ottla.controller.registration import prepare_store
from ottla.controller.store.embedded_store import EmbeddedStore
from ottla.controller.store.metadata_store import Create, StoreError
from ottla.controller.znodes.changes import encode_config
from ottla.controller.znodes.layout import (
    CLUSTER_ID,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    config_path,
    encode_cluster_id,
    encode_partition_state,
    encode_topic,
    partition_path,
    partition_state_path,
    partitions_path,
    topic_path,
)
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import from_text


def adopt(source: Path, target: Path, configs: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Copy the partitions and checkpoints of `source` to `target` and make all its topics known there; its meta.properties.

    `configs` has the overrides of topics by name. Every partition is led by the one broker, in the epoch after the last in its log.
    """
    names = [path.name for path in source.iterdir() if path.is_dir()]
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.json"))
    properties = dict(line.split("=", 1) for line in (source / "meta.properties").read_text().splitlines() if "=" in line)
    asyncio.run(_make_known(target, names, properties, configs))
    return properties


async def _make_known(data: Path, names: list[str], properties: Mapping[str, str], configs: Mapping[str, Mapping[str, str]]) -> None:
    broker_id = int(properties["broker.id"])
    topics: dict[str, list[int]] = {}
    for name in names:
        topic, _, partition = name.rpartition("-")
        topics.setdefault(topic, []).append(int(partition))
    store = EmbeddedStore(str(data / METADATA_FILE), SystemClock())
    await store.open_session()
    writes = [Create("/cluster"), Create(CLUSTER_ID, encode_cluster_id(properties["cluster.id"]))]
    await store.pipeline(writes)
    await prepare_store(store, os.urandom)
    writes = []
    for topic, known in topics.items():
        partitions = range(max(known) + 1)  # clients want them without gaps
        assignment = TopicAssignment(_topic_id(data / f"{topic}-{known[0]}"), {p: ReplicaAssignment((broker_id,)) for p in partitions})
        writes += [Create(topic_path(topic), encode_topic(assignment)), Create(partitions_path(topic))]
        for partition in partitions:
            state = PartitionState(broker_id, (broker_id,), _last_epoch(data / f"{topic}-{partition}") + 1, 1)
            at = TopicPartition(topic, partition)
            writes += [Create(partition_path(at)), Create(partition_state_path(at), encode_partition_state(state))]
        if configs.get(topic):
            writes.append(Create(config_path("topics", topic), encode_config(configs[topic])))
    for outcome in await store.pipeline(writes):
        assert not isinstance(outcome, StoreError), outcome
    await store.close()


def _topic_id(partition: Path) -> bytes:
    _, _, text = (partition / "partition.metadata").read_text().partition("topic_id: ")
    return from_text(text.strip())


def _last_epoch(partition: Path) -> int:
    checkpoint = partition / "leader-epoch-checkpoint"
    lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
    return max((int(line.split()[0]) for line in lines), default=0)
