"""Consumers of librdkafka: one that reads while a fault happens, and one that reads all there is afterwards."""

from __future__ import annotations

import json
import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.support.broker_process import eventually
from tests.support.cluster_clients import end_of
from tests.support.fault_clients import QUICK, RECOVERY_SECONDS, Stalls, decode_any
from tests.support.fault_judge import ALONG, FaultHistory
from tests.support.history import Place

_END_SECONDS = 15.0
"""How long a high watermark may stay behind what was acknowledged; with acks=1 that may be gone, so the cell goes on."""
_LINES = 2_000
"""Of what librdkafka says: some minutes without a fault, and all of what one makes it say."""
_LINES_SHOWN = 400


class Along:
    """A consumer in a thread that reads while things happen."""

    def __init__(self, bootstrap: str, history: FaultHistory, topic: str, partitions: int) -> None:
        self.stalls = Stalls()
        self.failures: list[str] = []
        self._history = history
        self._topic = topic
        self._at = dict.fromkeys(range(partitions), 0)
        self._stop = threading.Event()
        self._said = _Ring()
        self._statistics = ""
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                **QUICK,
                "debug": "broker,topic,metadata",
                "log_level": 7,
                "statistics.interval.ms": 1_000,
                "stats_cb": self._on_statistics,
            },
            logger=self._said.logger,
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self._thread = threading.Thread(target=self._read, name=f"reader of {topic}")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def go_on_for(self, records: int = 50) -> None:
        """Until so many more were read."""
        enough = self._history.polled_count(ALONG) + records
        self._wait(lambda: self._history.polled_count(ALONG) >= enough, f"{records} more records are read")

    def come_to(self, ends: dict[int, int]) -> None:
        """Until everything was read."""
        self._wait(lambda: all(self._at[number] >= end for number, end in ends.items()), f"the consumer of {self._topic} comes to {ends}")

    def stop(self) -> None:
        """No more."""
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def state(self) -> str:
        """Where it is, what it failed with, and what librdkafka says of itself: for the report of a failure."""
        return "\n".join(
            [
                f"--- the reader of {self._topic}: {'lives' if self._thread.is_alive() else 'is dead'}, next offsets {self._at}, "
                f"{len(self.failures)} failures",
                *self.failures,
                self._statistics,
                *self._said.last(_LINES_SHOWN),
            ]
        )

    def _wait(self, condition: object, what: str) -> None:
        assert callable(condition)

        def is_so() -> bool:
            assert self._thread.is_alive(), f"the reader is dead before {what}: {self.failures[-1:]}"
            return bool(condition())

        eventually(is_so, RECOVERY_SECONDS, what)

    def _read(self) -> None:
        try:
            while not self._stop.is_set():
                for message in self._consumer.consume(500, timeout=0.05):
                    self._on_message(message)
        except Exception:
            self.failures.append(traceback.format_exc())

    def _on_message(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.fatal() or error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
                self.failures.append(str(error))
            return
        value = message.value()
        assert value is not None
        self.stalls.sign()
        place = Place(message.partition() or 0, message.offset() or 0)
        self._history.polled(ALONG, decode_any(value), place)
        self._at[place.partition] = place.offset + 1

    def _on_statistics(self, text: str) -> None:
        """Kept for `state`: the brokers that it has, and of each partition from whom it is fetched, in which state and from where on."""
        found = json.loads(text)
        brokers = {name: each["state"] for name, each in found["brokers"].items()}
        partitions = {
            (topic, number): {key: each[key] for key in ("broker", "leader", "fetch_state", "fetchq_cnt", "next_offset", "hi_offset")}
            for topic, of_topic in found["topics"].items()
            for number, each in of_topic["partitions"].items()
            if number != "-1"
        }
        self._statistics = f"brokers {brokers}\npartitions {partitions}"


class _Ring(logging.Handler):
    """The last lines that a client logged."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=_LINES)
        self.logger = logging.Logger("librdkafka")
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        self._lines.append(f"{time.strftime('%X', time.localtime(record.created))},{record.msecs:03.0f} {record.getMessage()}")

    def last(self, count: int) -> list[str]:
        """The newest ones."""
        return list(self._lines.copy())[-count:]


@contextmanager
def a_reader_along(bootstrap: str, history: FaultHistory, topic: str, partitions: int) -> Iterator[Along]:
    """Reads from the beginning until the end of the block. An exception in the block gets the reader's state as a note."""
    reader = Along(bootstrap, history, topic, partitions)
    reader.start()
    try:
        yield reader
    except BaseException as failure:
        failure.add_note(reader.state())
        raise
    finally:
        reader.stop()
    assert not reader.failures, f"the consumer failed: {reader.failures[0]}"


def read_to_the_end(bootstrap: str, history: FaultHistory, topic: str, partitions: int) -> dict[int, int]:
    """Another consumer reads all there is now; the ends."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, **QUICK})
    try:
        ends = {
            number: end_of(consumer, TopicPartition(topic, number), history.acknowledged_end(number), _END_SECONDS)
            for number in range(partitions)
        }
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        at = dict.fromkeys(ends, 0)
        deadline = time.monotonic() + RECOVERY_SECONDS
        while any(at[number] < end for number, end in ends.items()):
            assert time.monotonic() < deadline, f"read up to {at} of {ends}"
            for message in consumer.consume(500, timeout=0.05):
                if message.error() is None:
                    value = message.value()
                    assert value is not None
                    place = Place(message.partition() or 0, message.offset() or 0)
                    history.polled("final", decode_any(value), place)
                    at[place.partition] = place.offset + 1
        history.came_to_the_end("final")
        return ends
    finally:
        consumer.close()
