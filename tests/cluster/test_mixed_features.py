"""A cluster on ZooKeeper with a broker of Apache Kafka 3.9: no feature can be finalized; once one is, that broker cannot join.

The feature is made up, so Ottla's broker runs in the process of the test.
"""

from pathlib import Path

import pytest

from ottla.protocol import features
from tests.support.apache_kafka import ApacheKafka, DidNotStartError
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import eventually
from tests.support.cluster_stores import needs_zookeeper_store
from tests.support.command_line import CommandLine
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.mixed_cluster import APACHE

pytestmark = [*needs_apache_kafka, needs_zookeeper_store, pytest.mark.slow, pytest.mark.timeout(300)]

FEATURE = "made.up"


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
