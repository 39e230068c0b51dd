"""Encodes and decodes the znodes of intents and notifications: configs, reassignments, elections, producer id blocks.

As in `layout`, encoders give Apache Kafka's bytes and decoders raise MalformedZNode.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ottla.controller.znodes.java_order import properties_order
from ottla.controller.znodes.layout import PRODUCER_ID_BLOCK, int32, int32s
from ottla.controller.znodes.znode_json import MalformedZNode, decode_object, encode_json
from ottla.protocol.topic_partition import TopicPartition


class ProducerIdBlock(NamedTuple):
    """The body of /latest_producer_id_block: the block that was allocated last, both ends inclusive."""

    broker_id: int
    first: int
    last: int


def encode_config(config: Mapping[str, str]) -> bytes:
    """The configs of an entity."""
    return encode_json({"version": 1, "config": {name: config[name] for name in properties_order(config)}})


def decode_config(path: str, data: bytes | None) -> dict[str, str]:
    """The configs of an entity; none when the node has no data, or empty data, as kazoo gives to the nodes of a path."""
    if not data:
        return {}
    config = decode_object(path, data).get("config") or {}
    if not isinstance(config, dict):
        raise MalformedZNode(path, "config is not an object")
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in config.items()}


def encode_config_change(entity_path: str) -> bytes:
    """Version 2; entity_path is `topics/T`, `users/u1/clients/c1`, ..."""
    return encode_json({"version": 2, "entity_path": entity_path})


def decode_config_change(path: str, data: bytes | None) -> str:
    """The entity path; version 1 has its type and its name in two fields."""
    body = decode_object(path, data)
    if body.get("version") == 1:
        return f"{body.get('entity_type')}/{body.get('entity_name')}"
    entity_path = body.get("entity_path")
    if not isinstance(entity_path, str):
        raise MalformedZNode(path, "no entity_path")
    return entity_path


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """The body of /isr_change_notification/isr_change_N and /admin/preferred_replica_election."""
    return encode_json({"version": 1, "partitions": [{"topic": p.topic, "partition": p.partition} for p in partitions]})


def decode_partitions(path: str, data: bytes | None) -> list[TopicPartition]:
    """The inverse of encode_partitions."""
    try:
        return [_named_by(entry) for entry in decode_object(path, data)["partitions"]]
    except (KeyError, TypeError) as error:
        raise MalformedZNode(path, f"not a list of partitions: {error!r}") from error


def encode_reassignments(targets: Mapping[TopicPartition, tuple[int, ...]]) -> bytes:
    """The body of /admin/reassign_partitions."""
    listed = [{"topic": p.topic, "partition": p.partition, "replicas": replicas} for p, replicas in targets.items()]
    return encode_json({"version": 1, "partitions": listed})


def decode_reassignments(path: str, data: bytes | None) -> dict[TopicPartition, tuple[int, ...]]:
    """The inverse of encode_reassignments."""
    try:
        return {_named_by(entry): int32s(entry["replicas"]) for entry in decode_object(path, data)["partitions"]}
    except (KeyError, TypeError) as error:
        raise MalformedZNode(path, f"not a list of reassignments: {error!r}") from error


def _named_by(entry: Any) -> TopicPartition:
    """Raises KeyError, TypeError."""
    topic = entry["topic"]
    if not isinstance(topic, str):
        raise TypeError(f"{topic!r} is no topic")
    return TopicPartition(topic, int32(entry["partition"]))


def encode_log_dir_event(broker_id: int) -> bytes:
    """Event 1: a log directory of the broker failed."""
    return encode_json({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(path: str, data: bytes | None) -> int:
    """The broker whose log directory failed."""
    broker = decode_object(path, data).get("broker")
    if not isinstance(broker, int):
        raise MalformedZNode(path, "no broker")
    return broker


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """Version 1; the ends are strings, since JSON numbers lose precision beyond 2^53."""
    return encode_json({"version": 1, "broker": block.broker_id, "block_start": str(block.first), "block_end": str(block.last)})


def decode_producer_id_block(data: bytes | None) -> ProducerIdBlock | None:
    """None when no block was allocated yet."""
    if data is None:
        return None
    body = decode_object(PRODUCER_ID_BLOCK, data)
    try:
        return ProducerIdBlock(body["broker"], int(body["block_start"]), int(body["block_end"]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise MalformedZNode(PRODUCER_ID_BLOCK, f"not a block of producer ids: {error!r}") from error
