"""A cluster on ZooKeeper with a broker of Apache Kafka 3.9: no feature can be finalized; once one is, that broker cannot join.

Of the first test the feature is made up, so Ottla's broker runs in the process of the test.
"""

from pathlib import Path

import confluent_kafka
import pytest

from ottla.protocol import features
from tests.support.apache_kafka import ApacheKafka, DidNotStartError
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import eventually
from tests.support.cluster_stores import needs_zookeeper_store
from tests.support.command_line import CommandLine
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.mixed_cluster import APACHE, a_cluster_of_apache_kafka, exchange

pytestmark = [*needs_apache_kafka, needs_zookeeper_store, pytest.mark.slow, pytest.mark.timeout(300)]

FEATURE = "made.up"
SECONDS = 60.0
ONE_OF_EACH = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def registered(broker: InProcessBroker) -> set[str]:
    return set(broker.run(broker.services.administration.store.children, "/brokers/ids"))


def test_apache_kafka_and_a_finalized_feature_exclude_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "IMPLEMENTED", {FEATURE: 1})
    with (
        ApacheKafka(tmp_path / "apache", 1, {"offsets.topic.num.partitions": "1"}, first_id=APACHE, chroot="/clusters/features") as apache,
        a_broker_in_process(tmp_path / "ottla", zookeeper_connect=apache.zookeeper.connect, broker_id=0) as broker,
    ):
        line = CommandLine(broker.bootstrap)
        theirs = line("features", "upgrade", f"{FEATURE}=1", status=1).err
        assert "the provided feature is not supported" in theirs  # Apache's broker is the controller
        apache.stop_broker(APACHE)
        eventually(lambda: broker.broker.controller.is_active)
        apache.start_broker(APACHE)
        eventually(lambda: registered(broker) == {"0", str(APACHE)})
        ours = line("features", "upgrade", status=1).err
        assert "brokers were found to have incompatible versions for the feature" in ours
        apache.stop_broker(APACHE)
        eventually(lambda: registered(broker) == {"0"})
        assert line("features", "upgrade").out == f"{FEATURE}: raised to 1\n"
        with pytest.raises(DidNotStartError):
            apache.start_broker(APACHE)
        assert "FeatureCache" in apache.log_text(APACHE)
        assert registered(broker) == {"0"}

        assert line("features", "downgrade").out == f"{FEATURE}: removed\n"
        apache.start_broker(APACHE)
        eventually(lambda: registered(broker) == {"0", str(APACHE)})


def write(bootstrap: str, *values: str) -> None:
    """Write values in a transaction of one id."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    for value in values:
        producer.produce("t", value)
    producer.commit_transaction(SECONDS)


def a_reader(bootstrap: str, protocol: str) -> confluent_kafka.Consumer:
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    reader.subscribe(["t"])
    return reader


def read(reader: confluent_kafka.Consumer, count: int) -> list[str]:
    """The next values."""
    found: list[str] = []

    def is_read() -> bool:
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            found.append((message.value() or b"").decode())
        return len(found) == count

    eventually(is_read, SECONDS, f"{count} values are read")
    return found


def test_apache_kafka_takes_over_the_groups_and_transactions_of_a_cluster_that_had_features(tmp_path: Path) -> None:
    with a_cluster_of_apache_kafka(tmp_path, 1, ONE_OF_EACH) as (cluster, apache):
        cluster.create_topic("t")
        assert cluster.broker(0).stop() == 0
        exchange(cluster, apache, 0)
        line = CommandLine(cluster.bootstrap)
        assert "group.version: raised to 1" in line("features", "upgrade").out
        write(cluster.bootstrap, "a", "b", "c")
        member = a_reader(cluster.bootstrap, "consumer")
        assert read(member, 2) == ["a", "b"]
        member.commit(asynchronous=False)
        assert "g" in line("features", "downgrade", status=1).err, "the group has a member"
        member.close()
        line("features", "downgrade")

        assert cluster.broker(0).stop() == 0
        exchange(cluster, apache, 0)
        write(cluster.bootstrap, "d")
        member = a_reader(cluster.bootstrap, "classic")
        assert read(member, 2) == ["c", "d"]
        member.close()
