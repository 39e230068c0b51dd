"""Writes values with foreign clients and reads them back, through listeners that need settings of their own, such as TLS and SASL.

Each function takes the settings of its client and an existing or new topic, and returns the values that it has read. `when_written` is
called while the producer is connected.
"""

from __future__ import annotations

import asyncio
import subprocess
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka as confluent
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

with warnings.catch_warnings():  # kafka-python reads its schemas through a function that Python 3.11 wants replaced
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

SECONDS = 60

Values = Sequence[bytes]
WhenWritten = Callable[[], None]


def do_nothing() -> None:
    """Replaces `when_written`."""


def by_confluent(settings: Mapping[str, Any], topic: str, values: Values, when_written: WhenWritten = do_nothing) -> list[bytes | None]:
    """confluent-kafka, with an idempotent producer and a group."""
    producer = confluent.Producer({**settings, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(SECONDS) == 0
    when_written()
    consumer = confluent.Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    while len(found) < len(values):
        message = consumer.poll(SECONDS)
        assert message is not None
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    return found


def by_kafka_python(settings: Mapping[str, Any], topic: str, values: Values, when_written: WhenWritten = do_nothing) -> list[bytes]:
    """kafka-python."""
    producer = kafka.KafkaProducer(**settings)
    for value in values:
        producer.send(topic, value, partition=0)
    producer.flush(SECONDS)
    when_written()
    producer.close()
    consumer = kafka.KafkaConsumer(topic, **settings, auto_offset_reset="earliest", consumer_timeout_ms=SECONDS * 1000)
    found: list[bytes] = []
    for record in consumer:
        found.append(record.value)
        if len(found) == len(values):
            break
    consumer.close()
    return found


def by_aiokafka(settings: Mapping[str, Any], topic: str, values: Values, when_written: WhenWritten = do_nothing) -> list[bytes]:
    """aiokafka."""

    async def write_and_read() -> list[bytes]:
        producer = AIOKafkaProducer(**settings)
        await producer.start()
        for value in values:
            await producer.send_and_wait(topic, value, partition=0)
        await asyncio.to_thread(when_written)
        await producer.stop()
        consumer = AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest")
        await consumer.start()
        found = [(await asyncio.wait_for(consumer.getone(), SECONDS)).value for _ in values]
        await consumer.stop()
        return found

    return asyncio.run(write_and_read())


def by_kcat(settings: Mapping[str, Any], topic: str, lines: str, folder: Path) -> str:
    """kcat, which reads its settings from a file in `folder`, and has a record for each line."""
    file = folder / "kcat.conf"
    file.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))

    def kcat(*arguments: str, text: str | None = None) -> str:
        command = ["kcat", "-F", str(file), "-t", topic, *arguments]
        run = subprocess.run(command, input=text, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert run.returncode == 0, run.stderr
        return run.stdout

    kcat("-P", text=lines)
    return kcat("-C", "-e")
