"""A whole turn of Apache Kafka, shortened."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.bench import PARTS
from benchmarks.brokers import kinds as brokers
from benchmarks.parts import single
from benchmarks.turns.sizes import QUICK, Pace
from benchmarks.turns.turn import Cores, Plan, Turn
from tests.support.apache_kafka.marks import needs_apache_kafka

pytestmark = [*needs_apache_kafka, pytest.mark.slow, pytest.mark.soak]

SHORT = Pace(warm_up_limit_s=0, warm_up_s=0, duration_s=0.2, max_bytes=16 << 20, prefill_bytes=16 << 20, warm_up_slice_s=0.1)


def test_a_turn_measures_what_was_asked_for_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers.ApacheKafkaBroker, "librdkafka_warm_up_s", 0.1)
    monkeypatch.setattr(brokers, "START_SCRIPT_OPTIONS", None)  # the options of tests, with which a JVM starts sooner
    monkeypatch.setattr(single, "_READINGS", 1)
    said: list[str] = []
    turn = Turn("Apache")
    size = replace(QUICK, pace=SHORT, settle_s=0)
    plan = Plan(Cores(None, None), said.append, size, frozenset({"produce-1", "fetch-64k", "librdkafka"}))

    PARTS["single"].take_turn("apache", turn, tmp_path / "broker", plan)

    assert turn.failures == {}
    assert set(turn.loads) == {"produce-1", "fetch-64k"}
    assert all(load.responses > 0 for load in turn.loads.values())
    assert turn.remarks == []
    assert turn.numbers.keys() >= {"start_s", "idle_bytes", "loaded_bytes", "librdkafka_produce", "librdkafka_consume"}
    assert any("produce, 1 record" in line for line in said)
    assert not (tmp_path / "broker").exists()
