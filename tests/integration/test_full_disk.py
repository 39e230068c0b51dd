"""A disk that takes no more bytes while a producer writes: its directory goes offline, the producer is told so, the others serve on."""

import errno
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from tests.support.broker_process import eventually
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process


class FullDisk:
    """A log file on a disk without room."""

    def __init__(self, file: object) -> None:
        self._file = file

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def pwrite(self, data: bytes, at: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def produce(broker: InProcessBroker, topic: str, seconds: float = 30.0) -> KafkaError | None:
    """Write one record; the error it ended with. KAFKA_STORAGE_ERROR is one that clients try again after, until `seconds` are over."""
    outcome: list[KafkaError | None] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        outcome.append(error)

    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": int(seconds * 1000), "linger.ms": 0})
    producer.produce(topic, b"x", on_delivery=on_delivery)
    producer.flush(30)
    return outcome[0]


def fill_the_disk_of(broker: InProcessBroker, topic: str) -> str:
    """Let no append to the topic succeed; the log directory that this is about."""

    def fill() -> str:
        log = broker.services.data.replica_manager.partitions[topic][0].log
        log.segments.active._file = FullDisk(log.segments.active.file)
        return str(log.log_dir)

    return str(broker.run(fill))


def test_a_full_disk_takes_its_directory_offline_and_no_other(tmp_path: Path) -> None:
    with a_broker_in_process(tmp_path, log_dirs=f"{tmp_path}/a,{tmp_path}/b") as broker:
        assert produce(broker, "lost") is None
        assert produce(broker, "kept") is None
        failed = fill_the_disk_of(broker, "lost")
        error = produce(broker, "lost", seconds=1.5)
        assert error is not None
        assert error.code() == KafkaError._MSG_TIMED_OUT
        assert broker.run(lambda: broker.services.data.log_manager.offline_log_dirs) == [failed]
        assert produce(broker, "kept") is None


def test_the_last_directory_that_fails_ends_the_broker(tmp_path: Path) -> None:
    with a_broker_in_process(tmp_path) as broker:
        assert produce(broker, "lost") is None
        fill_the_disk_of(broker, "lost")
        produce(broker, "lost", seconds=1.5)
        assert eventually(lambda: broker.broker.failed)
