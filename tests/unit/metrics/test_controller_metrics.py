"""The controller's timers: events of the real controller, by the names that it gives them."""

import re
from pathlib import Path

from ottla.broker.metrics.controller_metrics import _TIMER_OF, IDLE, STATES, ControllerMetrics, state_of

CONTROLLER = Path(__file__).parents[3] / "controller"
WITHOUT_TIMER = {"AllocateProducerIds", "Barrier", "RefusedWrites"}
"""Events that Apache Kafka's controller times as something else, not at all, or does not have."""


def test_an_event_is_timed_as_apache_kafka_names_what_it_does() -> None:
    metrics = ControllerMetrics()
    metrics.on_event("BrokerChange", 0.002, 0.5)
    assert metrics.event_queue.total == 2000
    assert metrics.timers["LeaderElection"].total == 500_000
    assert sum(timer.count for timer in metrics.timers.values()) == 1


def test_an_event_without_a_timer_counts_for_the_queue_only() -> None:
    metrics = ControllerMetrics()
    metrics.on_event("AllocateProducerIds", 0.001, 0.001)
    assert metrics.event_queue.count == 1
    assert not any(timer.count for timer in metrics.timers.values())


def test_requests_are_timed_by_broker() -> None:
    metrics = ControllerMetrics()
    metrics.on_sent(1, 0.001)
    metrics.on_sent(2, 0.003)
    metrics.on_sent(2, 0.003)
    assert {broker: queue.total for broker, queue in metrics.request_queues.items()} == {1: 1000, 2: 6000}


def test_the_state_is_that_of_the_event_under_way() -> None:
    assert state_of(None) == IDLE
    assert state_of("TopicDeletion") == STATES["TopicDeletion"].number == 4
    assert state_of("AllocateProducerIds") == IDLE


def test_every_timer_has_events_and_every_event_is_one_of_the_controller() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in CONTROLLER.rglob("*.py"))
    named = set(re.findall(r'"([A-Z]\w+)"', source))
    assert _TIMER_OF.keys() <= named
    assert set(_TIMER_OF.values()) == STATES.keys()
    put = set(re.findall(r'(?:\.put|\.put_alone|\.call|\.watch|_when_active)\(\s*"(\w+)"', source))
    assert put <= _TIMER_OF.keys() | WITHOUT_TIMER
