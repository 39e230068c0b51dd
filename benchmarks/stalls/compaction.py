"""Measures compaction beside Apache Kafka's cleaner on the same log, and the delay of the event loop meanwhile.

    python -m benchmarks.stalls.compaction [--records N] [--keys K] [--value-bytes B] [--no-apache]

Our storage makes the log once. Both cleaners clean it in turn, with one thread and the default limits, and report their own times. The
delay of the loop is measured every millisecond: idle, with the cleaner in its process, and with the same cleaner in a thread. The
difference is the reason for the process.
"""

import argparse
import asyncio
import os
import queue
import random
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import uvloop

from benchmarks.brokers.present_memory import free_memory_present
from ottla.broker.loop.background import LoopBackground
from ottla.config.broker import BrokerConfig
from ottla.config.topic import TopicConfig
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.reader import Record
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.cleaner.job import CleaningJob
from ottla.storage.cleaner.process import CleanerMessage, CleanerProcess, CleanerWorker
from ottla.storage.cleaner.run import CleanerPorts, clean
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.log.origins import REPLICATION
from ottla.storage.manager.log_manager import LogManager
from ottla.storage.validation.run import BatchRun

TOPIC = TopicPartition("compacted", 0)
OVERRIDES = {"cleanup.policy": "compact", "segment.bytes": str(64 << 20), "min.cleanable.dirty.ratio": "0.01"}
BATCH_RECORDS = 150
CLEANED = re.compile(r"([\d,.]+) MB of log processed in ([\d,.]+) seconds.*?Start size: [\d,.]+ MB \(([\d,]+) messages\)", re.DOTALL)


class Clock:
    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def monotonic(self) -> float:
        return time.monotonic()


class ThreadCleaner:
    """A `CleanerWorker` that shares the interpreter with the loop, as the reference for `CleanerProcess`."""

    def __init__(self) -> None:
        self._said: queue.SimpleQueue[CleanerMessage] = queue.SimpleQueue()
        self._going_on = threading.Event()

    def start(self, job: CleaningJob) -> None:
        threading.Thread(target=self._work, args=(job,), daemon=True).start()

    def _work(self, job: CleaningJob) -> None:
        run = clean(job, CleanerPorts(RealFileSystem(), time.monotonic, lambda: None, lambda length: None))
        while True:
            try:
                group = next(run)
            except StopIteration as end:
                self._said.put(end.value)
                return
            self._going_on.clear()
            self._said.put(group)
            self._going_on.wait()

    def poll(self) -> CleanerMessage | None:
        with suppress(queue.Empty):
            return self._said.get_nowait()
        return None

    def proceed(self) -> None:
        self._going_on.set()

    def kill(self) -> None:
        """It cannot be killed; the benchmark never does."""

    def close(self) -> None:
        """Nothing to close."""


@contextmanager
def a_manager(directory: Path, new_cleaner: Callable[[], CleanerWorker], *, cleans: bool) -> Iterator[LogManager]:
    """On the running loop."""
    broker = BrokerConfig({"log.dirs": str(directory), "log.cleaner.enable": str(cleans).lower(), "log.segment.delete.delay.ms": "0"})
    with ThreadPoolExecutor(4) as executor:
        background = LoopBackground(executor)
        manager = LogManager(
            broker,
            lambda topic: TopicConfig(OVERRIDES, broker),
            RealFileSystem(),
            Clock(),
            background,
            random=random.Random(1),
            new_cleaner=new_cleaner,
        )
        manager.open()
        manager.identify("benchmark", 0)
        manager.load()
        manager.start()
        try:
            yield manager
        finally:
            background.close()
            manager.shutdown()


async def make(directory: Path, records: int, keys: int, value_bytes: int) -> int:
    """Writes the log; returns its bytes."""
    rng = random.Random(7)
    value = rng.randbytes(value_bytes)
    with a_manager(directory, CleanerProcess, cleans=False) as manager:
        log = manager.get_or_create(TOPIC, is_new=True)
        now_ms = int(time.time() * 1000) - records
        for first in range(0, records, BATCH_RECORDS):
            made = [Record(at, now_ms + at, b"key-%010d" % rng.randrange(keys), value) for at in range(first, first + BATCH_RECORDS)]
            log.append(BatchRun(memoryview(build_batch(made, partition_leader_epoch=0))), 0, now_ms, REPLICATION)
        log.update_high_watermark(log.log_end_offset)
        log.roll()
        return log.size_bytes


async def lateness_while(is_done: Callable[[], bool], seconds: float) -> list[float]:
    """Delays of a repeated timer of 1 ms, in ms, until `is_done` and for at least `seconds`."""
    late = []
    began = time.perf_counter()
    while not is_done() or time.perf_counter() - began < seconds:
        asked = time.perf_counter()
        await asyncio.sleep(0.001)
        late.append((time.perf_counter() - asked) * 1000 - 1)
    return sorted(late)


async def measure_ours(directory: Path, new_cleaner: Callable[[], CleanerWorker]) -> tuple[str, list[float]]:
    """The report of the cleaner, and the delays of the loop meanwhile."""
    cpu_before = os.times()
    with a_manager(directory, new_cleaner, cleans=True) as manager:
        log = manager.get(TOPIC)
        assert log is not None
        late = await lateness_while(lambda: manager.cleaner.checkpoints.get(log) is not None, 0)
        stats = manager.cleaner.last_stats
    cpu = os.times()
    used = cpu.user + cpu.system + cpu.children_user + cpu.children_system
    used -= cpu_before.user + cpu_before.system + cpu_before.children_user + cpu_before.children_system
    mib = stats.bytes_read / 2**20
    said = (
        f"{stats.elapsed_seconds:6.2f} s (map {stats.index_seconds:.2f} s), {mib / stats.elapsed_seconds:6.1f} MiB/s, "
        f"{stats.messages_read / stats.elapsed_seconds:9,.0f} messages/s; processor {used:.2f} s"
    )
    return said, late


def percentile(late: list[float], part: float) -> float:
    return late[min(int(len(late) * part), len(late) - 1)]


def show(name: str, late: list[float]) -> None:
    figures = ", ".join(
        f"{label} {percentile(late, part):6.2f}" for label, part in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1))
    )
    print(f"  loop lateness, ms  {name:22} {figures}")


def measure_apache(directory: Path, made: Path) -> str:
    """Let Apache Kafka clean a copy of the log. Returns its report."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    from tests.support.apache_kafka import START_SCRIPT_OPTIONS, ApacheKafka  # only those who want it need Java

    config = {"log.cleaner.enable": "false", "log.cleaner.backoff.ms": "1000"}
    with ApacheKafka(directory, config=config, heap="1g", options=START_SCRIPT_OPTIONS) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(TOPIC.topic, 1, 1, config=OVERRIDES)])[TOPIC.topic].result(30)
        kafka.stop_broker(0)
        target = kafka.data_directory() / str(TOPIC)
        for path in target.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for path in (made / str(TOPIC)).iterdir():
            if path.name != "partition.metadata":
                shutil.copy(path, target)
        kafka._config["log.cleaner.enable"] = "true"
        kafka.start_broker(0)
        deadline = time.monotonic() + 600
        while True:
            found = CLEANED.search(kafka.log_text())
            if found is not None:
                break
            if time.monotonic() > deadline:
                raise SystemExit("Apache Kafka did not clean the log within ten minutes")
            time.sleep(0.2)
    mib, seconds, messages = (float(text.replace(",", "")) for text in found.groups())
    return f"{seconds:6.2f} s, {mib / seconds:6.1f} MiB/s, {messages / seconds:9,.0f} messages/s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--records", type=int, default=1_500_000)
    parser.add_argument("--keys", type=int, default=300_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--no-apache", action="store_true")
    asked = parser.parse_args()
    run = uvloop.run
    with free_memory_present(), tempfile.TemporaryDirectory(prefix="compaction-") as temporary:
        made = Path(temporary, "made")
        size = run(make(made, asked.records // BATCH_RECORDS * BATCH_RECORDS, asked.keys, asked.value_bytes))
        print(f"{size / 2**20:.0f} MiB, {asked.records:,} messages, {asked.keys:,} keys, {asked.value_bytes} bytes a value")
        show("idle", run(lateness_while(lambda: True, 5)))
        kinds: list[tuple[str, Callable[[], CleanerWorker]]] = [("in its process", CleanerProcess), ("in a thread", ThreadCleaner)]
        for name, new_cleaner in kinds:
            copy = Path(temporary, "copy")
            shutil.copytree(made, copy)
            said, late = run(measure_ours(copy, new_cleaner))
            print(f"Ottla, {name}: {said}")
            show(name, late)
            shutil.rmtree(copy)
        if not asked.no_apache:
            print(f"Apache Kafka: {measure_apache(Path(temporary), made)}")


if __name__ == "__main__":
    main()
