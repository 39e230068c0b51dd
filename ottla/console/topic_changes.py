"""Changes topics for the console: creates, extends and deletes them, and changes their configuration and their records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ottla.cli.options import check_brokers, is_number
from ottla.cli.records.record_json import NotARecord, parse_json_line
from ottla.client.cluster import Cluster
from ottla.client.config_admin import Change, ConfigOperation, ConfigResourceType, alter_configs
from ottla.client.errors import ClientError
from ottla.client.producer import Delivery, Producer, ProducerSettings
from ottla.client.topic_admin import DEFAULT, NewTopic, Outcomes, create_topics, delete_records, delete_topics, grow_topic
from ottla.console.parameters import BadParameter, Body
from ottla.console.views import View
from ottla.protocol.topic_partition import TopicPartition

Path = Mapping[str, str]
"""The parts of a request's path by name."""


def create(cluster: Cluster, _: Path, body: Body) -> View:
    """Create a topic. Raises BadParameter, ClientError."""
    body.takes("name", "partitions", "replication_factor", "configs", "assignment", "validate_only")
    name, assignment = body.text("name"), body.assignment("assignment")
    partitions, factor = body.optional_integer("partitions"), body.optional_integer("replication_factor")
    if assignment and (partitions is not None or factor is not None):
        raise BadParameter("assignment determines the numbers of partitions and replicas; omit both")
    topic = NewTopic(
        name,
        DEFAULT if partitions is None else partitions,
        DEFAULT if factor is None else factor,
        body.text_by_name("configs"),
        assignment,
    )
    validate_only = body.flag("validate_only")
    check_brokers(cluster, assignment)
    _raise_first(create_topics(cluster, [topic], validate_only=validate_only))
    return {"name": name, "validate_only": validate_only}


def delete(cluster: Cluster, path: Path, body: Body) -> View:
    """Delete a topic, whose name is repeated. Raises BadParameter, ClientError."""
    body.takes("confirm", "force")
    name = path["name"]
    body.confirmed(name)
    if not body.flag("force") and cluster.topic(name).is_internal:
        raise BadParameter(f"{name} holds the state of groups or transactions, which is lost with it; force deletes it")
    _raise_first(delete_topics(cluster, [name]))
    return {"name": name}


def add_partitions(cluster: Cluster, path: Path, body: Body) -> View:
    """Extend a topic to a number of partitions. Raises BadParameter, ClientError."""
    body.takes("count", "assignment", "validate_only")
    count, assignment, validate_only = body.integer("count"), body.assignment("assignment"), body.flag("validate_only")
    check_brokers(cluster, assignment)
    grow_topic(cluster, path["name"], count, assignment or None, validate_only=validate_only)
    return {"name": path["name"], "partitions": count, "validate_only": validate_only}


def change_topic_configs(cluster: Cluster, path: Path, body: Body) -> View:
    """Set and delete keys of a topic's configuration, all or none. Raises BadParameter, ClientError."""
    changes = _changes(body)
    cluster.topic(path["name"])
    alter_configs(cluster, ConfigResourceType.TOPIC, path["name"], changes, validate_only=body.flag("validate_only"))
    return {"name": path["name"], "changed": [each.name for each in changes]}


def change_broker_configs(cluster: Cluster, path: Path, body: Body) -> View:
    """Set and delete dynamic keys of a broker, or of all as `default`. Raises BadParameter, ClientError."""
    changes = _changes(body)
    alter_configs(cluster, ConfigResourceType.BROKER, broker_name(path["broker"]), changes, validate_only=body.flag("validate_only"))
    return {"name": path["broker"], "changed": [each.name for each in changes]}


def broker_name(text: str) -> str:
    """The name of a broker in requests about configurations: its id, or empty for all brokers. Raises BadParameter."""
    if text == "default":
        return ""
    if not (text.isascii() and is_number(text)) or int(text) >= 2**31:
        raise BadParameter("a broker is an id, or default for all")
    return text


def _changes(body: Body) -> Sequence[Change]:
    body.takes("set", "delete", "append", "subtract", "validate_only")
    found = [Change(key, ConfigOperation.SET, value) for key, value in body.text_by_name("set").items()]
    found += [Change(key, ConfigOperation.DELETE, None) for key in body.texts("delete")]
    found += [Change(key, ConfigOperation.APPEND, value) for key, value in body.text_by_name("append").items()]
    found += [Change(key, ConfigOperation.SUBTRACT, value) for key, value in body.text_by_name("subtract").items()]
    if not found:
        raise BadParameter("nothing to change: give set, delete, append or subtract")
    return found


def produce(cluster: Cluster, path: Path, body: Body) -> View:
    """Write one record, in the form of `ottla produce --json`. Raises BadParameter, ClientError."""
    body.takes("key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp")
    fields = {name: body.raw(name) for name in body}
    for name in ("partition", "timestamp"):
        if body.has(name) and body.integer(name) < 0:
            raise BadParameter(f"{name} is negative")
    try:
        record = parse_json_line(json.dumps(fields, ensure_ascii=False).encode(), as_base64=False)
    except NotARecord as error:
        raise BadParameter(f"this is no record: {error}") from None
    except RecursionError:
        raise BadParameter("the record is nested too deeply") from None
    except UnicodeEncodeError:
        raise BadParameter("the record has half of a surrogate pair, which is no character") from None
    deliveries: list[Delivery] = []
    settings = ProducerSettings(linger_seconds=0.0, delivery_timeout_seconds=cluster.timeout_seconds)
    producer = Producer(cluster, path["name"], settings, deliveries.append)
    try:
        producer.send(record)
        producer.flush()
    finally:
        producer.close()
    (delivery,) = deliveries
    if delivery.error is not None:
        raise delivery.error
    return {**delivery.partition._asdict(), "offset": delivery.base_offset}


def delete_before(cluster: Cluster, path: Path, body: Body) -> View:
    """Delete the records of partitions below offsets, -1 for all; the topic's name is repeated. Raises BadParameter, ClientError."""
    body.takes("confirm", "offsets")
    name = path["name"]
    body.confirmed(name)
    offsets: dict[TopicPartition, int] = {}
    for each in body.objects("offsets"):
        each.takes("partition", "offset")
        offset = each.integer("offset")
        if offset < -1:
            raise BadParameter("an offset is 0 or more, or -1 for all records")
        offsets[TopicPartition(name, each.integer("partition"))] = offset
    if not offsets:
        raise BadParameter("offsets is empty")
    starts = delete_records(cluster, offsets)
    return {"topic": name, "partitions": [{"partition": where.partition, "start": start} for where, start in starts.items()]}


def _raise_first(outcomes: Outcomes) -> None:
    """Raises the error of the one topic."""
    error: ClientError | None = next(filter(None, outcomes.values()), None)
    if error is not None:
        raise error
