"""An Apache Kafka 3.9.1 broker and Ottla's in one cluster on one ZooKeeper: each leads, follows and controls the other's partitions."""

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import eventually
from tests.support.cluster_clients import a_reader, a_writer, read_all
from tests.support.cluster_stores import needs_zookeeper_store
from tests.support.history import History
from tests.support.mixed_cluster import APACHE, a_mixed_cluster, dumps_of, give_control_to_ottla, wait_until_replicas_are_equal
from tests.support.reassignments import elect_preferred, move_to_the_end

pytestmark = [*needs_apache_kafka, needs_zookeeper_store, pytest.mark.slow, pytest.mark.timeout(600)]  # JVMs, on a busy machine

FEW_PARTITIONS = {"offsets.topic.num.partitions": "4"}
each_protocol = pytest.mark.parametrize("protocol", ["2.6", *(pytest.param(each, marks=pytest.mark.soak) for each in ("3.9", "2.6/3.9"))])
"""inter.broker.protocol.version of all, or Apache's/Ottla's, as in the middle of an upgrade. 2.6: no topic ids, Apache's leaders write ISRs
themselves, logs part by OffsetForLeaderEpoch."""


@each_protocol
def test_each_takes_over_from_the_other_that_is_killed_and_leads_it_byte_for_byte_when_it_is_back(tmp_path: Path, protocol: str) -> None:
    with a_mixed_cluster(tmp_path, protocol, FEW_PARTITIONS) as cluster:
        cluster.create_topic("t", replicas=[[APACHE, 0, 1], [0, APACHE, 1]])
        history = History()
        with a_writer(cluster, "t", history, partitions=2) as writer:
            cluster.broker(APACHE).kill()  # the controller
            cluster.wait_until_led_by_another("t", 0, than=APACHE)
            assert cluster.controller_id() in {0, 1}
            writer.go_on_for(200)
            cluster.broker(APACHE).start()
            for partition in range(2):
                cluster.wait_until_isr_is("t", partition, 0, 1, APACHE)
            cluster.broker(0).kill()
            assert cluster.wait_until_led_by_another("t", 1, than=0) == APACHE
            writer.go_on_for(200)
            for partition in range(2):
                cluster.wait_until_isr_is("t", partition, 1, APACHE)
            cluster.broker(1).kill()
            for partition in range(2):
                cluster.wait_until_isr_is("t", partition, APACHE)
                assert cluster.leader_of("t", partition) == APACHE
            assert cluster.controller_id() == APACHE  # nobody else is left to follow Ottla's
            writer.go_on_for(200)
            for broker_id in (0, 1):
                cluster.broker(broker_id).start()
            for partition in range(2):
                cluster.wait_until_isr_is("t", partition, 0, 1, APACHE)
        read_all(cluster, "t", history, partitions=2)
        assert history.violations() == []
        for partition in range(2):
            wait_until_replicas_are_equal(cluster, "t", partition)
        dumps = dumps_of(cluster, "t", 0)
        assert sorted(dumps) == [0, 1, APACHE]
        (dump,) = set(dumps.values())
        assert dump.count("payload") == sum(place.partition == 0 for place in history.places())


@pytest.mark.soak
@pytest.mark.parametrize("protocol", ["3.9", "2.6"])
def test_either_controller_makes_topics_that_all_serve_and_moves_partitions_and_elects_leaders_of_either_kind(
    tmp_path: Path, protocol: str
) -> None:
    with a_mixed_cluster(tmp_path, protocol) as cluster:
        cluster.create_topic("moved", replicas=[[0, 1], [APACHE, 1]])
        history = History()
        with a_writer(cluster, "moved", history, partitions=2) as writer, a_reader(cluster, "moved", history, partitions=2):
            for controller in ("apache", "ottla"):
                if controller == "ottla":
                    give_control_to_ottla(cluster)
                cluster.create_topic(controller, replicas=[[0, 1, APACHE], [1, APACHE, 0], [APACHE, 0, 1]])
                producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
                for partition in range(3):
                    producer.produce(controller, b"hello", partition=partition)
                assert producer.flush(20) == 0
                move_to_the_end(cluster, "moved", [APACHE, 1], [1, 0])
                writer.go_on_for(50)
                move_to_the_end(cluster, "moved", [1, APACHE, 0], [0, APACHE])
                for partition in range(2):
                    elect_preferred(cluster, "moved", partition)
                    eventually(lambda at=partition: cluster.leader_of("moved", at) == [1, 0][at], what=f"moved-{partition} has its leader")
                move_to_the_end(cluster, "moved", [0, 1], [APACHE, 1])
                writer.go_on_for(50)
        read_all(cluster, "moved", history, partitions=2)
        assert history.violations() == []


@pytest.mark.soak
def test_either_is_shut_down_in_a_controlled_way_while_clients_go_on_and_leads_again_when_it_is_elected(tmp_path: Path) -> None:
    with a_mixed_cluster(tmp_path) as cluster:
        cluster.create_topic("t", replicas=[[0, APACHE, 1], [APACHE, 0, 1]], min_insync_replicas=2)
        history = History()
        with a_writer(cluster, "t", history, partitions=2) as writer, a_reader(cluster, "t", history, partitions=2):
            for broker_id, controllers in ((0, {APACHE}), (APACHE, {APACHE}), (APACHE, {0, 1}), (0, {0, 1})):
                for partition in range(2):
                    cluster.wait_until_isr_is("t", partition, 0, 1, APACHE)
                    elect_preferred(cluster, "t", partition)
                assert cluster.controller_id() in controllers
                assert cluster.broker(broker_id).stop() == 0
                assert broker_id not in {cluster.leader_of("t", partition) for partition in range(2)}
                writer.go_on_for(100)
                cluster.broker(broker_id).start()
            for partition in range(2):
                cluster.wait_until_isr_is("t", partition, 0, 1, APACHE)
        read_all(cluster, "t", history, partitions=2)
        assert history.violations() == []
        for partition in range(2):
            wait_until_replicas_are_equal(cluster, "t", partition)
