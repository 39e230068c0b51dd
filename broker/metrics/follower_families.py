"""Declares the families of kafka.server for followers: fetchers, and the lag of replicas behind their leaders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from ottla.broker.metrics.families import Family, Kind, Reading, labelled, labels_text

if TYPE_CHECKING:
    from ottla.broker.metrics.view import View
    from ottla.replication.follower.fetcher import Fetcher
    from ottla.replication.follower.fetcher_pool import FetcherPool

_LAG: Final = ("clientId", "partition", "topic")
_FETCHER: Final = ("brokerHost", "brokerPort", "clientId")


def _fetchers(view: View) -> Iterator[tuple[str, Fetcher]]:
    """The fetchers under Kafka's names of their threads."""
    pool = view.services.cluster.fetcher_pool
    if pool is not None:
        for (leader_id, number), fetcher in list(pool.fetchers.items()):
            yield f"ReplicaFetcherThread-{number}-{leader_id}", fetcher


def _lags(view: View) -> Reading:
    for client_id, fetcher in _fetchers(view):
        for topic_partition, followed in list(fetcher.followed.items()):
            yield labels_text(_LAG, (client_id, topic_partition.partition, topic_partition.topic)), followed.lag


def _of_fetchers(mbean: str, doc: str, value: Callable[[Fetcher], int]) -> Family:
    def read(view: View) -> Reading:
        listener = view.services.config.listeners.inter_broker_listener_name
        for client_id, fetcher in _fetchers(view):
            endpoint = view.services.metadata.endpoint(fetcher.leader_id, listener)
            if endpoint is not None:
                yield labels_text(_FETCHER, (endpoint.host, endpoint.port, client_id)), value(fetcher)

    pattern = f"kafka.server:brokerHost=*,brokerPort=*,clientId=*,name={mbean},type=FetcherStats"
    name = f"kafka_server_fetcherstats_{mbean.removesuffix('PerSec').lower()}_total"
    return Family(name, Kind.COUNTER, _FETCHER, pattern, doc, read)


def _pool(mbean: str, doc: str, value: Callable[[FetcherPool], float]) -> Family:
    return _of_pool(mbean, doc, lambda view: 0 if (pool := view.services.cluster.fetcher_pool) is None else value(pool))


def _of_pool(mbean: str, doc: str, value: Callable[[View], float]) -> Family:
    pattern = f"kafka.server:clientId=*,name={mbean},type=ReplicaFetcherManager"
    name = f"kafka_server_replicafetchermanager_{mbean.lower()}"
    return labelled(name, Kind.GAUGE, ("clientId",), pattern, doc, lambda view: [(("Replica",), value(view))])


FOLLOWER_FAMILIES: tuple[Family, ...] = (
    _pool("MaxLag", "Largest lag of a replica here behind its leader's high watermark, in records.", lambda pool: pool.max_lag),
    _of_pool("MinFetchRate", "Requests per second of the slowest fetcher, over about a minute.", lambda view: view.fetch_rates.slowest),
    _pool(
        "FailedPartitionsCount", "Partitions that are not fetched although they should be; the log says why.", lambda pool: len(pool.failed)
    ),
    _pool("DeadThreadCount", "Fetchers that ended though they should not have.", lambda pool: pool.dead_fetchers),
    Family(
        "kafka_server_fetcherlagmetrics_consumerlag",
        Kind.GAUGE,
        _LAG,
        "kafka.server:clientId=*,name=ConsumerLag,partition=*,topic=*,type=FetcherLagMetrics",
        "Lag of a replica here behind its leader's high watermark, in records.",
        _lags,
    ),
    _of_fetchers("RequestsPerSec", "Fetch requests to leaders.", lambda fetcher: fetcher.requests),
    _of_fetchers("BytesPerSec", "Bytes of record batches that were fetched from leaders.", lambda fetcher: fetcher.bytes_in),
)
