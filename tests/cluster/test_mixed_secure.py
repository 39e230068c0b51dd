"""Brokers of both kinds move from PLAINTEXT to SASL_SSL between each other, over SSL, without a lost record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation

from tests.support.apache_kafka import run_tool
from tests.support.apache_kafka.brokers import ApacheKafka
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.certificates import Identity
from tests.support.cluster import Cluster, a_cluster
from tests.support.cluster_clients import a_writer, read_all
from tests.support.cluster_stores import needs_zookeeper_store
from tests.support.history import History
from tests.support.mixed_cluster import ApacheBroker, wait_until_replicas_are_equal
from tests.support.secure_cluster import AUTHORIZER, allow_on_cluster, roll, secure_listeners, wait_until_in_sync

pytestmark = [*needs_apache_kafka, needs_zookeeper_store, pytest.mark.slow, pytest.mark.timeout(600)]  # JVMs, on a busy machine

APACHE = 9
SECONDS = 90.0


@contextmanager
def a_mixed_cluster_to_change(directory: Path, ours: int, theirs: int) -> Iterator[Cluster]:
    """Ottla's brokers have the ids from 0 on, Apache's the last ones up to 9. The `properties` of each count at its next start."""
    ids = range(APACHE - theirs + 1, APACHE + 1)
    more: dict[int, dict[str, str]] = {each: {} for each in ids}
    settings = {"replica.lag.time.max.ms": "2000"}
    with (
        ApacheKafka(directory / "apache", theirs, settings, first_id=ids[0], config_of=lambda each, _port: more[each]) as apache,
        a_cluster(directory / "ottla", ours, zookeeper=apache.zookeeper) as cluster,
    ):
        for each in ids:
            broker = cluster.brokers[each] = ApacheBroker(apache, each)
            broker.properties = more[each]
            more[each]["listeners"] = f"PLAINTEXT://{broker.bootstrap}"
        cluster.wait_until_registered()
        run = run_tool(
            "kafka.admin.ConfigCommand", "--zookeeper", apache.zookeeper.connect, "--alter", "--entity-type", "users",
            "--entity-name", "broker", "--add-config", "SCRAM-SHA-512=[password=broker-secret]",
        )  # fmt: skip
        assert run.returncode == 0, run
        yield cluster


@pytest.mark.soak
@pytest.mark.parametrize(("ours", "theirs"), [(2, 1), (1, 2)])
def test_brokers_of_both_kinds_move_to_sasl_ssl_without_a_lost_record(tmp_path: Path, ours: int, theirs: int) -> None:
    authority = Identity("CN=authority")
    with a_mixed_cluster_to_change(tmp_path, ours, theirs) as cluster:
        first, second, third = sorted(cluster.brokers)
        cluster.create_topic("t", replicas=[[first, second, third], [second, third, first], [third, first, second]])
        history = History()
        with a_writer(cluster, "t", history, partitions=3) as writer:
            for broker in cluster.brokers.values():
                broker.properties["listeners"] += ",TLS://127.0.0.1:0,SECURE://127.0.0.1:0"
                broker.properties |= secure_listeners(tmp_path, authority, f"broker-{broker.id}")
            roll(cluster, {}, SECONDS)
            writer.go_on_for(100)
            roll(cluster, {"inter.broker.listener.name": "TLS"}, SECONDS)
            writer.go_on_for(100)
            roll(cluster, {"inter.broker.listener.name": "SECURE", **AUTHORIZER}, SECONDS)
            writer.go_on_for(100)
            allow_on_cluster(cluster, "User:other", AclOperation.CLUSTER_ACTION)
            writer.go_on_for(1000)  # longer than a session between brokers
            for _ in range(2):  # another controller each time
                cluster.broker(cluster.controller_id()).restart()
                cluster.wait_until_registered()
                wait_until_in_sync(cluster, SECONDS)
                writer.go_on_for(100)
        read_all(cluster, "t", history, partitions=3)
        assert history.violations() == []
        for partition in range(3):
            wait_until_replicas_are_equal(cluster, "t", partition)
        assert "secret" not in "".join(cluster.broker(each).log() for each in range(ours))
