"""Starts the cluster of a test that must hold for Apache Kafka as well: three brokers of Ottla, or of Apache Kafka 3.9.1 as their judge.

OTTLA_JUDGE chooses, as in `judged_broker`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.cluster import Cluster, a_cluster
from tests.support.judged_broker import JUDGED_BY_APACHE
from tests.support.mixed_cluster import a_cluster_of_apache_kafka

_QUICK = {
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.min.session.timeout.ms": "500",
}
BROKERS = 3


@contextmanager
def a_judged_cluster(directory: Path, config: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Running brokers 0, 1 and 2, whose internal topics have few partitions and three replicas."""
    settings = {**_QUICK, **(config or {})}
    if JUDGED_BY_APACHE:
        with a_cluster_of_apache_kafka(directory, BROKERS, settings) as (cluster, _):
            yield cluster
    else:
        with a_cluster(directory, BROKERS, **{name.replace(".", "_"): value for name, value in settings.items()}) as cluster:
            yield cluster
