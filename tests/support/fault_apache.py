"""Runs three brokers of Apache Kafka with the settings of a test's cluster of Ottla, and the same proxies, also before ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.apache_kafka.brokers import START_SCRIPT_OPTIONS, ApacheKafka
from tests.support.apache_kafka.ports import free_ports
from tests.support.apache_kafka.zookeeper import ZooKeeper
from tests.support.cluster import QUICK, Cluster
from tests.support.cluster_links import Links
from tests.support.mixed_cluster import ApacheBroker

CONTROLLED_SHUTDOWN = {"controlled.shutdown.retry.backoff.ms": "100"}
"""As the layout of Ottla's clusters has it; the default of 5 s would be added to every clean stop that has to be tried twice."""


@contextmanager
def apache_brokers(directory: Path, count: int, zookeeper: ZooKeeper, links: Links, config: dict[str, str]) -> Iterator[Cluster]:
    """Brokers 0 to `count` - 1 behind `links`; with the face of a Cluster, but for what only Ottla logs and checks at its end."""
    proxied: dict[tuple[int, int], dict[str, str]] = {}

    def behind_links(broker_id: int, port: int) -> dict[str, str]:
        if (broker_id, port) not in proxied:  # made once: a broker keeps its address over restarts
            (internal,) = free_ports(1)
            proxied[broker_id, port] = links.settings(broker_id, port, internal, zookeeper.connect)
        return proxied[broker_id, port]

    settings = {**QUICK, **CONTROLLED_SHUTDOWN, **config}
    with ApacheKafka(directory, count, settings, zookeeper=zookeeper, config_of=behind_links, options=START_SCRIPT_OPTIONS) as apache:
        cluster = Cluster(directory, 0, zookeeper, links, {})
        for broker_id in apache.broker_ids:
            cluster.brokers[broker_id] = ApacheBroker(apache, broker_id)
        cluster.wait_until_registered()
        try:
            yield cluster
        finally:
            for broker in cluster.brokers.values():
                if broker.is_paused:
                    broker.resume()
