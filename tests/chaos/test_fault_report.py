"""What the report of a failed cell shows: the state of the reader, and what each broker says of the topic."""

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.cluster import a_cluster
from tests.support.fault_answers import answers_about
from tests.support.fault_judge import FaultHistory
from tests.support.fault_readers import a_reader_along
from tests.support.history import Place, Record


class Unwilling(FaultHistory):
    """Does not take what was read."""

    def polled(self, consumer: str, record: Record, place: Place) -> None:
        raise ValueError("no more room")


@pytest.mark.slow
def test_a_reader_that_died_says_of_what_and_brokers_are_asked(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 2) as cluster:
        cluster.create_topic("t", replicas=[[0, 1]], min_insync_replicas=1)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        producer.produce("t", Record("w", 0).encode(100), partition=0)
        assert producer.flush(60) == 0
        with (
            pytest.raises(AssertionError, match="the reader is dead") as failed,
            a_reader_along(cluster.bootstrap, Unwilling(), "t", 1) as along,
        ):
            along.go_on_for(1)
        (state,) = failed.value.__notes__
        assert "the reader of t: is dead, next offsets {0: 0}, 1 failures" in state
        assert "ValueError: no more room" in state
        assert "METADATA" in state
        told = answers_about(cluster, "t")
        assert "partition 0: NONE, leader 0 in epoch 0" in told
        assert "start 0, high watermark 1, end of epoch 0: 1 of epoch 0" in told
        cluster.broker(1).kill()  # the epoch rises soon, maybe between two questions
        assert "--- broker 1 says of t:\nit does not run" in answers_about(cluster, "t")
