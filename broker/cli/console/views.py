"""Answers the console's questions about a cluster with plain data: lists and dictionaries that become JSON.

Every function asks the cluster anew and changes nothing. `docs/console.md` describes the answers. All raise
ClientError.
"""

import codecs
import time
from typing import Any, Final

from broker.cli.doctor.cluster_checks import check_cluster
from broker.cli.doctor.cluster_facts import gather
from broker.client.cluster import NO_LEADER, Cluster, TopicPartition
from broker.client.committed import committed_offsets
from broker.client.config_admin import SOURCES, ResourceType, describe_configs
from broker.client.errors import ConnectionLost, Refused
from broker.client.fetcher import Fetcher, FetchSettings
from broker.client.group_admin import NO_GROUP, describe_group, list_groups
from broker.client.offsets import end_offsets, list_offsets, start_offsets
from broker.client.topic_admin import all_topics
from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataResponseTopic
from protocol.records.reader import Record
from protocol.uuid import to_text

MOST_RECORDS: Final = 500
SHOWN_BYTES: Final = 16 * 1024
"""Bytes of a key, a value or a header that are shown."""
_FETCHED_BYTES: Final = 1024 * 1024
_POLL_SECONDS: Final = 1.0

_Decoder: Final = codecs.getincrementaldecoder("utf-8")

View = dict[str, Any]


def overview(cluster: Cluster) -> View:
    """The brokers, and the numbers of topics, partitions and faults."""
    answer = cluster.refresh(None)
    partitions = [partition for topic in answer.topics for partition in topic.partitions]
    leaders = [partition.leader_id for partition in partitions]
    return {
        "cluster_id": answer.cluster_id,
        "controller": answer.controller_id if answer.controller_id >= 0 else None,
        "topics": len(answer.topics),
        "partitions": len(partitions),
        "offline": leaders.count(NO_LEADER),
        "under_replicated": sum(len(each.isr_nodes) < len(each.replica_nodes) for each in partitions),
        "brokers": [
            {
                "id": broker.node_id,
                "address": f"{broker.host}:{broker.port}",
                "rack": broker.rack,
                "leads": leaders.count(broker.node_id),
                "replicas": sum(broker.node_id in partition.replica_nodes for partition in partitions),
            }
            for broker in sorted(answer.brokers, key=lambda each: each.node_id)
        ],
    }


def topics(cluster: Cluster) -> View:
    """All topics, each as one line of a table."""
    return {"topics": [_topic_line(topic) for topic in all_topics(cluster)]}


def _topic_line(topic: MetadataResponseTopic) -> View:
    partitions = topic.partitions
    return {
        "name": topic.name,
        "internal": topic.is_internal,
        "partitions": len(partitions),
        "replicas": max((len(each.replica_nodes) for each in partitions), default=0),
        "under_replicated": sum(len(each.isr_nodes) < len(each.replica_nodes) for each in partitions),
        "offline": sum(each.leader_id == NO_LEADER for each in partitions),
    }


def topic(cluster: Cluster, name: str) -> View:
    """One topic: its partitions with their offsets, and its configuration with the source of each value."""
    found = cluster.topic(name)
    led = [TopicPartition(name, each.partition_index) for each in found.partitions if each.leader_id != NO_LEADER]
    starts, ends = start_offsets(cluster, led), end_offsets(cluster, led)
    partitions = [
        {
            "partition": each.partition_index,
            "leader": each.leader_id if each.leader_id != NO_LEADER else None,
            "replicas": each.replica_nodes,
            "isr": each.isr_nodes,
            "start": starts.get(TopicPartition(name, each.partition_index)),
            "end": ends.get(TopicPartition(name, each.partition_index)),
        }
        for each in sorted(found.partitions, key=lambda each: each.partition_index)
    ]
    configs = [
        {"name": each.name, "value": each.value, "source": SOURCES.get(each.config_source, "UNKNOWN")}
        for each in describe_configs(cluster, ResourceType.TOPIC, name)
    ]
    return {**_topic_line(found), "id": to_text(found.topic_id), "partitions": partitions, "configs": configs}


def records(cluster: Cluster, name: str, partition: int, offset: int | None, timestamp_ms: int | None, limit: int) -> View:
    """Up to `limit` records of a partition: from an offset, from a time, or without both the last ones."""
    at = TopicPartition(name, partition)
    start, end = start_offsets(cluster, [at])[at], end_offsets(cluster, [at])[at]
    limit = min(limit, MOST_RECORDS)
    if timestamp_ms is not None:
        first = list_offsets(cluster, {at: timestamp_ms})[at].offset
        offset = end if first < 0 else first
    position = max(start, end - limit) if offset is None else min(max(offset, start), end)
    found: list[View] = []
    fetcher = Fetcher(cluster, {at: position}, FetchSettings(max_bytes=_FETCHED_BYTES, max_partition_bytes=_FETCHED_BYTES))
    try:
        deadline = time.monotonic() + cluster.timeout_seconds
        while len(found) < limit and fetcher.positions[at] < end and time.monotonic() < deadline:
            for batch in fetcher.poll(_POLL_SECONDS):
                found += [_record(record) for record in batch.records[: limit - len(found)] if record.offset < end]
        if position < end and fetcher.positions[at] == position:
            raise ConnectionLost(f"the leader of {at} gave no record within {cluster.timeout_seconds:g} s")
    finally:
        fetcher.close()
    return {"topic": name, "partition": partition, "start": start, "end": end, "records": found}


def _record(record: Record) -> View:
    headers = [{"name": name.decode("utf-8", "replace")[:SHOWN_BYTES], **_bytes(value)} for name, value in record.headers]
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _bytes(record.key),
        "value": _bytes(record.value),
        "headers": headers,
    }


def _bytes(data: bytes | memoryview | None) -> View:
    """Text if the bytes are UTF-8, hexadecimal digits otherwise; the size tells whether all of them are shown."""
    if data is None:
        return {"form": "null", "text": None, "bytes": 0}
    shown = bytes(data[:SHOWN_BYTES])
    try:
        # The decoder leaves out the beginning of a character that was cut.
        return {"form": "text", "text": _Decoder().decode(shown, final=len(shown) == len(data)), "bytes": len(data)}
    except UnicodeDecodeError:
        return {"form": "hex", "text": shown.hex(" "), "bytes": len(data)}


def groups(cluster: Cluster) -> View:
    """All groups."""
    return {"groups": [each._asdict() for each in list_groups(cluster)]}


def group(cluster: Cluster, name: str) -> View:
    """One group: members, offsets, lag. A partition that was deleted has no end."""
    found = describe_group(cluster, name)
    committed = committed_offsets(cluster, name)
    if found.state == NO_GROUP and not committed:
        raise Refused(f"group {name}", ErrorCode.GROUP_ID_NOT_FOUND, "there is no such group")
    owners = {partition: member for member in found.members for partition in member.partitions}
    wanted = sorted({*committed, *owners})
    known = {
        TopicPartition(str(each.name), partition.partition_index)
        for each in cluster.refresh({partition.topic for partition in wanted}).topics
        for partition in each.partitions
        if partition.leader_id != NO_LEADER
    }
    ends = end_offsets(cluster, [partition for partition in wanted if partition in known])
    lines = []
    for partition in wanted:
        offset = committed[partition].offset if partition in committed else None
        end = ends.get(partition)
        lines.append(
            {
                **partition._asdict(),
                "offset": offset,
                "end": end,
                "lag": None if offset is None or end is None else end - offset,
                "member": owners[partition].member_id if partition in owners else None,
            }
        )
    return {
        "group": name,
        "state": found.state,
        "type": found.type,
        "assignor": found.assignor,
        "coordinator": found.coordinator,
        "members": [
            {"id": each.member_id, "client": each.client_id, "host": each.host, "partitions": len(each.partitions)}
            for each in found.members
        ],
        "partitions": lines,
    }


def findings(cluster: Cluster) -> View:
    """The findings of `ottla doctor` about the cluster."""
    facts = gather(cluster)
    found = sorted(check_cluster(facts), key=lambda each: -each.kind.severity.value)
    return {
        "findings": [
            {
                "id": each.kind.id,
                "severity": each.kind.severity.name.lower(),
                "what": each.what,
                "why": each.kind.why,
                "command": each.command,
            }
            for each in found
        ],
        "not_examined": facts.not_examined,
    }
