"""Chooses the partition of `__remote_log_metadata` that has the entries of a user partition, as Apache Kafka's brokers do."""

from functools import lru_cache
from typing import Final

from ottla.protocol.murmur2 import partition_of_key
from ottla.storage.remote.entries import TopicIdPartition

KNOWN: Final = 4096
"""Results that are kept: every fetch of remote records looks for its partition three times, and a result takes 10 µs."""
_MASK = 0xFFFFFFFF


@lru_cache(KNOWN)
def metadata_partition(partition: TopicIdPartition, count: int) -> int:
    """Returns one of `count` partitions. All brokers of a cluster have to use the same count."""
    number = int.from_bytes(partition.topic_id, "big")
    # Java's hash of the id's halves, the lower one first, and then of the index.
    code = 31 + _folded(number & 0xFFFFFFFFFFFFFFFF)
    code = 31 * code + _folded(number >> 64)
    code = 31 * code + partition.partition
    return partition_of_key((code & _MASK).to_bytes(4, "big"), count)


def _folded(half: int) -> int:
    return (half ^ half >> 32) & _MASK
