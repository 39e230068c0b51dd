"""Limits the rate at which throttled replicas catch up, so that moving them leaves bandwidth for clients (KIP-73).

A broker has one quota as leader and one as follower; Kafka's ReplicationQuotaManager. Only replicas that their topic lists in
`leader.replication.throttled.replicas` or `follower.replication.throttled.replicas` are throttled. All of their bytes count, but only those
that are not in sync wait. While no rate is set (`is_limited` is false), nothing else is checked.

A leader's followers take turns: the one that was refused first goes first. Otherwise one follower could take all: with fixed intervals
between fetches the same one always fetches just after the quota allows it again.
"""

from __future__ import annotations

from ottla.config.broker import BrokerConfig
from ottla.config.keys.metrics import REPLICATION_QUOTA_WINDOW_NUM, REPLICATION_QUOTA_WINDOW_SIZE_SECONDS
from ottla.config.keys.quotas import FOLLOWER_REPLICATION_THROTTLED_RATE, LEADER_REPLICATION_THROTTLED_RATE
from ottla.config.schema.key import LONG_MAX, Key
from ottla.config.topic import FOLLOWER_REPLICATION_THROTTLED_REPLICAS, LEADER_REPLICATION_THROTTLED_REPLICAS, TopicConfig
from ottla.replication.ports.windowed_sum import WindowedSum
from ottla.storage.disk.clock import Clock, elapsed_ms
from ottla.storage.log.partition_log import PartitionLog

ALL_REPLICAS = "*"

PATIENCE_SECONDS = 1.0
"""Time for which the turn of a refused follower is kept if it does not fetch again, in seconds."""


class ReplicationQuota:
    """The quota of one direction. `is_limited` is a plain attribute because every fetch of a follower reads it."""

    __slots__ = ("_broker_id", "_clock", "_of_topic", "_rate", "_throttled_replicas", "_waiting", "is_limited", "limit")

    def __init__(self, broker_id: int, throttled_replicas: Key[tuple[str, ...]], clock: Clock, samples: int, window_ms: int) -> None:
        self._broker_id = broker_id
        self._throttled_replicas = throttled_replicas
        self._clock = clock
        self._rate = WindowedRate(samples, window_ms)
        self._of_topic: dict[str, tuple[TopicConfig, frozenset[int] | None]] = {}
        self._waiting: dict[int, float] = {}  # refused followers, the first one first, and the time of the last refusal
        self.limit = LONG_MAX
        """Bytes per second."""
        self.is_limited = False

    def set_limit(self, bytes_per_second: int) -> None:
        """Set the limit from now on."""
        self.limit = bytes_per_second
        self.is_limited = bytes_per_second != LONG_MAX
        self._of_topic.clear()
        self._waiting.clear()

    def is_throttled(self, log: PartitionLog) -> bool:
        """Whether the replica counts towards the limit."""
        if not self.is_limited:
            return False
        topic, index = log.topic_partition
        config = log.config
        known = self._of_topic.get(topic)
        # A log gets another config object when the topic's configuration changes, so no listener is needed.
        if known is None or known[0] is not config:
            known = self._of_topic[topic] = (config, throttled_indexes(config[self._throttled_replicas], self._broker_id))
        return known[1] is None or index in known[1]

    def is_exceeded(self, uncounted: int = 0) -> bool:
        """Whether the counted bytes exceed the limit, or would together with `uncounted` more."""
        return self.is_limited and self._rate.per_second(elapsed_ms(self._clock), uncounted) > self.limit

    def is_open_to(self, follower: int) -> bool:
        """Whether a follower that is behind may fetch now. A refused one is queued for its turn."""
        now = self._clock.monotonic()
        if not self.is_exceeded() and self._is_first(follower, now):
            return True
        self._waiting[follower] = now
        return False

    def _is_first(self, follower: int, now: float) -> bool:
        for waiting, refused_at in list(self._waiting.items()):
            if waiting == follower:
                break
            if now - refused_at <= PATIENCE_SECONDS:
                return False
            del self._waiting[waiting]
        return True

    def end_turn(self, follower: int) -> None:
        """End the turn of a follower that received something, so that others go first the next time."""
        self._waiting.pop(follower, None)

    def count(self, size: int) -> None:
        """Count `size` bytes of a throttled replica that were transferred."""
        self._rate.count(size, elapsed_ms(self._clock))

    def rate(self) -> float:
        """Bytes per second of throttled replicas."""
        return self._rate.per_second(elapsed_ms(self._clock))


class ReplicationQuotas:
    """The quotas of both directions of one broker. Follows its dynamic configuration."""

    __slots__ = ("_config", "follower", "leader")

    def __init__(self, config: BrokerConfig, broker_id: int, clock: Clock) -> None:
        samples = config[REPLICATION_QUOTA_WINDOW_NUM]
        window_ms = config[REPLICATION_QUOTA_WINDOW_SIZE_SECONDS] * 1000
        self._config = config
        self.leader = ReplicationQuota(broker_id, LEADER_REPLICATION_THROTTLED_REPLICAS, clock, samples, window_ms)
        self.follower = ReplicationQuota(broker_id, FOLLOWER_REPLICATION_THROTTLED_REPLICAS, clock, samples, window_ms)
        config.on_change(self._on_change, (LEADER_REPLICATION_THROTTLED_RATE, FOLLOWER_REPLICATION_THROTTLED_RATE))
        self._on_change(frozenset())

    def _on_change(self, _: frozenset[str]) -> None:
        self.leader.set_limit(self._config.quota(LEADER_REPLICATION_THROTTLED_RATE))
        self.follower.set_limit(self._config.quota(FOLLOWER_REPLICATION_THROTTLED_RATE))


def throttled_indexes(replicas: tuple[str, ...], broker_id: int) -> frozenset[int] | None:
    """The partitions whose replicas on `broker_id` a topic's list contains; None stands for all."""
    if "".join(replicas).strip() == ALL_REPLICAS:
        return None
    pairs = (replica.strip().split(":") for replica in replicas if replica.strip())
    return frozenset(int(index) for index, replica in pairs if int(replica) == broker_id)


class WindowedRate:
    """Rate in bytes per second over the last `samples` windows of `window_ms`: Kafka's SimpleRate.

    The first window counts in full, because the rate just after its start would be absurd.
    """

    __slots__ = ("_samples", "_sum", "_window_ms")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._sum: WindowedSum | None = None

    def count(self, size: int, now_ms: int) -> None:
        """Count `size` bytes at `now_ms`."""
        if self._sum is None:
            self._sum = WindowedSum(self._samples, self._window_ms, now_ms)
        self._sum.add(size, now_ms)

    def per_second(self, now_ms: int, uncounted: int = 0) -> float:
        """The rate at `now_ms`, as if `uncounted` bytes more had been counted."""
        counted = self._sum
        if counted is None:
            return uncounted * 1000 / self._window_ms
        counted.pass_time(now_ms)
        return (counted.total + uncounted) * 1000 / max(now_ms - counted.oldest_ms, self._window_ms)
