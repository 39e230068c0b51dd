"""Gathers the facts of a cluster by Kafka's protocol, from Ottla and from Apache Kafka alike.

If a broker does not answer, or does not support a request, the missing part is noted.
"""

import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.cli.doctor.certificates import end_of
from ottla.cli.doctor.health import degraded
from ottla.cli.doctor.kinds import reasons, some
from ottla.cli.doctor.remote_checks import ENABLE, SEGMENT_MS, RemoteFacts, ask_remote
from ottla.cli.doctor.zookeeper import ServerFacts, ask_servers, not_reached
from ottla.client.cluster import NO_LEADER, Cluster
from ottla.client.config_admin import DYNAMIC, SOURCES, ConfigResourceType, describe_configs
from ottla.client.errors import ClientError, ConnectionLost, check
from ottla.client.group_admin import describe_group, reachable_groups
from ottla.client.group_offsets.committed import committed_offsets
from ottla.client.hanging import OpenTransaction, late_transactions, search
from ottla.client.offsets import LATEST, READ_COMMITTED, reachable_offsets
from ottla.client.reachable import Part, at_once
from ottla.client.reassignments import FOLLOWER_RATE, LEADER_RATE, moves
from ottla.client.transaction_admin import reachable_producers
from ottla.client.versions import ApiTable
from ottla.config.keys.own import OTTLA_METRICS_LISTENER
from ottla.config.keys.tiered import REMOTE_LOG_STORAGE_SYSTEM_ENABLE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from ottla.protocol.topic_partition import TopicPartition

OPEN_SECONDS: Final = 900.0
"""The default of transaction.max.timeout.ms: no transaction is open for longer without a reason."""
_TOPICS_AT_ONCE: Final = 500
_MOST_GROUPS: Final = 500
INTERNAL_TOPIC_KEYS: Final = {
    "offsets.topic.num.partitions": "__consumer_offsets",
    "transaction.state.log.num.partitions": "__transaction_state",
}
"""The keys for the numbers of partitions of internal topics that are created, and these topics."""
_EXAMINED: Final = ("min.insync.replicas", "cleanup.policy", ENABLE, SEGMENT_MS)


class BrokerFacts(NamedTuple):
    """A registered broker. Without an answer `versions` is empty and `error` has the reason."""

    address: str
    rack: str | None
    versions: ApiTable
    error: str = ""
    certificate_ends_at: float | None = None
    """Seconds since the epoch; None without TLS."""


class DiskFacts(NamedTuple):
    """A log directory of a broker; -1 for numbers that the broker does not give."""

    broker_id: int
    path: str
    is_online: bool
    replica_bytes: int
    total_bytes: int
    usable_bytes: int


@dataclass(slots=True)
class ClusterFacts:
    """The parts of a cluster that the checks judge."""

    examined_at: float = 0.0
    """Seconds since the epoch."""
    brokers: dict[int, BrokerFacts] = field(default_factory=dict)
    controller_id: int = NO_LEADER
    topics: list[MetadataResponseTopic] = field(default_factory=list)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    """By topic the values of the examined keys."""
    configured_partitions: dict[str, int] = field(default_factory=dict)
    """The numbers of partitions of new internal topics, by key; the largest of all brokers."""
    disks: list[DiskFacts] = field(default_factory=list)
    groups_without_commits: list[str] = field(default_factory=list)
    hanging: list[OpenTransaction] = field(default_factory=list)
    long: list[OpenTransaction] = field(default_factory=list)
    throttled: dict[str, str] = field(default_factory=dict)
    """The replication throttle that is set, by the id of the broker, or by `default` for all brokers."""
    is_reassigning: bool = False
    remote: RemoteFacts = field(default_factory=RemoteFacts)
    zookeeper: list[ServerFacts] = field(default_factory=list)
    """The ZooKeeper servers that the brokers name; none without ZooKeeper."""
    not_examined: list[str] = field(default_factory=list)

    def partitions_of(self) -> dict[str, list[int]]:
        """The partitions of each topic."""
        return {str(topic.name): [each.partition_index for each in topic.partitions] for topic in self.topics}


def gather(cluster: Cluster, now: Callable[[], float] = time.time) -> ClusterFacts:
    """Ask a cluster. Raises ClientError if it cannot be reached at all."""
    answer = cluster.refresh(None)
    facts = ClusterFacts(examined_at=now(), controller_id=answer.controller_id)
    facts.topics = sorted((topic for topic in answer.topics if topic.name is not None), key=lambda topic: str(topic.name))
    _ask_brokers(facts, cluster, answer)
    parts: Sequence[tuple[str, Callable[[], None]]] = (
        ("configurations of topics", lambda: ask_configs(facts, cluster)),
        ("numbers of partitions", lambda: _ask_partition_counts(facts, cluster)),
        ("log directories", lambda: _ask_disks(facts, cluster)),
        ("groups", lambda: _ask_groups(facts, cluster)),
        ("transactions", lambda: ask_transactions(facts, cluster, now())),
        ("throttles", lambda: _ask_throttles(facts, cluster)),
        ("remote segments", lambda: _ask_remote(facts, cluster)),
        ("ZooKeeper", lambda: _ask_zookeeper(facts, cluster)),
    )
    for name, part in parts:
        try:
            part()
        except ClientError as error:
            facts.not_examined.append(f"{name}: {' '.join(str(error).split())}")
    silent = [str(broker_id) for broker_id in facts.brokers if broker_id not in _answering(facts)]
    if silent:
        facts.not_examined.append(f"broker {some(silent)}: log directories, groups, transactions and throttles, because it does not answer")
    return facts


def _ask_brokers(facts: ClusterFacts, cluster: Cluster, answer: MetadataResponse) -> None:
    listed = sorted(answer.brokers, key=lambda each: each.node_id)
    connections, errors = at_once(cluster, [broker.node_id for broker in listed], lambda own, broker_id: own.broker(broker_id))
    for broker in listed:
        address = f"{broker.host}:{broker.port}"
        connection = connections.get(broker.node_id)
        if connection is None:
            facts.brokers[broker.node_id] = BrokerFacts(address, broker.rack, {}, str(errors[broker.node_id]))
        else:
            ends_at = _certificate_ends_at(connection.certificate)
            facts.brokers[broker.node_id] = BrokerFacts(address, broker.rack, connection.versions, certificate_ends_at=ends_at)


def _certificate_ends_at(certificate: bytes | None) -> float | None:
    """The end of a certificate, None for one whose form is unknown here; the handshake has accepted it."""
    try:
        return None if certificate is None else end_of(certificate)
    except ValueError:
        return None


def _answering(facts: ClusterFacts) -> list[int]:
    return [broker_id for broker_id, broker in facts.brokers.items() if broker.versions]


def ask_each(facts: ClusterFacts, cluster: Cluster, what: str, ask: Callable[[Cluster, int], Part]) -> dict[int, Part]:
    """The answer of every broker that answers. One that is lost is asked nothing more; the refusal of another is noted."""
    found, errors = at_once(cluster, _answering(facts), ask)
    refused = _without_lost(facts, errors)
    facts.not_examined += [f"{what} of {line}" for line in reasons(refused)]
    return found


def _without_lost(facts: ClusterFacts, errors: Mapping[int, ClientError]) -> dict[str, ClientError]:
    """The errors of brokers that refuse. Brokers that are lost are asked nothing more."""
    refused: dict[str, ClientError] = {}
    for broker_id, error in errors.items():
        if isinstance(error, ConnectionLost):
            _give_up(facts, broker_id, error)
        else:
            refused[f"broker {broker_id}"] = error
    return refused


def _give_up(facts: ClusterFacts, broker_id: int, error: ClientError) -> None:
    facts.brokers[broker_id] = facts.brokers[broker_id]._replace(versions={}, error=str(error).removeprefix(f"broker {broker_id}: "))


def ask_configs(facts: ClusterFacts, cluster: Cluster) -> None:
    """Add the examined keys of all topics. Topics that the cluster does not describe are noted. Raises ClientError without any broker."""
    left = [str(topic.name) for topic in facts.topics]
    refused: list[str] = []
    while left:
        described, left = _described_by_all(facts, cluster, left)
        refused += [each.resource_name for each in described if each.error_code]
        facts.configs |= {
            each.resource_name: {config.name: config.value or "" for config in each.configs} for each in described if not each.error_code
        }
    if refused:
        facts.not_examined.append(f"configurations of {some(sorted(refused))}: the cluster refuses to describe them")


def _described_by_all(facts: ClusterFacts, cluster: Cluster, names: Sequence[str]) -> tuple[list[DescribeConfigsResult], list[str]]:
    """The answers of all brokers, of which each describes a share of the topics, and the topics in the shares of those that were lost."""
    answering = _answering(facts)
    if not answering:
        raise ClientError("no broker answers")
    shares = {broker_id: names[number :: len(answering)] for number, broker_id in enumerate(answering)}
    told = ask_each(facts, cluster, "configurations of topics", lambda own, broker_id: _described(own, broker_id, shares[broker_id]))
    lost = shares.keys() - _answering(facts)
    return [each for answers in told.values() for each in answers], [name for broker_id in lost for name in shares[broker_id]]


def _described(own: Cluster, broker_id: int, names: Sequence[str]) -> list[DescribeConfigsResult]:
    """The answers of a broker. Raises ClientError."""
    found: list[DescribeConfigsResult] = []
    for begin in range(0, len(names), _TOPICS_AT_ONCE):
        resources = [
            DescribeConfigsResource(resource_type=ConfigResourceType.TOPIC, resource_name=name, configuration_keys=list(_EXAMINED))
            for name in names[begin : begin + _TOPICS_AT_ONCE]
        ]
        found += own.ask_broker(broker_id, DescribeConfigsRequest(resources=resources), DescribeConfigsResponse).results
    return found


def _ask_remote(facts: ClusterFacts, cluster: Cluster) -> None:
    facts.remote.degraded = degraded(_tiered_listeners(facts, cluster))
    ask_remote(facts.remote, cluster, facts.configs, facts.partitions_of(), int(facts.examined_at * 1000))


def _tiered_listeners(facts: ClusterFacts, cluster: Cluster) -> dict[int, tuple[str, str]]:
    """The metrics listener and the advertised host of each broker with tiered storage."""
    keys = (REMOTE_LOG_STORAGE_SYSTEM_ENABLE.name, OTTLA_METRICS_LISTENER.name)
    values = ask_each(facts, cluster, "health", lambda own, broker_id: _own_values(own, broker_id, keys))
    return {
        broker_id: (found[keys[1]], facts.brokers[broker_id].address.rpartition(":")[0])
        for broker_id, found in values.items()
        if found.get(keys[0]) == "true" and keys[1] in found
    }


def _ask_partition_counts(facts: ClusterFacts, cluster: Cluster) -> None:
    def ask(own: Cluster, broker_id: int) -> dict[str, int]:
        return {key: int(value) for key, value in _own_values(own, broker_id, INTERNAL_TOPIC_KEYS).items()}

    for found in ask_each(facts, cluster, "numbers of partitions", ask).values():
        for key, count in found.items():
            facts.configured_partitions[key] = max(count, facts.configured_partitions.get(key, 0))


def _own_values(own: Cluster, broker_id: int, keys: Iterable[str]) -> dict[str, str]:
    """The values of these keys of a broker, without those that have none. Raises ClientError."""
    resource = DescribeConfigsResource(resource_type=ConfigResourceType.BROKER, resource_name=str(broker_id), configuration_keys=[*keys])
    answer = own.ask_broker(broker_id, DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
    check(f"broker {broker_id}", answer.results[0].error_code)
    return {config.name: config.value for config in answer.results[0].configs if config.value}


def _ask_zookeeper(facts: ClusterFacts, cluster: Cluster) -> None:
    key = "zookeeper.connect"
    values = ask_each(facts, cluster, "ZooKeeper", lambda own, broker_id: _own_values(own, broker_id, [key]).get(key, ""))
    facts.zookeeper = ask_servers(sorted(set(filter(None, values.values()))))
    facts.not_examined += not_reached(facts.zookeeper)


def _ask_disks(facts: ClusterFacts, cluster: Cluster) -> None:
    def ask(own: Cluster, broker_id: int) -> list[DiskFacts]:
        answer = own.ask_broker(broker_id, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        check(f"broker {broker_id}", answer.error_code)
        found = []
        for each in answer.results:
            size = sum(partition.partition_size for topic in each.topics for partition in topic.partitions)
            is_online = each.error_code != ErrorCode.KAFKA_STORAGE_ERROR
            found.append(DiskFacts(broker_id, each.log_dir, is_online, size, each.total_bytes, each.usable_bytes))
        return found

    for disks in ask_each(facts, cluster, "log directories", ask).values():
        facts.disks += disks


def _ask_groups(facts: ClusterFacts, cluster: Cluster) -> None:
    found, errors = reachable_groups(cluster, broker_ids=_answering(facts))
    refused = _without_lost(facts, errors)
    listed = [each for each in found if each.protocol_type == "consumer"]
    if len(listed) > _MOST_GROUPS:
        facts.not_examined.append(f"groups: only the first {_MOST_GROUPS} of {len(listed)} were examined")
    lost: dict[int, ClientError] = {}
    for each in listed[:_MOST_GROUPS]:
        if each.state in {"Empty", "Dead"}:
            continue
        if each.coordinator in lost:  # which would take the whole timeout for each of its groups
            refused[each.group] = lost[each.coordinator]
            continue
        try:
            described = describe_group(cluster, each.group)
            if any(member.partitions for member in described.members) and not committed_offsets(cluster, each.group):
                facts.groups_without_commits.append(each.group)
        except ClientError as error:
            refused[each.group] = error
            if isinstance(error, ConnectionLost):
                lost[each.coordinator] = error
    facts.not_examined += [f"groups: {line}" for line in reasons(refused)]


def ask_transactions(facts: ClusterFacts, cluster: Cluster, now: float) -> None:
    """Add the transactions that have been open for long, on the partitions of the leaders that answer; other partitions are noted.

    Raises ClientError.
    """
    answering = _answering(facts)
    led = dict.fromkeys(_led_partitions(facts.topics, answering), LATEST)
    ends, errors = reachable_offsets(cluster, led)
    stable, more = reachable_offsets(cluster, dict.fromkeys(filter(ends.get, ends), LATEST), isolation=READ_COMMITTED)
    held = [partition for partition in stable if stable[partition] < ends[partition]]
    producers, missing = reachable_producers(cluster, held)
    late = late_transactions(producers, max_timeout_ms=int(OPEN_SECONDS * 1000), now_ms=int(now * 1000))
    found = search(cluster, late)
    facts.hanging = found.hanging
    stuck = {(each.partition, each.producer.producer_id) for each in facts.hanging}
    facts.long = [each for each in late if (each.partition, each.producer.producer_id) not in stuck]
    facts.not_examined += [f"transactions: {line}" for line in reasons({**errors, **more, **missing})]
    facts.not_examined += [f"transactions: {' '.join(str(error).split())}" for error in found.coordinators]
    if found.undecided:
        facts.not_examined.append(f"transactions: whether those on {some([str(each.partition) for each in found.undecided])} hang")


def _led_partitions(topics: Iterable[MetadataResponseTopic], leaders: Container[int]) -> list[TopicPartition]:
    return [
        TopicPartition(str(topic.name), partition.partition_index)
        for topic in topics
        for partition in topic.partitions
        if partition.leader_id in leaders
    ]


def _ask_throttles(facts: ClusterFacts, cluster: Cluster) -> None:
    facts.is_reassigning = bool(moves(cluster))

    configs = ask_each(facts, cluster, "throttles", lambda own, broker_id: describe_configs(own, ConfigResourceType.BROKER, str(broker_id)))
    for broker_id, of_one in configs.items():
        for config in of_one:
            if config.name in {LEADER_RATE, FOLLOWER_RATE} and config.config_source in DYNAMIC:
                is_default = SOURCES[config.config_source] == "DYNAMIC_DEFAULT_BROKER_CONFIG"
                facts.throttled["default" if is_default else str(broker_id)] = f"{config.name}={config.value}"
