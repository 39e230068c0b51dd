"""Brokers die one after the other while transactions are open: a commit that follows counts as a whole, and all others not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, a_cluster
from tests.support.transactional.confluent import ConfluentClient
from tests.support.transactional.face import Producer, reads

TOPIC = "t"
PARTITIONS = 3
TIMEOUT_MS = 60_000
SHORT_TIMEOUT_MS = 5_000
QUICK_ABORTS = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 1_000}


def send_everywhere(producer: Producer, value: str) -> None:
    for partition in range(PARTITIONS):
        producer.send(TOPIC, partition, value)
    producer.flush()


def start_all(cluster: Cluster) -> None:
    for broker in cluster.brokers.values():
        broker.launch()
    for broker in cluster.brokers.values():
        assert broker.wait_until_ready()
    for partition in range(PARTITIONS):
        cluster.wait_until_isr_is(TOPIC, partition, *cluster.brokers)


def test_three_brokers_that_are_killed_in_a_row_keep_open_transactions(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 3, **QUICK_ABORTS) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, min_insync_replicas=2)
        client = ConfluentClient(cluster.bootstrap)
        going_on = client.producer("goes on", TIMEOUT_MS)
        leaving = client.producer("leaves", SHORT_TIMEOUT_MS)
        for name, producer in (("going", going_on), ("leaving", leaving)):
            producer.begin()
            send_everywhere(producer, f"{name} 1")
            producer.commit()
            producer.begin()
            send_everywhere(producer, f"{name} 2")
        leaving.close()
        for broker in cluster.brokers.values():
            broker.kill()
        start_all(cluster)
        going_on.commit()
        reads(client, TOPIC, {partition: ["going 1", "going 2", "leaving 1"] for partition in range(PARTITIONS)}, PARTITIONS)
        # The open transaction of the producer that left holds back the records behind it, until the coordinator aborts it.
        going_on.begin()
        send_everywhere(going_on, "going 3")
        going_on.commit()
        reads(client, TOPIC, {partition: ["going 1", "going 2", "leaving 1", "going 3"] for partition in range(PARTITIONS)}, PARTITIONS)


@pytest.mark.soak
def test_transactions_go_on_while_each_broker_is_killed_in_turn(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 3, **QUICK_ABORTS) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, min_insync_replicas=2)
        client = ConfluentClient(cluster.bootstrap)
        producer = client.producer("goes on", TIMEOUT_MS)
        committed: list[str] = []
        for at in range(9):
            producer.begin()
            send_everywhere(producer, f"value {at}")
            victim = cluster.broker(at % 3)
            victim.kill()
            eventually(lambda victim=victim: is_led_by_others(cluster, victim.id), what="other leaders")
            if at % 4 == 3:
                producer.abort()
            else:
                producer.commit()
                committed.append(f"value {at}")
            victim.start()
            for partition in range(PARTITIONS):
                cluster.wait_until_isr_is(TOPIC, partition, *cluster.brokers)
        reads(client, TOPIC, dict.fromkeys(range(PARTITIONS), committed), PARTITIONS)


def is_led_by_others(cluster: Cluster, broker_id: int) -> bool:
    return all(cluster.leader_of(TOPIC, partition) != broker_id for partition in range(PARTITIONS))
