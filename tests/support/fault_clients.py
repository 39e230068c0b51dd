"""Producers that work steadily while a fault happens, and measure how long each had to wait: librdkafka, kafka-python and Java.

`a_writer_of(cell, ...)` tells a FaultHistory all that it does. A producer with acks=all is idempotent; with acks=1 it has one request in
flight. `Stalls` is the clock that it carries, and `fault_readers` have the consumers.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from tests.support.broker_process import eventually
from tests.support.fault_cells import Cell
from tests.support.fault_judge import FaultHistory
from tests.support.history import UNKNOWN_OFFSET, Place, Record, decode

RECOVERY_SECONDS = 90.0
"""Far more than any recovery takes: session timeout, request timeout and metadata refresh are 2 to 5 s each."""
_PACE_SECONDS = 0.003
_JAVA_RECORDS_PER_SECOND = "300"
REFRESH_MS = 500
"""How often clients ask for metadata of their own accord. With minutes, as by default, or even seconds, the moment of a fault between two
such requests would decide how long a client waits, and not the cluster."""
QUICK: dict[str, str | int | float | bool] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.interval.ms": REFRESH_MS,
    "socket.timeout.ms": 2_000,  # only by this a client notices a suspended broker
    "log_level": 0,
}
"""Of all clients of librdkafka."""


class Stalls:
    """The longest time between two signs of life since `begin`."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._longest = 0.0

    def begin(self) -> None:
        """From now on."""
        self._last, self._longest = max(self._last, time.monotonic() - 0.05), 0.0

    def sign(self) -> None:
        """It lives."""
        now = time.monotonic()
        self._longest = max(self._longest, now - self._last)
        self._last = now

    @property
    def longest(self) -> float:
        """In seconds."""
        return self._longest


class FaultWriter:
    """The common part of the three writers: they write until they are stopped, and then wait for all answers."""

    def __init__(self, history: FaultHistory, topic: str, partitions: int, name: str = "w") -> None:
        self.history = history
        self.name = name
        self.count = 0
        """Of its own that were acknowledged."""
        self.topic = topic
        self.partitions = partitions
        self.stalls = Stalls()
        self.failures: list[str] = []
        self._stop = threading.Event()

    def start(self) -> None:
        """Begin."""

    def finish(self) -> int:
        """No more; the number of records that were never answered."""
        return 0

    def give_up(self) -> None:
        """The test has failed."""
        self._stop.set()

    def go_on_for(self, records: int = 50, seconds: float = RECOVERY_SECONDS) -> None:
        """Until so many more were acknowledged."""
        enough = self.history.acknowledged_count + records
        eventually(lambda: self.history.acknowledged_count >= enough, seconds, f"{records} more records are acknowledged")

    def told(self, record: Record, place: Place) -> None:
        """Acknowledged."""
        self.count += 1
        self.stalls.sign()
        self.history.acknowledged(record, place)


class ThreadedWriter(FaultWriter):
    """In a thread, at a steady pace, to all partitions in turns."""

    def __init__(self, history: FaultHistory, topic: str, partitions: int, name: str = "w") -> None:
        super().__init__(history, topic, partitions, name)
        self._thread = threading.Thread(target=self._run, name=f"writer of {topic}")

    def start(self) -> None:
        self._thread.start()

    def give_up(self) -> None:
        self._stop.set()
        self._thread.join()

    def finish(self) -> int:
        self._stop.set()
        self._thread.join()
        return self.flush()

    def _run(self) -> None:
        sequence = 0
        while not self._stop.is_set():
            record = Record(self.name, sequence)
            self.history.sent(record, sequence % self.partitions)
            if self.send(record, sequence % self.partitions):
                sequence += 1
            time.sleep(_PACE_SECONDS)

    def send(self, record: Record, partition: int) -> bool:
        """False when it must be tried again."""
        raise NotImplementedError

    def flush(self) -> int:
        """How many are left."""
        raise NotImplementedError


class ConfluentWriter(ThreadedWriter):
    """librdkafka."""

    def __init__(self, bootstrap: str, history: FaultHistory, topic: str, partitions: int, acks: str, name: str = "w") -> None:
        super().__init__(history, topic, partitions, name)
        safe: dict[str, str | int | float | bool] = (
            {"enable.idempotence": True} if acks == "all" else {"acks": acks, "max.in.flight.requests.per.connection": 1}
        )
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 2,
                "message.timeout.ms": 200_000,
                "request.timeout.ms": 2_000,
                "queue.buffering.max.messages": 2_000,
                **QUICK,
                **safe,
            }
        )

    def send(self, record: Record, partition: int) -> bool:
        try:
            self._producer.produce(self.topic, record.encode(100), partition=partition, on_delivery=self._on_delivery)
        except BufferError:
            self._producer.poll(0.05)
            return False
        self._producer.poll(0)
        return True

    def flush(self) -> int:
        return int(self._producer.flush(RECOVERY_SECONDS))

    def give_up(self) -> None:
        super().give_up()
        self._producer.purge()

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        assert value is not None
        if error is not None:
            self.failures.append(f"{decode(value)}: {error}")
            return
        offset = message.offset()
        place = Place(message.partition() or 0, UNKNOWN_OFFSET if offset is None else offset)
        self.told(decode(value), place)


class KafkaPythonWriter(ThreadedWriter):
    """kafka-python, idempotent."""

    def __init__(self, bootstrap: str, history: FaultHistory, topic: str, partitions: int) -> None:
        super().__init__(history, topic, partitions)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            import kafka
        self._left = 0
        self._count = threading.Lock()
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            acks="all",
            enable_idempotence=True,
            linger_ms=2,
            request_timeout_ms=2_000,
            delivery_timeout_ms=200_000,
            retry_backoff_ms=50,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
            metadata_max_age_ms=REFRESH_MS,
            max_block_ms=120_000,
        )

    def send(self, record: Record, partition: int) -> bool:
        with self._count:
            if self._left >= 2_000:
                return False
            self._left += 1
        future: Any = self._producer.send(self.topic, record.encode(100), partition=partition)
        future.add_callback(self._on_success, record)
        future.add_errback(self._on_failure, record)
        return True

    def flush(self) -> int:
        self._producer.flush(RECOVERY_SECONDS)
        self._producer.close(5)
        return self._left

    def give_up(self) -> None:
        super().give_up()
        self._producer.close(0)

    def _on_success(self, record: Record, metadata: Any) -> None:
        self._done()
        self.told(record, Place(metadata.partition, metadata.offset))

    def _on_failure(self, record: Record, error: BaseException) -> None:
        self._done()
        self.failures.append(f"{record}: {error!r}")

    def _done(self) -> None:
        with self._count:
            self._left -= 1


class JavaWriter(FaultWriter):
    """Apache Kafka's own VerifiableProducer, idempotent, which prints a line for each acknowledgement. Its values are `1.<number>`."""

    def __init__(self, bootstrap: str, history: FaultHistory, topic: str, partitions: int, directory: Path) -> None:
        super().__init__(history, topic, partitions)
        self._bootstrap = bootstrap
        self._properties = directory / f"{topic}.properties"
        self._properties.write_text(
            "enable.idempotence=true\nretries=2147483647\nrequest.timeout.ms=2000\ndelivery.timeout.ms=200000\nlinger.ms=2\n"
            f"retry.backoff.ms=50\nreconnect.backoff.ms=20\nreconnect.backoff.max.ms=200\nmetadata.max.age.ms={REFRESH_MS}\n"
        )
        self._tool: subprocess.Popen[str] | None = None
        self._threads: list[threading.Thread] = []
        self._sent = 0

    def start(self) -> None:
        from tests.support.apache_kafka import start_tool

        self._tool = start_tool(
            "org.apache.kafka.tools.VerifiableProducer",
            *("--bootstrap-server", self._bootstrap, "--topic", self.topic, "--acks", "-1", "--value-prefix", "1"),
            *("--throughput", _JAVA_RECORDS_PER_SECOND, "--producer.config", str(self._properties)),
        )
        self._threads = [threading.Thread(target=work) for work in (self._read, self._drain)]
        for thread in self._threads:
            thread.start()

    def finish(self) -> int:
        tool = self._tool
        assert tool is not None
        tool.terminate()  # its hook waits for what was sent
        try:
            tool.wait(RECOVERY_SECONDS)
        finally:
            self.give_up()
        return self._sent - self.history.acknowledged_count

    def give_up(self) -> None:
        from tests.support.apache_kafka import process_guard

        tool, self._tool = self._tool, None
        if tool is None:
            return
        tool.kill()
        tool.wait()
        for thread in self._threads:
            thread.join()
        process_guard().release(tool.pid)
        for stream in (tool.stdin, tool.stdout, tool.stderr):
            if stream is not None:
                stream.close()

    def _drain(self) -> None:
        tool = self._tool
        assert tool is not None
        assert tool.stderr is not None
        for _ in tool.stderr:
            pass

    def _read(self) -> None:
        tool = self._tool
        assert tool is not None
        assert tool.stdout is not None
        for line in tool.stdout:
            if not line.startswith("{"):
                continue
            said = json.loads(line)
            if said["name"] == "producer_send_success":
                record = decode_any(said["value"].encode())
                self.history.sent(record, said["partition"])
                self.told(record, Place(said["partition"], said["offset"]))
            elif said["name"] == "producer_send_error":
                self.failures.append(f"{said.get('value')}: {said.get('message')}")
            elif said["name"] == "tool_data":
                self._sent = said["sent"]


def decode_any(value: bytes) -> Record:
    """A value of ours or of the VerifiableProducer."""
    if b":" in value:
        return decode(value)
    prefix, _, number = value.partition(b".")
    return Record(prefix.decode(), int(number))


@contextmanager
def a_writer_of(cell: Cell, bootstrap: str, history: FaultHistory, topic: str, partitions: int, directory: Path) -> Iterator[FaultWriter]:
    """The cell's client at work; at the end all that it sent must be acknowledged."""
    make: dict[str, Callable[[], FaultWriter]] = {
        "confluent-kafka": lambda: ConfluentWriter(bootstrap, history, topic, partitions, cell.acks),
        "kafka-python": lambda: KafkaPythonWriter(bootstrap, history, topic, partitions),
        "java": lambda: JavaWriter(bootstrap, history, topic, partitions, directory),
    }
    writer = make[cell.client]()
    writer.start()
    try:
        writer.go_on_for(30)
        yield writer
    except BaseException:
        writer.give_up()
        raise
    left = writer.finish()
    assert not writer.failures, f"{len(writer.failures)} records failed, the first: {writer.failures[0]}"
    assert left <= 0, f"{left} records were never answered"
