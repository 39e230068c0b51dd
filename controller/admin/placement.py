"""Assigns the replicas of new partitions to brokers. Kafka's AdminUtils, with its randomness as an argument.

First replicas are assigned round robin from a random start; the others follow with a shift that grows with each round.
With racks, the brokers are ordered so that racks alternate, and a partition uses every rack once before any rack twice.
"""

from collections.abc import Callable, Mapping, Sequence

from ottla.controller.errors import InvalidPartitions, InvalidReplicationFactor, RackInformationIncomplete

RandomBelow = Callable[[int], int]
"""A random number from 0 (inclusive) to the argument (exclusive)."""


def assign_replicas(
    racks: Mapping[int, str | None],
    num_partitions: int,
    replication_factor: int,
    random_below: RandomBelow,
    fixed_start_index: int = -1,
    start_partition: int = -1,
) -> dict[int, tuple[int, ...]]:
    """The replicas of `num_partitions` partitions from `start_partition` on, over the brokers in the order of `racks`.

    Raises InvalidPartitions, InvalidReplicationFactor, RackInformationIncomplete.
    """
    if num_partitions <= 0:
        raise InvalidPartitions("Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise InvalidReplicationFactor("Replication factor must be larger than 0.")
    if replication_factor > len(racks):
        raise InvalidReplicationFactor(f"Replication factor: {replication_factor} larger than available brokers: {len(racks)}.")
    rack_of = {broker: rack for broker, rack in racks.items() if rack is not None}
    if rack_of and len(rack_of) < len(racks):
        raise RackInformationIncomplete("Not all brokers have rack information for replica rack aware assignment.")
    brokers = rack_alternated(rack_of) if rack_of else list(racks)
    start = fixed_start_index if fixed_start_index >= 0 else random_below(len(brokers))
    shift = fixed_start_index if fixed_start_index >= 0 else random_below(len(brokers))
    first = max(0, start_partition)
    assignments: dict[int, tuple[int, ...]] = {}
    for partition in range(first, first + num_partitions):
        if partition > 0 and partition % len(brokers) == 0:
            shift += 1
        leader = (partition + start) % len(brokers)
        if rack_of:
            assignments[partition] = _rack_aware(brokers, rack_of, leader, shift, replication_factor)
        else:
            followers = (brokers[_replica_index(leader, shift, j, len(brokers))] for j in range(replication_factor - 1))
            assignments[partition] = (brokers[leader], *followers)
    return assignments


def rack_alternated(rack_of: Mapping[int, str]) -> list[int]:
    """The brokers in an order in which racks alternate: one of each rack in turn, racks and brokers sorted."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(rack_of):
        by_rack.setdefault(rack_of[broker], []).append(broker)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    return [column[row] for row in range(max(map(len, columns))) for column in columns if row < len(column)]


def _rack_aware(brokers: Sequence[int], rack_of: Mapping[int, str], leader: int, shift: int, replication_factor: int) -> tuple[int, ...]:
    rack_count = len(set(rack_of.values()))
    chosen = [brokers[leader]]
    racks = {rack_of[brokers[leader]]}
    k = 0
    while len(chosen) < replication_factor:
        broker = brokers[_replica_index(leader, shift * rack_count, k, len(brokers))]
        rack = rack_of[broker]
        if (rack not in racks or len(racks) == rack_count) and broker not in chosen:
            chosen.append(broker)
            racks.add(rack)
        k += 1
    return tuple(chosen)


def _replica_index(first: int, shift: int, index: int, broker_count: int) -> int:
    return (first + 1 + (shift + index) % (broker_count - 1)) % broker_count
