"""Plans the replicas of partitions: spread over racks, even over brokers, with as few moves as that allows.

Pure; called by `ottla topics reassign generate` and `ottla brokers drain`. Kafka's own tool instead places every partition as if its
topic were new.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Any

from ottla.client.errors import ClientError
from ottla.protocol.topic_partition import TopicPartition

Plan = dict[TopicPartition, list[int]]
"""Replicas by partition, the preferred leader first."""


def balanced(current: Mapping[TopicPartition, Sequence[int]], racks: Mapping[int, str | None], factor: int | None = None) -> Plan:
    """The plan for these partitions over the brokers of `racks`; `factor` replicas each, or their current number.

    No rack has two replicas of a partition while another rack has none. Within that, the numbers of replicas per broker
    differ by at most one if possible, and leadership is as even as another order of replicas makes it. Racks are
    ignored unless every broker has one. Raises ClientError.
    """
    factors = {partition: factor or len(replicas) for partition, replicas in current.items()}
    most = max(factors.values(), default=0)
    if most > len(racks):
        raise ClientError(f"{most} replicas need as many brokers; there are {len(racks)} to choose from")
    rack_of = dict(racks) if all(rack is not None for rack in racks.values()) else {broker: str(broker) for broker in racks}
    room = _quotas(Counter(broker for replicas in current.values() for broker in replicas), sorted(racks), sum(factors.values()))
    plan: Plan = {partition: [] for partition in current}
    _keep(plan, current, factors, rack_of, room)
    for partition, replicas in plan.items():
        while len(replicas) < factors[partition]:
            used = Counter(rack_of[broker] for broker in replicas)
            broker = min((each for each in room if each not in replicas), key=lambda each: (used[rack_of[each]], -room[each], each))
            replicas.append(broker)
            room[broker] -= 1
    while _even_out(plan, current, rack_of, room):
        pass
    _spread_leaders(plan)
    return plan


def without(current: Mapping[TopicPartition, Sequence[int]], racks: Mapping[int, str | None], leaving: Set[int]) -> Plan:
    """The plan that moves each replica of the brokers `leaving` to another broker of `racks`; all other replicas stay.

    `current` has all partitions of the cluster, whose replicas are counted. A new replica is in the rack that has fewest replicas of the
    partition, there on the broker with fewest replicas of all. Raises ClientError if there are too few brokers, or if a partition would be
    on fewer racks than now. Racks are ignored unless every broker has one.
    """
    stays = {broker: rack for broker, rack in racks.items() if broker not in leaving}
    by_rack = all(rack is not None for rack in racks.values())
    rack_of = {broker: rack if by_rack else str(broker) for broker, rack in racks.items()}
    load = Counter(broker for replicas in current.values() for broker in replicas)
    plan: Plan = {}
    for partition, replicas in current.items():
        if not leaving & set(replicas):
            continue
        if len(replicas) > len(stays):
            alive = f"{len(stays)} other {'broker is' if len(stays) == 1 else 'brokers are'} alive"
            raise ClientError(f"{partition} has {len(replicas)} replicas, and only {alive}")
        new = list(replicas)
        for place, broker in enumerate(replicas):
            if broker not in leaving:
                continue
            used = Counter(rack_of.get(each, str(each)) for each in new if each not in leaving)
            new[place] = chosen = min((each for each in stays if each not in new), key=lambda each: (used[rack_of[each]], load[each], each))
            load[chosen] += 1
            load[broker] -= 1
        before, after = ({rack_of.get(each, str(each)) for each in listed} for listed in (replicas, new))
        if len(after) < len(before):
            raise ClientError(f"{partition} would be on {len(after)} racks instead of {len(before)}: {', '.join(sorted(map(str, after)))}")
        plan[partition] = new
    return plan


def _quotas(load: Counter[int], brokers: Sequence[int], total: int) -> dict[int, int]:
    """The number of replicas of each broker; one more for those with most replicas now."""
    each, rest = divmod(total, len(brokers))
    favoured = sorted(brokers, key=lambda broker: (-load[broker], broker))[:rest]
    return {broker: each + (broker in favoured) for broker in brokers}


def _keep(
    plan: Plan,
    current: Mapping[TopicPartition, Sequence[int]],
    factors: Mapping[TopicPartition, int],
    rack_of: Mapping[int, str | None],
    room: dict[int, int],
) -> None:
    """Keep replicas that may stay: preferred leaders first, then second replicas, and so on."""
    count = len(set(rack_of.values()))
    for place in range(max(map(len, current.values()), default=0)):
        for partition, replicas in current.items():
            if place >= len(replicas) or len(plan[partition]) >= factors[partition]:
                continue
            broker = replicas[place]
            if room.get(broker, 0) <= 0 or broker in plan[partition]:
                continue
            used = Counter(rack_of[each] for each in plan[partition])
            least, more = divmod(factors[partition], count)
            here = used[rack_of[broker]]
            # `least` in each rack, and one more in some.
            if here < least or (here == least and sum(in_rack > least for in_rack in used.values()) < more):
                plan[partition].append(broker)
                room[broker] -= 1


def _even_out(plan: Plan, current: Mapping[TopicPartition, Sequence[int]], rack_of: Mapping[int, str | None], room: dict[int, int]) -> bool:
    """Move one replica from a broker with too many to one with too few, preferably a replica that moves anyway; False
    when none can."""
    for over in sorted((broker for broker in room if room[broker] < 0), key=lambda broker: room[broker]):
        for under in sorted((broker for broker in room if room[broker] > 0), key=lambda broker: -room[broker]):
            for name in sorted(plan, key=lambda name: over in current[name]):
                replicas = plan[name]
                if over not in replicas or under in replicas:
                    continue
                used = Counter(rack_of[broker] for broker in replicas if broker != over)
                if used[rack_of[under]] <= used[rack_of[over]]:
                    replicas[replicas.index(over)] = under
                    room[over] += 1
                    room[under] -= 1
                    return True
    return False


def _spread_leaders(plan: Plan) -> None:
    """Move another replica to the first place where a broker would lead too many."""
    leads = Counter(replicas[0] for replicas in plan.values())
    moved = True
    while moved:
        moved = False
        for replicas in plan.values():
            least = min(replicas, key=lambda broker: (leads[broker], broker))
            if leads[replicas[0]] > leads[least] + 1:
                leads[replicas[0]] -= 1
                leads[least] += 1
                replicas.remove(least)
                replicas.insert(0, least)
                moved = True


def to_json(plan: Mapping[TopicPartition, Sequence[int]]) -> dict[str, Any]:
    """The plan in the format of Kafka's tool."""
    partitions = [{"topic": name.topic, "partition": name.partition, "replicas": list(replicas)} for name, replicas in plan.items()]
    return {"version": 1, "partitions": partitions}


def from_json(text: str) -> Plan:
    """The inverse; log directories in the plan are ignored. Raises ClientError."""
    try:
        document = json.loads(text)
        if document.get("version", 1) != 1:
            raise ClientError(f"version {document['version']} of plans is not known, only 1")
        plan: Plan = {}
        for entry in document["partitions"]:
            name = TopicPartition(str(entry["topic"]), int(entry["partition"]))
            replicas = [int(broker) for broker in entry["replicas"]]
            if not isinstance(entry["replicas"], list):  # the digits of a text are numbers, too
                raise ClientError(f"{name}: the replicas are no list of broker ids")
            if name in plan:
                raise ClientError(f"{name} is twice in the plan")
            if not replicas or len(set(replicas)) < len(replicas):
                raise ClientError(f"{name}: {replicas} are not valid replicas; name at least one broker, and each once")
            plan[name] = replicas
    except (ValueError, OverflowError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ClientError(f"this is not a plan in the format of `generate`: {type(error).__name__} {error}") from None
    return plan
