"""Answers the console's questions about a cluster with plain data: lists and dictionaries that become JSON.

Every function reads the cluster again, and changes nothing. `docs/console.md` describes the answers. All raise ClientError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ottla.cli.doctor.cluster_checks import check_cluster
from ottla.cli.doctor.cluster_facts import gather
from ottla.cli.doctor.kinds import reasons
from ottla.client.cluster import NO_LEADER, Cluster
from ottla.client.config_admin import SOURCES, ConfigResourceType, describe_configs
from ottla.client.errors import ClientError, Refused
from ottla.client.group_admin import NO_GROUP, describe_group, reachable_groups
from ottla.client.group_offsets.kinds import Position, requests_of
from ottla.client.log_dirs import log_dirs
from ottla.client.offsets import EARLIEST, LATEST, reachable_offsets
from ottla.client.reachable import of_brokers
from ottla.client.topic_admin import all_topics
from ottla.client.topic_readers import readers_of
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import DescribeConfigsResourceResult
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import to_text

View = dict[str, Any]

_ID_KEYS: Final = ("broker.id", "node.id")
MAX_GROUPS: Final = 1000
"""Groups that are asked whether they read a topic."""


def overview(cluster: Cluster) -> View:
    """The brokers, and the numbers of topics, partitions and faults."""
    return overview_of(cluster.refresh(None))


def overview_of(answer: MetadataResponse) -> View:
    """The overview of a cluster with this metadata. `missing` has the brokers that hold replicas and are not alive."""
    leads: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    count = under_replicated = 0
    for topic in answer.topics:
        for partition in topic.partitions:
            count += 1
            leads[partition.leader_id] += 1
            replicas.update(partition.replica_nodes)
            under_replicated += len(partition.isr_nodes) < len(partition.replica_nodes)
    return {
        "cluster_id": answer.cluster_id,
        "controller": answer.controller_id if answer.controller_id >= 0 else None,
        "topics": len(answer.topics),
        "partitions": count,
        "offline": leads[NO_LEADER],
        "under_replicated": under_replicated,
        "missing": sorted(replicas.keys() - {broker.node_id for broker in answer.brokers}),
        "brokers": [
            {
                "id": broker.node_id,
                "address": f"{broker.host}:{broker.port}",
                "rack": broker.rack,
                "leads": leads[broker.node_id],
                "replicas": replicas[broker.node_id],
            }
            for broker in sorted(answer.brokers, key=lambda each: each.node_id)
        ],
    }


def broker_configs(cluster: Cluster, name: str) -> View:
    """The configuration of a broker; with the empty name the dynamic one of all brokers.

    A broker that has generated its id reports -1 for the key. The view has the id in its place.
    """
    found = _configs(describe_configs(cluster, ConfigResourceType.BROKER, name, synonyms=True))
    for each in found:
        if each["name"] in _ID_KEYS and each["value"] == "-1":
            each["value"] = name
    return {"configs": found}


def topics(cluster: Cluster) -> View:
    """All topics, each as one line of a table."""
    return {"topics": [_topic_line(topic) for topic in all_topics(cluster)]}


def _topic_line(topic: MetadataResponseTopic) -> View:
    replicas = under_replicated = offline = 0
    for each in topic.partitions:
        count = len(each.replica_nodes)
        replicas = max(replicas, count)
        under_replicated += len(each.isr_nodes) < count
        offline += each.leader_id == NO_LEADER
    return {
        "name": topic.name,
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replicas": replicas,
        "under_replicated": under_replicated,
        "offline": offline,
    }


def topic(cluster: Cluster, name: str) -> View:
    """One topic: its partitions with their offsets and sizes, and its configuration with the source of each value.

    A partition whose leader does not answer has neither offsets nor a size. A configuration that this client may not see is an error in
    its place.
    """
    found = cluster.topic(name)
    led = {TopicPartition(name, each.partition_index): each.leader_id for each in found.partitions if each.leader_id != NO_LEADER}
    starts, _ = reachable_offsets(cluster, dict.fromkeys(led, EARLIEST))
    ends, _ = reachable_offsets(cluster, dict.fromkeys(starts, LATEST))
    sizes = _sizes(cluster, {where: led[where] for where in ends})
    partitions = []
    for each in sorted(found.partitions, key=lambda each: each.partition_index):
        where = TopicPartition(name, each.partition_index)
        partitions.append(
            {
                "partition": each.partition_index,
                "leader": led.get(where),
                "replicas": each.replica_nodes,
                "isr": each.isr_nodes,
                "start": starts.get(where),
                "end": ends.get(where),
                "bytes": sizes.get(where),
            }
        )
    return {**_topic_line(found), "id": to_text(found.topic_id), "partitions": partitions, **_topic_configs(cluster, name)}


def _topic_configs(cluster: Cluster, name: str) -> View:
    """The configuration of a topic; none, with the error, for a client that may describe the topic and not its configuration."""
    try:
        return {"configs": _configs(describe_configs(cluster, ConfigResourceType.TOPIC, name, synonyms=True))}
    except Refused as error:
        if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        return {"configs": [], "configs_error": str(error)}


def _sizes(cluster: Cluster, led: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The bytes of partitions on their leaders. Partitions whose leader does not answer, or refuses to, are left out."""
    by_leader: dict[int, list[TopicPartition]] = {}
    for where, leader in led.items():
        by_leader.setdefault(leader, []).append(where)
    directories, _ = of_brokers(cluster, lambda own, leader: log_dirs(own, leader, by_leader[leader]), sorted(by_leader))
    replicas = (each for of_one in directories.values() for directory in of_one for each in directory.replicas)
    return {each.partition: each.bytes for each in replicas if not each.is_future}


def _configs(described: Iterable[DescribeConfigsResourceResult]) -> list[View]:
    """Each key with its value, the source of that, and the value that it would have by default."""
    found = []
    for each in described:
        default = next((synonym.value for synonym in each.synonyms if SOURCES.get(synonym.source) == "DEFAULT_CONFIG"), None)
        found.append(
            {
                "name": each.name,
                "value": each.value,
                "source": SOURCES.get(each.config_source, "UNKNOWN"),
                "default": default,
                "read_only": each.read_only,
                "sensitive": each.is_sensitive,
            }
        )
    return found


def groups(cluster: Cluster) -> View:
    """All groups. Coordinators that do not answer are named."""
    found, errors = reachable_groups(cluster)
    return {"groups": [each._asdict() for each in found], **unanswered("not_examined", cluster, errors)}


def unanswered(field: str, cluster: Cluster, errors: Mapping[int, ClientError]) -> View:
    """The field of an answer with the brokers that are missing from it, if there are any. Raises ClientError if no broker answered."""
    if errors and len(errors) == len(cluster.broker_ids()):
        raise next(iter(errors.values()))
    lines = reasons({f"broker {broker_id}": error for broker_id, error in errors.items()})
    return {field: lines} if lines else {}


def group(cluster: Cluster, name: str) -> View:
    """One group: members, offsets, lag. A partition that was deleted, or whose leader does not answer, has no end."""
    found = describe_group(cluster, name)
    offsets = requests_of(found.type).read(cluster, name)
    if found.state == NO_GROUP and not offsets:
        raise Refused(f"group {name}", ErrorCode.GROUP_ID_NOT_FOUND, "there is no such group")
    owners = found.owners()
    wanted = sorted({*offsets, *owners})
    known = {
        TopicPartition(str(each.name), partition.partition_index)
        for each in cluster.refresh({partition.topic for partition in wanted}).topics
        for partition in each.partitions
        if partition.leader_id != NO_LEADER
    }
    ends, _ = reachable_offsets(cluster, {partition: LATEST for partition in wanted if partition in known})
    lines = []
    for partition in wanted:
        at, end = offsets.get(partition), ends.get(partition)
        lines.append(
            {
                **partition._asdict(),
                "offset": at and at.offset,
                "end": end,
                "lag": at and at.behind(end),
                "members": [member.member_id for member in owners.get(partition, ())],
            }
        )
    return {
        "group": name,
        "state": found.state,
        "type": found.type,
        "epoch": found.epoch,
        "assignor": found.assignor,
        "coordinator": found.coordinator,
        "members": [
            {"id": each.member_id, "client": each.client_id, "host": each.host, "partitions": len(each.partitions)}
            for each in found.members
        ],
        "partitions": lines,
    }


def topic_groups(cluster: Cluster, name: str) -> View:
    """The groups that read a topic: with offsets for it, or with members that have its partitions.

    `not_examined` is the number of groups that this client may not describe, or that are too many. Coordinators that do not answer are
    named.
    """
    listed, errors = reachable_groups(cluster)
    unanswered("missing", cluster, errors)  # raises before the same brokers take their timeout again
    readers, refused, lost = readers_of(cluster, name, listed[:MAX_GROUPS])
    silent = unanswered("missing", cluster, errors | lost)
    led = [TopicPartition(name, each.partition_index) for each in cluster.topic(name).partitions if each.leader_id != NO_LEADER]
    reached, _ = reachable_offsets(cluster, dict.fromkeys(led, LATEST))
    ends = {where.partition: end for where, end in reached.items()}
    lines = [
        {
            "group": each.group,
            "state": each.state,
            "members": each.members,
            "partitions": len(each.offsets),
            "lag": _lag(each.offsets, ends),
        }
        for each in readers
    ]
    return {"groups": lines, "not_examined": len(refused) + max(0, len(listed) - MAX_GROUPS), **silent}


def _lag(offsets: Mapping[int, Position], ends: Mapping[int, int]) -> int | None:
    """The lag in all partitions; None if that in one of them is unknown."""
    lags = [each.behind(ends.get(number)) for number, each in offsets.items()]
    return sum(each for each in lags if each is not None) if None not in lags else None


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
        "examined_at_ms": int(facts.examined_at * 1000),
    }
