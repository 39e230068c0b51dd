"""Checks and creates the topic of a run with Ottla's own client, and reads its first and last offsets, before and after Spark works."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from ottla.client.cluster import Cluster, UnknownTopic
from ottla.client.config_admin import ConfigResourceType, describe_configs
from ottla.client.errors import ClientError
from ottla.client.offsets import EARLIEST_LOCAL, end_offsets, list_offsets, start_offsets
from ottla.client.topic_admin import NewTopic, create_topics, delete_topics
from ottla.protocol.messages.describe_configs import DescribeConfigsResourceResult
from ottla.protocol.topic_partition import TopicPartition
from ottla.validate.plan import Plan, Unusable
from ottla.validate.sizes import check_topic_limit

_TIMEOUT_S = 20.0
_INTERNAL = ("__consumer_offsets", "__transaction_state")
_COORDINATOR_S = 30.0
_FIRST_S = 8.0  # so that a missing broker is reported within seconds

Offsets = dict[int, int]
"""By partition."""


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic as it was found or made. `first` has the offsets at which this run's records begin."""

    name: str
    partitions: int
    first: Offsets
    is_new: bool
    log_append_time: bool


def check(plan: Plan) -> None:
    """Check that all brokers answer, and that the topic exists or can be made as planned. Creates nothing. Raises Unusable."""
    _look(plan, _FIRST_S, make=False)


def prepare(plan: Plan) -> Topic:
    """Create the topic, or check the existing one. Raises Unusable."""
    topic = _look(plan, _TIMEOUT_S, make=True)
    assert topic is not None
    return topic


def check_transactions(plan: Plan) -> None:
    """Whether there is a coordinator for the transactions of copiers, which makes brokers create their topic. Raises Unusable."""
    if plan.copies is None:
        return
    try:
        with connected(plan, _COORDINATOR_S) as cluster:
            cluster.transaction_coordinator(f"{plan.topic}-copier-0")
    except ClientError as error:
        hint = "are there enough brokers for transaction.state.log.replication.factor?"
        raise Unusable(f"{plan.bootstrap}: there can be no transactions: {error}; {hint}") from None


def _look(plan: Plan, timeout_s: float, *, make: bool) -> Topic | None:
    if plan.topic in _INTERNAL:
        raise Unusable(f"topic {plan.topic} is the brokers' own; name another")
    try:
        with connected(plan, timeout_s) as cluster:
            for broker_id in cluster.broker_ids():
                cluster.broker(broker_id)  # Spark will connect to the addresses that brokers say, not to the one that was given
            try:
                found = cluster.topic(plan.topic)
            except UnknownTopic:
                if not plan.generates:
                    raise Unusable(f"there is no topic {plan.topic} to verify at {plan.bootstrap}") from None
                _check_size(plan, _configs_of_brokers(cluster), "message.max.bytes")
                _create(cluster, plan, validate_only=not make)
                return _made(cluster, plan) if make else None
            partitions = len(found.partitions)
            described = describe_configs(cluster, ConfigResourceType.TOPIC, plan.topic)
            _check_size(plan, described, "max.message.bytes")
            configs = {one.name: one.value or "" for one in described}
            _check_settings(plan, partitions, len(found.partitions[0].replica_nodes), configs)
            names = _names(plan.topic, partitions)
            first = end_offsets(cluster, names) if plan.generates else start_offsets(cluster, names)
            return Topic(plan.topic, partitions, _by_number(first), False, configs.get("message.timestamp.type") == "LogAppendTime")
    except ClientError as error:
        lines = (line.strip() for line in str(error).splitlines())
        raise Unusable(f"{plan.bootstrap or '--bootstrap'}: {'; '.join(line for line in lines if line)}") from None


def ends(plan: Plan, topic: Topic, timeout_s: float = _TIMEOUT_S) -> Offsets:
    """The end offset of each partition. Raises ClientError."""
    with connected(plan, timeout_s) as cluster:
        return _by_number(end_offsets(cluster, _names(topic.name, topic.partitions)))


def moved_away(plan: Plan, topic: Topic, ends: Offsets) -> int:
    """How many offsets of the run are in the remote store only. Raises ClientError."""
    with connected(plan) as cluster:
        found = list_offsets(cluster, dict.fromkeys(_names(topic.name, topic.partitions), EARLIEST_LOCAL))
    local = {name.partition: each.offset for name, each in found.items()}
    return sum(max(0, min(local[number], end) - topic.first[number]) for number, end in ends.items())


def remove(plan: Plan, name: str) -> None:
    """Delete a topic of the run. Raises ClientError."""
    with connected(plan) as cluster:
        for error in delete_topics(cluster, [name]).values():
            if error is not None:
                raise error


def connected(plan: Plan, timeout_s: float = _TIMEOUT_S) -> Cluster:
    """The cluster of a run, a context manager. Its requests raise ClientError."""
    return Cluster(plan.bootstrap, client_id="ottla-validate", timeout_seconds=timeout_s, security=plan.security)


def _create(cluster: Cluster, plan: Plan, *, validate_only: bool) -> None:
    new = NewTopic(plan.topic, plan.partitions, plan.replication_factor, plan.topic_configs)
    for error in create_topics(cluster, [new], validate_only=validate_only).values():
        if error is not None:
            raise Unusable(f"topic {plan.topic} cannot be made: {error}")


def _made(cluster: Cluster, plan: Plan) -> Topic:
    def offsets() -> dict[TopicPartition, int]:
        return start_offsets(cluster, _names(plan.topic, plan.partitions))

    configs = {one.name: one.value for one in describe_configs(cluster, ConfigResourceType.TOPIC, plan.topic)}
    first = _by_number(cluster.until_done(offsets))
    return Topic(plan.topic, plan.partitions, first, True, configs.get("message.timestamp.type") == "LogAppendTime")


def _check_settings(plan: Plan, partitions: int, replicas: int, configs: dict[str, str]) -> None:
    wrong = []
    if partitions != plan.partitions and plan.generates:
        wrong.append(f"it has {partitions} partitions, not {plan.partitions}")
    if plan.replication_factor not in (-1, replicas) and plan.generates:
        wrong.append(f"its replication factor is {replicas}, not {plan.replication_factor}")
    wrong += [
        f"its {name} is {configs.get(name)}, not {value}"
        for name, value in plan.least_configs.items()
        if int(configs.get(name) or 0) < int(value)
    ]
    if plan.tiered and configs.get("remote.storage.enable") != "true":
        wrong.append("it has no remote.storage.enable=true")
    if "compact" in configs.get("cleanup.policy", ""):
        wrong.append("it is compacted, so records vanish on purpose")
    if wrong:
        raise Unusable(f"topic {plan.topic} exists with other settings: {'; '.join(wrong)}; name another, or delete it")


def _check_size(plan: Plan, configs: list[DescribeConfigsResourceResult], name: str) -> None:
    limits = [int(one.value) for one in configs if one.name == name and one.value]
    if plan.generates and plan.is_measured and limits:
        check_topic_limit(plan, min(limits))


def _configs_of_brokers(cluster: Cluster) -> list[DescribeConfigsResourceResult]:
    """Configurations of the brokers; empty if the client may not read them, although it may create topics."""
    with suppress(ClientError):
        return [one for number in cluster.broker_ids() for one in describe_configs(cluster, ConfigResourceType.BROKER, str(number))]
    return []


def _names(topic: str, partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(partitions)]


def _by_number(offsets: dict[TopicPartition, int]) -> Offsets:
    return {name.partition: offset for name, offset in sorted(offsets.items())}
