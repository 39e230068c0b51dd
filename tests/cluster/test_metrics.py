"""What brokers tell of following, being followed, moving replicas and controlling others."""

import re
import urllib.request
from pathlib import Path

from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.metrics.endpoint import FAMILIES
from ottla.broker.metrics.families import Kind
from tests.cluster.test_reassignment import move
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, ClusterBroker, a_cluster

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
BYTES = 40_000
FETCHER = {"clientId": "Replica"}
NOT_HERE = (
    *("_requestmetrics_", "_brokertopicmetrics_", "_sessionexpirelistener_", "_zookeeperclientmetrics_"),
    *("_server_quota_", "_cipher", "ottla_group_", "_sharepartitionmetrics_", "remote", "_rlm"),
)
"""Families that are empty without requests of their kind, ZooKeeper, quotas, TLS, share groups, tiered storage, or
`ottla.group.lag.max.series`."""


def metrics_of(broker: ClusterBroker) -> str:
    (url,) = re.findall(r"metrics are at (http://\S+)", broker.log_of_this_run())
    with urllib.request.urlopen(url, timeout=90) as response:
        text: str = response.read().decode()
        return text


def scrape(broker: ClusterBroker) -> Samples:
    families = text_string_to_metric_families(metrics_of(broker))
    return {(each.name, frozenset(each.labels.items())): each.value for family in families for each in family.samples}


def value(broker: ClusterBroker, name: str, **labels: str) -> float:
    return scrape(broker)[name, frozenset(labels.items())]


def produce(cluster: Cluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    producer.produce("t", bytes(BYTES), partition=0)
    assert producer.flush(90) == 0


def test_a_cluster_tells_of_its_fetchers_and_its_controller(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 2, ottla_metrics_listener="127.0.0.1:0") as cluster:
        cluster.create_topic("t", replicas=[[0, 1]])
        cluster.wait_until_isr_is("t", 0, 0, 1)
        produce(cluster)
        leader, follower = cluster.broker(0), cluster.broker(1)
        fetcher = {"clientId": "ReplicaFetcherThread-0-0"}
        at = {"brokerHost": "127.0.0.1", "brokerPort": str(leader.port)}
        assert value(follower, "kafka_server_fetcherstats_bytes_total", **fetcher, **at) > BYTES
        assert value(follower, "kafka_server_fetcherstats_requests_total", **fetcher, **at) > 0
        assert value(follower, "kafka_server_fetcherlagmetrics_consumerlag", **fetcher, topic="t", partition="0") >= 0
        assert value(follower, "kafka_server_replicafetchermanager_failedpartitionscount", **FETCHER) == 0
        assert value(follower, "kafka_server_replicafetchermanager_deadthreadcount", **FETCHER) == 0
        eventually(lambda: value(follower, "kafka_server_replicafetchermanager_maxlag", **FETCHER) == 0, what="nothing is missing")
        eventually(lambda: value(follower, "kafka_server_replicafetchermanager_minfetchrate", **FETCHER) > 0, what="a rate of fetches")
        assert value(follower, "kafka_server_brokertopicmetrics_replicationbytesin_total") > BYTES
        assert value(follower, "kafka_server_brokertopicmetrics_reassignmentbytesin_total") == 0
        assert value(leader, "kafka_server_brokertopicmetrics_replicationbytesout_total") > BYTES

        controller = cluster.broker(cluster.controller_id())
        assert sum(value(each, "kafka_controller_kafkacontroller_activecontrollercount") for each in cluster.brokers.values()) == 1
        assert value(controller, "kafka_controller_kafkacontroller_globaltopiccount") == 1
        assert value(controller, "kafka_controller_controllerstats_topicchangerateandtimems_count") >= 1
        elections = "kafka_controller_controllerstats_leaderelectionrateandtimems_count"
        before = value(controller, elections)
        (other,) = cluster.others(cluster.controller_id())
        other.restart()
        eventually(lambda: value(controller, elections) > before, what="the broker's change was an event of the controller")
        assert value(controller, "kafka_controller_controllereventmanager_eventqueuetimems_count") >= 2
        for broker_id in "01":
            name = "kafka_controller_controllerchannelmanager"
            has_sent = f"{name}_requestrateandqueuetimems_count", frozenset({("broker_id", broker_id)})
            eventually(lambda key=has_sent: scrape(controller).get(key, 0) >= 1, what="it has asked each broker, the restarted one again")
            waiting = f"{name}_queuesize", frozenset({("broker_id", broker_id)})
            eventually(lambda key=waiting: scrape(controller).get(key) == 0, what="all of it was sent")
        eventually(lambda: value(controller, "kafka_controller_controllerchannelmanager_totalqueuesize") == 0, what="nothing waits")

        text = "\n".join(metrics_of(broker) for broker in cluster.brokers.values())
        for family in FAMILIES:
            suffix = "_count" if family.kind is Kind.SUMMARY else ""
            if not any(kind in family.name for kind in NOT_HERE):
                assert re.search(rf"^{family.name}{suffix}[ {{]", text, re.MULTILINE), family.name


def test_bytes_of_a_move_are_counted_where_they_come_and_go(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 2, ottla_metrics_listener="127.0.0.1:0") as cluster:
        cluster.create_topic("t", replicas=[[0]])
        produce(cluster)
        move(cluster, "t", {0: [0, 1]})
        cluster.wait_until_isr_is("t", 0, 0, 1)
        assert value(cluster.broker(0), "kafka_server_brokertopicmetrics_reassignmentbytesout_total") > BYTES
        assert value(cluster.broker(1), "kafka_server_brokertopicmetrics_reassignmentbytesin_total") > BYTES
