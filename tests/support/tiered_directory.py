"""Runs a broker with a topic whose closed segments are in a directory as their remote store, and not on its disk any more."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.command_line import CommandLine

SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    "remote.log.manager.task.interval.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "100",
}
TOPIC = {"remote.storage.enable": "true", "segment.bytes": "14000", "local.retention.bytes": "1", "file.delete.delay.ms": "0"}
RECORDS = 200
"""Records of the last partition; the others have none."""


@contextmanager
def a_tiered_topic(directory: Path, topic: str, *, partitions: int) -> Iterator[BrokerProcess]:
    """The broker has its data in this directory, and the store in the folder `store` there."""
    store = directory / "store"
    store.mkdir()
    with a_broker(directory / "tiered", **SETTINGS, **{"rsm.config.dir": str(store)}) as running:
        line = CommandLine(running.bootstrap)
        configs = [word for each in TOPIC.items() for word in ("-c", "=".join(each))]
        line("topics", "create", topic, "-p", str(partitions), *configs)
        for _ in range(RECORDS // 20):
            line("produce", "-p", str(partitions - 1), topic, input=f"{'x' * 500}\n" * 20)
        eventually(lambda: len(local_bases(running, topic, partitions - 1)) == 1, what="closed segments that are in the store only")
        yield running


def local_bases(broker: BrokerProcess, topic: str, partition: int) -> list[int]:
    """Base offsets of the segments that are on the disk of the broker."""
    return [int(path.stem) for path in broker.data.glob(f"{topic}-{partition}/*.log")]
