"""Judges the facts of a cluster: brokers, partitions, placement, internal topics, groups, transactions. Pure."""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.cli.doctor.certificates import check_end
from ottla.cli.doctor.cluster_facts import INTERNAL_TOPIC_KEYS, OPEN_SECONDS, ClusterFacts, DiskFacts
from ottla.cli.doctor.host_checks import FULL, NEARLY_FULL
from ottla.cli.doctor.kinds import Finding, call, found, some
from ottla.cli.doctor.remote_checks import check_remote
from ottla.cli.doctor.zookeeper import check_zookeeper
from ottla.cli.output import counted
from ottla.client.cluster import NO_LEADER
from ottla.client.versions import with_other_requests
from ottla.protocol.messages.metadata import MetadataResponsePartition

IMBALANCE: Final = 0.10
"""Share of partitions led by another than the preferred replica: the default of leader.imbalance.per.broker.percentage."""
UNEVEN_SHARE, UNEVEN_COUNT = 0.25, 10
"""Brokers differ by more than both: a share of their mean number of replicas, and a number of replicas."""
UNEVEN_BYTES: Final = 2**30
WANTED_REPLICAS: Final = 3
_EXECUTED: Final = " && ottla topics reassign execute plan.json --wait"


class _Partition(NamedTuple):
    topic: str
    facts: MetadataResponsePartition

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.facts.partition_index}"


def check_cluster(facts: ClusterFacts) -> Iterator[Finding]:
    """All findings, the most urgent subjects first."""
    partitions = [_Partition(str(topic.name), partition) for topic in facts.topics for partition in topic.partitions]
    yield from _dead_brokers(facts, partitions)
    yield from _brokers(facts)
    yield from check_zookeeper(facts.zookeeper)
    yield from _availability(facts, partitions)
    yield from _placement(facts, partitions)
    yield from _topics(facts, partitions)
    yield from _disks(facts)
    yield from _readers(facts)
    yield from check_remote(facts.remote, facts.configs, facts.partitions_of())


def _brokers(facts: ClusterFacts) -> Iterator[Finding]:
    for broker_id, broker in facts.brokers.items():
        if broker.error:
            yield found(
                "broker-unreachable",
                f"broker {broker_id} is registered at {broker.address}: {broker.error}",
                "check advertised.listeners and the network; ottla doctor server.properties on its host says more",
            )
        if broker.certificate_ends_at is not None:
            yield from check_end(f"broker {broker_id} at {broker.address}", broker.certificate_ends_at, facts.examined_at)
    if facts.controller_id not in facts.brokers:
        yield found("controller-missing", "no broker is controller", "look for ZooKeeper in the brokers' logs; restart a broker")
    tables = {broker_id: broker.versions for broker_id, broker in facts.brokers.items() if broker.versions}
    others = with_other_requests(tables)
    if others:
        same = [broker_id for broker_id in tables if broker_id not in others]
        yield found(
            "versions-mixed",
            f"brokers {_listed(same)} support other requests than {_listed(others)}",
            "finish the upgrade: ottla cluster rolling-restart",
        )
    if facts.throttled and not facts.is_reassigning:
        said = "; ".join(f"broker {name} has {rate}" for name, rate in facts.throttled.items())
        one, *more = facts.throttled
        keys = "--delete leader.replication.throttled.rate --delete follower.replication.throttled.rate"
        command = f"ottla configs alter broker {'$each' if more else one} {keys}"
        yield found(
            "throttle-left",
            f"{said}, and nothing is being reassigned",
            f"for each in {' '.join(facts.throttled)}; do {command}; done" if more else command,
        )


def _dead_brokers(facts: ClusterFacts, partitions: list[_Partition]) -> Iterator[Finding]:
    held = Counter(broker for each in partitions for broker in each.facts.replica_nodes if broker not in facts.brokers)
    for broker, count in sorted(held.items()):
        yield found(
            "broker-dead",
            f"broker {broker} is not alive; it has replicas of {counted(count, 'partition')}",
            f"start broker {broker}; if it is gone for good, ottla brokers drain {broker}",
        )


def _availability(facts: ClusterFacts, partitions: list[_Partition]) -> Iterator[Finding]:
    offline = [each.name for each in partitions if each.facts.leader_id == NO_LEADER]
    if offline:
        missing = sorted({broker for each in partitions if each.name in set(offline) for broker in each.facts.offline_replicas})
        yield found(
            "partition-offline",
            f"{some(offline)}: no leader",
            f"start broker {_listed(missing)}; ottla topics describe --unavailable" if missing else "ottla topics describe --unavailable",
        )
    served = [each for each in partitions if each.facts.leader_id != NO_LEADER]
    below = [each.name for each in served if len(each.facts.isr_nodes) < _min_isr(facts, each.topic)]
    if below:
        yield found(
            "partition-below-min-isr",
            f"{some(below)}: fewer replicas in sync than min.insync.replicas",
            "ottla topics describe --under-replicated names the missing brokers; start them",
        )
    # Replicas on dead brokers are reported with those.
    behind = [each.name for each in served if (set(each.facts.replica_nodes) & facts.brokers.keys()) - set(each.facts.isr_nodes)]
    if behind:
        yield found(
            "partition-under-replicated",
            f"{some(behind)}: not every replica is in sync",
            "ottla topics describe --under-replicated names the missing brokers; start them, or wait until they have caught up",
        )


def _placement(facts: ClusterFacts, partitions: list[_Partition]) -> Iterator[Finding]:
    moved = [
        each.name
        for each in partitions
        if each.facts.leader_id not in {NO_LEADER, each.facts.replica_nodes[0]} and each.facts.replica_nodes[0] in each.facts.isr_nodes
    ]
    if len(moved) > IMBALANCE * len(partitions):
        yield found("leader-not-preferred", f"{some(moved)}: not led by the preferred replica", "ottla topics elect --all")
    racks = {broker_id: broker.rack for broker_id, broker in facts.brokers.items()}
    if len(set(racks.values())) > 1 and None not in racks.values():
        together = [
            each
            for each in partitions
            if len(each.facts.replica_nodes) > 1 and len({racks.get(broker, broker) for broker in each.facts.replica_nodes}) == 1
        ]
        if together:
            yield found(
                "replicas-in-one-rack",
                f"{some([each.name for each in together])}: all replicas in one rack",
                call("ottla topics reassign generate", together[0].topic, "-o plan.json") + _EXECUTED,
            )
    counts = Counter(dict.fromkeys(facts.brokers, 0))
    counts.update(broker for each in partitions for broker in each.facts.replica_nodes if broker in facts.brokers)
    if counts:
        (most, high), (least, low) = counts.most_common()[0], counts.most_common()[-1]
        if high - low > max(UNEVEN_COUNT, UNEVEN_SHARE * counts.total() / len(counts)):
            yield found(
                "replicas-uneven",
                f"broker {most} has {high} replicas, broker {least} has {low}",
                f"ottla topics reassign generate '*' -o plan.json{_EXECUTED}",
            )


def _topics(facts: ClusterFacts, partitions: list[_Partition]) -> Iterator[Finding]:
    factors: dict[str, int] = {}
    for each in partitions:
        factors[each.topic] = min(len(each.facts.replica_nodes), factors.get(each.topic, len(each.facts.replica_nodes)))
    several = len(facts.brokers) > 1
    single = [topic for topic, factor in factors.items() if several and factor == 1 and topic not in INTERNAL_TOPIC_KEYS.values()]
    if single:
        options = f"-r {min(WANTED_REPLICAS, len(facts.brokers))} -o plan.json"
        yield found(
            "topic-single-replica",
            f"{some(single)}: one replica among {counted(len(facts.brokers), 'broker')}",
            call("ottla topics reassign generate", single[0], options) + _EXECUTED,
        )
    strict = [topic for topic, factor in factors.items() if factor > 1 and _min_isr(facts, topic) >= factor]
    if strict:
        yield found(
            "min-isr-too-high",
            f"{some(strict)}: min.insync.replicas is not smaller than the number of replicas",
            call("ottla configs alter topic", strict[0], f"--set min.insync.replicas={factors[strict[0]] - 1}"),
        )
    for key, topic in INTERNAL_TOPIC_KEYS.items():
        count = len([each for each in partitions if each.topic == topic])
        created = facts.configured_partitions.get(key, count)
        if count > created:
            yield found(
                "internal-topic-partitions",
                f"{topic} has {counted(count, 'partition')}, and {key}={created}",
                f"if partitions were added, look for 'partitions were added' in the brokers' logs, and leave {key} as it is: brokers that "
                f"start then look for each state in all partitions; if not, set {key}={count}",
            )
        policy = facts.configs.get(topic, {}).get("cleanup.policy", "compact")
        if policy != "compact":
            yield found(
                "internal-topic-policy",
                f"{topic} has cleanup.policy={policy}",
                f"ottla configs alter topic {topic} --set cleanup.policy=compact",
            )
        wanted = min(WANTED_REPLICAS, len(facts.brokers))
        if factors.get(topic, wanted) < wanted:
            yield found(
                "internal-topic-replicas",
                f"{topic} has {counted(factors[topic], 'replica')}, and {wanted} are possible",
                f"ottla topics reassign generate {topic} -r {wanted} -o plan.json{_EXECUTED}",
            )


def _disks(facts: ClusterFacts) -> Iterator[Finding]:
    by_broker: dict[int, list[DiskFacts]] = {}
    for disk in facts.disks:
        where = f"{disk.path} of broker {disk.broker_id}"
        if not disk.is_online:
            yield found("directory-offline", where, f"repair the disk, then restart broker {disk.broker_id}")
            continue
        by_broker.setdefault(disk.broker_id, []).append(disk)
        share = disk.usable_bytes / disk.total_bytes if disk.total_bytes > 0 and disk.usable_bytes >= 0 else 1.0
        if share < NEARLY_FULL:
            yield found(
                "disk-full" if share < FULL else "disk-nearly-full",
                f"{where} has {share:.0%} of its bytes free",
                "ottla configs alter topic NAME --set retention.bytes=BYTES, or move replicas: ottla topics reassign",
            )
    for broker_id, disks in by_broker.items():
        most, least = max(disks, key=lambda disk: disk.replica_bytes), min(disks, key=lambda disk: disk.replica_bytes)
        if most.replica_bytes - least.replica_bytes > max(UNEVEN_BYTES, most.replica_bytes // 2):
            yield found(
                "directories-uneven",
                f"broker {broker_id} has {most.replica_bytes} bytes in {most.path}, {least.replica_bytes} in {least.path}",
                "kafka-reassign-partitions.sh with log_dirs moves replicas between the directories of a broker",
            )


def _readers(facts: ClusterFacts) -> Iterator[Finding]:
    for group in facts.groups_without_commits:
        yield found("group-without-commits", f"group {group} has members and no committed offset", call("ottla groups describe", group))
    for each in facts.hanging:
        where = f"{each.partition.topic}:{each.partition.partition}"
        yield found(
            "transaction-hanging",
            f"{each.partition}: producer {each.producer.producer_id}, open from offset {each.producer.start_offset} on",
            call("ottla transactions abort", where, f"--start-offset {each.producer.start_offset}"),
        )
    for each in facts.long:
        yield found(
            "transaction-long",
            f"{each.partition}: producer {each.producer.producer_id}, open for more than {OPEN_SECONDS / 60:.0f} minutes",
            f"ottla transactions list --producer-id {each.producer.producer_id}; docs/operations.md says what to do",
        )


def _min_isr(facts: ClusterFacts, topic: str) -> int:
    text = facts.configs.get(topic, {}).get("min.insync.replicas", "")
    return int(text) if text.isdecimal() else 1


def _listed(ids: list[int]) -> str:
    return ", ".join(map(str, ids))
