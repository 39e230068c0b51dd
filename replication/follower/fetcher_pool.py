"""Holds all fetchers of a broker: `num.replica.fetchers` per leader, made for the first partition, ended with the last.

Kafka's ReplicaFetcherManager; implements `Followers` for the replica manager. One event loop owns it.

Wiring (`broker/cluster/cluster_wiring.py`):

    quotas = ReplicationQuotas(config, broker_id, clock)
    pool = FetcherPool(config, broker_id, broker_epoch, connect, resolve, logs.report_failure, quotas.follower, aux_states)
    replicas = ReplicaManager(..., pool, isr_proposals, quotas.leader)
    ...
    await pool.close()                      # at shutdown: before the logs are closed, while the loop still runs

`connect` is the `Connect` of the inter-broker listener. `resolve(broker_id)` gives the address there, according to UpdateMetadata. The
replica manager calls `follow` after `Partition.become_follower` for every partition whose leader is alive. It calls `unfollow` before
`become_leader`, before a log is deleted or replaced, and for the partitions of a failed directory. A late `unfollow` does no harm: nothing
is appended to the log of a leader, or in another epoch than the one that was followed.

For the metrics: `max_lag`, `failed`, `dead_fetchers`, `fetchers` (each with `requests`, `bytes_in`, `client_id`), and per topic
`TopicStats.replication_bytes_in`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from ottla.config.broker import BrokerConfig
from ottla.config.keys.replication import NUM_REPLICA_FETCHERS
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.follower.fetch_session import FollowedPartition
from ottla.replication.follower.fetcher import Fetcher
from ottla.replication.follower.fetcher_settings import FetcherSettings
from ottla.replication.leader.partition import Partition
from ottla.replication.ports.peer import Connect, PeerAddress
from ottla.replication.ports.throttle import ReplicationQuota
from ottla.replication.remote.aux_state import AuxStates
from ottla.storage.errors import LogDirFailure

logger = logging.getLogger(__name__)


class FetcherPool:
    """The fetchers of this broker."""

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        broker_epoch: Callable[[], int],
        connect: Connect,
        resolve: Callable[[int], PeerAddress | None],
        report_failure: Callable[[LogDirFailure], None],
        quota: ReplicationQuota,
        aux_states: AuxStates | None = None,
    ) -> None:
        """`report_failure` is called after disk errors. `quota` limits a follower's data. `aux_states` begins logs behind the records that
        leaders have in the remote store only; None without tiered storage."""
        self._config = config
        self._settings = FetcherSettings(config, broker_id, quota, aux_states)
        self._broker_epoch = broker_epoch
        self._connect = connect
        self._resolve = resolve
        self._report_failure = report_failure
        self._size = config[NUM_REPLICA_FETCHERS]
        self._by_partition: dict[TopicPartition, Fetcher] = {}
        self._tasks: dict[Fetcher, asyncio.Task[None]] = {}
        self._is_closed = False
        self.fetchers: dict[tuple[int, int], Fetcher] = {}
        """Fetchers by leader id and fetcher id."""
        self.failed: set[TopicPartition] = set()
        """Partitions that should be fetched but are not: their epoch is fenced, or their log cannot be written."""
        self.dead_fetchers = 0
        """Number of fetchers that ended unexpectedly."""
        config.on_change(self._on_change, (NUM_REPLICA_FETCHERS,))

    # -- Followers

    def follow(self, partitions: Iterable[Partition], *, more_to_come: bool = False) -> None:
        """See Followers."""
        if self._is_closed:
            return
        if self._settings.is_held and not more_to_come:
            for fetcher in self.fetchers.values():
                fetcher.wake()
        self._settings.is_held = more_to_come
        added: dict[Fetcher, int] = {}
        for partition in partitions:
            topic_partition = partition.topic_partition
            self.failed.discard(topic_partition)
            fetcher = self._fetcher_for(partition.leader_id, fetcher_id(topic_partition, self._size))
            before = self._by_partition.get(topic_partition)
            if before is not None and before is not fetcher:
                before.unfollow(topic_partition)
            self._by_partition[topic_partition] = fetcher
            fetcher.follow(partition)
            added[fetcher] = added.get(fetcher, 0) + 1
        for fetcher, count in added.items():
            logger.info("%s fetches %d more partitions from ottla.broker %d", fetcher.client_id, count, fetcher.leader_id)

    def unfollow(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """See Followers."""
        for topic_partition in topic_partitions:
            self.failed.discard(topic_partition)
            fetcher = self._by_partition.pop(topic_partition, None)
            if fetcher is not None:
                fetcher.unfollow(topic_partition)

    # -- queries

    @property
    def max_lag(self) -> int:
        """The largest number of records below the leader's high watermark that a partition here lacks."""
        return max((each.lag for fetcher in self.fetchers.values() for each in fetcher.followed.values()), default=0)

    def followed(self, topic_partition: TopicPartition) -> FollowedPartition | None:
        """The fetch state of a partition; None when it is not fetched."""
        fetcher = self._by_partition.get(topic_partition)
        return fetcher.followed.get(topic_partition) if fetcher is not None else None

    # -- starting and ending

    async def close(self) -> None:
        """Stop fetching and close the connections. A repeated call does nothing."""
        self._is_closed = True
        tasks = [*self._tasks.values(), *(task for each in self.fetchers.values() for task in each.beginning_remotely.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for fetcher in list(self.fetchers.values()):
            await fetcher.peer.close()
        self.fetchers.clear()
        self._by_partition.clear()

    def _fetcher_for(self, leader_id: int, number: int) -> Fetcher:
        fetcher = self.fetchers.get((leader_id, number))
        if fetcher is None:
            client_id = f"broker-{self._settings.broker_id}-fetcher-{number}"
            fetcher = self.fetchers[leader_id, number] = Fetcher(
                self._settings,
                leader_id,
                client_id,
                self._connect(lambda: self._resolve(leader_id), client_id),
                self._broker_epoch,
                on_failed=self._on_failed,
                report_failure=self._report_failure,
                on_idle=self._on_idle,
            )
            task = asyncio.get_running_loop().create_task(fetcher.run(), name=f"{client_id}-from-{leader_id}")
            self._tasks[fetcher] = task
            task.add_done_callback(lambda done: self._on_end(fetcher, done))
        return fetcher

    def _on_failed(self, topic_partition: TopicPartition) -> None:
        self._by_partition.pop(topic_partition, None)
        self.failed.add(topic_partition)

    def _on_idle(self, fetcher: Fetcher) -> None:
        self._forget(fetcher)

    def _forget(self, fetcher: Fetcher) -> None:
        for key in [key for key, each in self.fetchers.items() if each is fetcher]:
            del self.fetchers[key]

    def _on_end(self, fetcher: Fetcher, task: asyncio.Task[None]) -> None:
        self._tasks.pop(fetcher, None)
        if not task.cancelled() and task.exception() is not None:
            self.dead_fetchers += 1
            logger.error("%s from ottla.broker %d ended", fetcher.client_id, fetcher.leader_id, exc_info=task.exception())

    def _on_change(self, _: frozenset[str]) -> None:
        size = self._config[NUM_REPLICA_FETCHERS]
        if size == self._size:
            return
        logger.info("num.replica.fetchers is now %d, was %d", size, self._size)
        self._size = size
        everything = [each.partition for fetcher in self.fetchers.values() for each in fetcher.followed.values()]
        self.unfollow([partition.topic_partition for partition in everything])
        self.follow(everything)


def fetcher_id(topic_partition: TopicPartition, fetchers: int) -> int:
    """The number of the fetcher for a partition: by Java's hash of the topic's name, as in Apache Kafka."""
    hashed = 0
    for unit in topic_partition.topic.encode("utf-16-be")[1::2]:  # topic names are ASCII
        hashed = hashed * 31 + unit
    hashed = (31 * hashed + topic_partition.partition) & 0xFFFFFFFF
    if hashed >= 0x80000000:
        hashed = 0 if hashed == 0x80000000 else 0x100000000 - hashed
    return hashed % fetchers
