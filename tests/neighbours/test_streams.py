"""Kafka Streams 4 in exactly_once_v2 on Ottla; tests/cluster/transactions has the same with Kafka Streams 3.9.1."""

from __future__ import annotations

from pathlib import Path

from tests.support.cluster import a_cluster
from tests.support.kafka_streams.application import check_rounds
from tests.support.neighbours.artifacts import STREAMS, whole

pytestmark = STREAMS.marks

QUICK = {"group_min_session_timeout_ms": 500, "transaction_abort_timed_out_transaction_cleanup_interval_ms": 500}


def test_the_output_is_the_input_counted_and_joined_once(tmp_path: Path) -> None:
    libs = STREAMS.jars()
    with a_cluster(tmp_path / "cluster", 1, **QUICK) as cluster:
        check_rounds(cluster, tmp_path / "application", "in_memory", 0, 100, libs)


@whole
def test_the_output_is_right_while_the_application_and_brokers_are_killed(tmp_path: Path) -> None:
    libs = STREAMS.jars()
    with a_cluster(tmp_path / "cluster", 3, **QUICK) as cluster:
        check_rounds(cluster, tmp_path / "application", "rocksDB", 2, 300, libs)
