"""A whole turn of a real broker, shortened."""

from pathlib import Path

import pytest

from benchmarks.brokers import ApacheKafkaBroker
from benchmarks.turns import Cores, Plan, take_turn
from benchmarks.workloads import Pace
from tests.support.apache_kafka.marks import needs_apache_kafka

pytestmark = [*needs_apache_kafka, pytest.mark.slow]

SHORT = Pace(warm_up_limit_s=0, warm_up_s=0, duration_s=0.2, max_bytes=16 << 20, prefill_bytes=16 << 20)


def test_a_turn_measures_what_was_asked_for_and_leaves_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    plan = Plan(Cores(None, None), SHORT, said.append, frozenset({"produce-1", "fetch-64k", "librdkafka"}))

    turn = take_turn(ApacheKafkaBroker, "Apache", tmp_path / "broker", plan)

    assert turn.failures == {}
    assert set(turn.loads) == {"produce-1", "fetch-64k"}
    assert all(load.responses > 0 for load in turn.loads.values())
    assert turn.consumed_by == "group"
    assert turn.numbers.keys() >= {"start_s", "idle_bytes", "loaded_bytes", "librdkafka_produce", "librdkafka_consume"}
    assert any("produce, 1 record" in line for line in said)
    assert not (tmp_path / "broker").exists()
