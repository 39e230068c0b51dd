"""All brokers stand still for longer than every timeout, as virtual machines that are moved do: nothing acknowledged is lost."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.broker_process import eventually
from tests.support.cluster import SESSION_TIMEOUT_MS, a_cluster
from tests.support.cluster_clients import a_reader, a_writer, read_all
from tests.support.history import History
from tests.support.transactional.confluent import ConfluentClient
from tests.support.transactional.face import values_of

STILL_SECONDS = 4 * SESSION_TIMEOUT_MS / 1000
TRANSACTION_TIMEOUT_MS = 2_000


def test_brokers_that_stand_still_beyond_every_timeout_come_back_without_a_loss(tmp_path: Path) -> None:
    config = {
        "transaction_abort_timed_out_transaction_cleanup_interval_ms": 500,
        "group_min_session_timeout_ms": 1_000,
        "connections_max_idle_ms": 3_000,
    }
    with a_cluster(tmp_path, 3, **config) as cluster:
        cluster.create_topic("t", replicas=[[0, 1, 2]], min_insync_replicas=2)
        cluster.create_topic("u")
        client = ConfluentClient(cluster.bootstrap)
        producer = client.producer("stands still", TRANSACTION_TIMEOUT_MS)
        history = History()
        with a_writer(cluster, "t", history) as writer, a_reader(cluster, "t", history):
            producer.begin()
            producer.send("u", 0, "not committed")
            producer.flush()
            writer.go_on_for(50)
            for broker in cluster.brokers.values():
                broker.pause()
            time.sleep(STILL_SECONDS)  # the time is the fault
            for broker in cluster.brokers.values():
                broker.resume()
            writer.go_on_for(200)
            cluster.wait_until_isr_is("t", 0, 0, 1, 2)
        read_all(cluster, "t", history)
        assert history.violations() == []
        producer.close()
        next_producer = client.producer("stands still", 60_000)
        next_producer.begin()
        next_producer.send("u", 0, "committed")
        next_producer.commit()
        eventually(lambda: values_of(client.read("u")) == {0: ["committed"]}, what="the transaction after the abort")
