"""Kafka Streams in exactly_once_v2 counts words and joins streams while it is killed and restarted, and brokers are killed beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.judged_cluster import a_judged_cluster
from tests.support.kafka_streams.application import check_rounds, needs_kafka_streams

pytestmark = [*needs_kafka_streams, pytest.mark.slow, pytest.mark.timeout(900)]  # JVMs, on a busy machine


@pytest.mark.soak
@pytest.mark.parametrize(
    ("stores", "rounds", "lines"),
    [("in_memory", 0, 100), ("in_memory", 1, 100), ("rocksDB", 6, 500)],
    ids=["without faults", "short", "long"],
)
def test_the_output_is_the_input_counted_and_joined_once(stores: str, rounds: int, lines: int, tmp_path: Path) -> None:
    with a_judged_cluster(tmp_path / "cluster") as cluster:
        check_rounds(cluster, tmp_path / "application", stores, rounds, lines)
