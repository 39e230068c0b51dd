"""Apache Kafka's metrics of conversions between message formats, after old clients and clients of today."""

from __future__ import annotations

from pathlib import Path

from tests.integration.old_formats.scenes import Scene
from tests.integration.test_metrics import Samples, scrape
from tests.support.batches import a_batch
from tests.support.in_process_broker import a_broker_in_process
from tests.support.old_messages import Old, messages

TOPIC_METRICS = "kafka_server_brokertopicmetrics_"
REQUEST_METRICS = "kafka_network_requestmetrics_"


def number(samples: Samples, name: str, **labels: str) -> float:
    """0 for what was never counted."""
    return samples.get((name, frozenset(labels.items())), 0.0)


def records_converted(samples: Samples, **labels: str) -> tuple[float, float]:
    """For producers and for consumers."""
    produced, fetched = (number(samples, f"{TOPIC_METRICS}{api}messageconversions_total", **labels) for api in ("produce", "fetch"))
    return produced, fetched


def conversions(samples: Samples, request: str) -> tuple[float, float, float]:
    """How many there were, the bytes that they took, and their time."""
    time, memory = f"{REQUEST_METRICS}messageconversionstimems", f"{REQUEST_METRICS}temporarymemorybytes"
    return (
        number(samples, f"{time}_count", request=request),
        number(samples, f"{memory}_sum", request=request),
        number(samples, f"{time}_sum", request=request),
    )


def test_records_and_time_of_conversions_are_counted_for_old_clients_alone(tmp_path: Path) -> None:
    with a_broker_in_process(tmp_path / "log", ottla_metrics_listener="127.0.0.1:0") as broker:
        scene = Scene(broker.port)
        scene.create({"new": {}, "old": {}})
        assert not scene.produce("new", 9, bytes(a_batch(3)))["error"]
        assert scene.fetch("new", 12, 0)["records"]
        before = scrape(broker)
        assert records_converted(before) == (0, 0)
        assert conversions(before, "Produce") == conversions(before, "Fetch") == (0, 0, 0)

        assert not scene.produce("old", 2, messages(1, [Old(0, 1, b"k", b"v"), Old(1, 2, b"k", None)]))["error"]
        assert scene.fetch("new", 1, 0)["records"]
        after = scrape(broker)
        assert records_converted(after, topic="old") == (2, 0)
        assert records_converted(after, topic="new") == (0, 3)
        assert records_converted(after) == (2, 3)
        for request in ("Produce", "Fetch"):
            count, memory, time_ms = conversions(after, request)
            assert count >= 1
            assert memory > 0
            assert 0 <= time_ms < 10_000
