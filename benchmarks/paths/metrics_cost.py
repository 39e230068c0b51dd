"""Measures the cost of metrics: `python -m benchmarks.paths.metrics_cost [--turns N] [--partitions N]`.

A broker in this process, without sockets: the same frames go through a dispatcher without metrics and one with metrics, in turns, so that
changes of the machine's pace affect both. Prints µs of processor time per request of both, and the difference: the median over neighbours
in time.

Then the metrics of many partitions are scraped, while the event loop turns as fast as it can. Prints the time of a scrape, and the longest
time between two turns of the loop with and without a scrape.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import uvloop

from benchmarks.loads import frames
from ottla.broker.metrics.request_metrics import RequestMetrics
from ottla.broker.network.connection import Connection
from ottla.broker.network.request_channel import Answer
from ottla.broker.network.timings import on_sent, on_write
from ottla.broker.server import Broker
from ottla.broker.serving.dispatch import Dispatcher
from ottla.config.broker import BrokerConfig
from ottla.controller.admin.topic_admin import NewTopic
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.storage.log.pending_topic_id import make_durable
from tests.support.batches import a_batch
from tests.support.connections import ClientConnection

TOPIC = "cost"
PARTITIONS = 8
SCRAPES = 9
SCRAPE_SECONDS = 0.5
"""Approximate length of a scrape, seconds; the loop is watched for the same time without one."""
TURN = 250
"""Requests of one kind in a turn of a dispatcher."""


def seconds(handle: Callable[[memoryview, Connection], Answer], frame: bytearray, batch_at: int, count: int) -> float:
    """The time of `count` requests, with the part of the network that reports answers.

    The base offset of a batch at `batch_at` is set back before each: an append stamps it.
    """
    connection: Any = ClientConnection()  # has the attributes that dispatcher and metrics use
    view = memoryview(frame)[4:]
    base_offset = view[batch_at : batch_at + 8] if batch_at else memoryview(bytearray(8))
    as_sent = bytes(8)
    began = time.thread_time()  # of the processor: others on the machine do not count
    for _ in range(count):
        base_offset[:] = as_sent
        connection.received_ns = time.monotonic_ns()
        handle(view, connection)
        if connection.timings:
            on_write(connection)
        if connection.timings:
            on_sent(connection)
    return time.thread_time() - began


async def costs(broker: Broker, turns: int) -> None:
    """The table of the hot path."""
    services = broker.services
    await services.administration.topic_admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
    for log in broker.log_manager.all_logs():
        make_durable(log)  # its first Produce would wait for that in a worker
    topic_id = services.data.replica_manager.partition_or_raise(TOPIC, 0).topic_id
    off = Dispatcher(services)
    on = Dispatcher(services, RequestMetrics(time.monotonic_ns, services.data.replica_manager.topic_stats, services.error_counts))
    one, many = bytes(a_batch(1, value_bytes=100)), bytes(a_batch(150, value_bytes=100))
    works = {
        "produce, 1 record of 100 B": (frames.produce(TOPIC, 0, one), one),
        "produce, 16 KiB": (frames.produce(TOPIC, 1, many), many),
        "fetch, 64 KiB": (frames.fetch(topic_id, 1, 0, 64 * 1024), b""),
        "api versions": (frames.request_frame(ApiKey.API_VERSIONS, ApiVersionsRequest()), b""),
    }
    print(f"{'µs per request':<30}{'without':>10}{'with':>10}{'more':>8}")
    for name, (frame, batch) in works.items():
        buffer = bytearray(frame)
        batch_at = max(0, frame.find(batch) - 4) if batch else 0
        for dispatcher in (off, on):
            seconds(dispatcher.handle, buffer, batch_at, TURN)
        without: list[float] = []
        measured: list[float] = []
        for turn in range(turns):
            pair = [(off, without), (on, measured)]
            for dispatcher, into in pair if turn % 2 else reversed(pair):
                into.append(seconds(dispatcher.handle, buffer, batch_at, TURN) / TURN * 1e6)
            await asyncio.sleep(0)
        # Neighbours in time are compared, so that the pace of the machine falls out.
        more = statistics.median(b / a - 1 for a, b in zip(without, measured, strict=True))
        print(f"{name:<30}{statistics.median(without):>10.2f}{statistics.median(measured):>10.2f}{more:>8.1%}")


async def gaps(until: asyncio.Future[Any]) -> list[float]:
    """The times between turns of the loop, in ms, until something is done."""
    found = []
    before = time.perf_counter()
    while not until.done():
        await asyncio.sleep(0.0002)
        now = time.perf_counter()
        found.append((now - before) * 1000)
        before = now
    return sorted(found)


async def scrapes(broker: Broker, partitions: int) -> None:
    """The table of the scrapes."""
    topics = [NewTopic(f"many-{i}", 1000, 1) for i in range(partitions // 1000)]
    for topic in topics:
        await broker.services.administration.topic_admin.create_topics([topic])
    assert broker.metrics is not None
    url = f"http://{broker.metrics.address}/metrics"
    loop = asyncio.get_running_loop()

    code = f"import time, urllib.request as u; b = time.perf_counter(); print(len(u.urlopen('{url}').read()), time.perf_counter() - b)"

    def scrape() -> tuple[int, float]:
        # In a process of its own, as Prometheus is.
        size, seconds = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.split()
        return int(size), float(seconds) * 1000

    def nothing() -> tuple[int, float]:
        time.sleep(SCRAPE_SECONDS)
        return 0, SCRAPE_SECONDS * 1000

    print(f"\n{'with ' + str(partitions) + ' partitions':<30}{'ms':>10}{'KiB':>10}{'turn p99.9':>12}{'longest':>10}")
    rows: dict[str, list[tuple[float, ...]]] = {"nothing": [], "scrape": []}
    for turn in range(2 * SCRAPES):
        name = "scrape" if turn % 2 else "nothing"
        work = loop.run_in_executor(None, scrape) if turn % 2 else loop.run_in_executor(None, nothing)
        turns = await gaps(work)
        size, took_ms = work.result()
        rows[name].append((took_ms, size // 1024, turns[int(len(turns) * 0.999)], turns[-1]))
    for name, found in rows.items():
        took_ms, size_kib, usual, longest = map(statistics.median, zip(*found, strict=True))
        print(f"{name:<30}{took_ms:>10.0f}{size_kib:>10.0f}{usual:>12.2f}{longest:>10.2f}")


async def main_async(turns: int, partitions: int) -> None:
    """Both tables."""
    with tempfile.TemporaryDirectory() as directory:
        properties: dict[str, Any] = {"log.dirs": directory, "listeners": "PLAINTEXT://127.0.0.1:0", "log.retention.ms": "-1"}
        properties["ottla.metrics.listener"] = "127.0.0.1:0"
        broker = Broker(BrokerConfig(properties))
        await broker.start()
        try:
            await costs(broker, turns)
            await scrapes(broker, partitions)
        finally:
            await broker.stop()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=10_000)
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main_async(arguments.turns, arguments.partitions))
    return 0


if __name__ == "__main__":
    sys.exit(main())
