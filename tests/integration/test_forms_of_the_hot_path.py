"""A client notices no difference between a broker with compiled modules and one without."""

from pathlib import Path

import confluent_kafka as confluent
import pytest

from ottla.protocol.compiled import describe
from tests.support.broker_process import a_broker, eventually

RECORDS = 30_000
TOPIC = "forms"


def values(number: int) -> bytes:
    return b"%d:" % number * (number % 40)


@pytest.mark.parametrize("form", ["pure Python", describe()])
def test_what_was_written_is_read_with_and_without_compiled_modules(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_PURE_PYTHON", "1" if form == "pure Python" else "")
    with a_broker(tmp_path, num_partitions=1) as broker:
        assert f"hot path {form}" in broker.log_file.read_text(encoding="utf-8")
        failed: list[object] = []
        producer = confluent.Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 2, "batch.num.messages": 200})
        for number in range(RECORDS):
            producer.produce(TOPIC, values(number), on_delivery=lambda error, _: failed.append(error) if error else None)
            producer.poll(0)
        assert producer.flush(60) == 0
        assert not failed
        consumer = confluent.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "fetch.message.max.bytes": 64 * 1024,
            }
        )
        consumer.assign([confluent.TopicPartition(TOPIC, 0, 0)])
        read: list[bytes] = []

        def is_all_read() -> bool:
            for message in consumer.consume(5000, 0.5):
                assert message.error() is None
                read.append(message.value() or b"")
            return len(read) >= RECORDS

        eventually(is_all_read, 60)
        consumer.close()
        assert read == [values(number) for number in range(RECORDS)]
