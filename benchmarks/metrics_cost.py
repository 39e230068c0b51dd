"""What the metrics cost: `python -m benchmarks.metrics_cost [--turns N]`.

A broker in this process, without sockets: the same frames go through a dispatcher that measures nothing and one that does, in turns, so
that a machine that changes its pace changes it for both. Prints µs per request of both and what the metrics add. Then the longest that
the event loop was held up, and how long it took, while the metrics of a broker with many partitions were looked at and rendered.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import uvloop

from benchmarks import frames
from broker.dispatch import Dispatcher
from broker.metrics.request_metrics import RequestMetrics
from broker.network.connection import Connection
from broker.network.request_channel import Answer, ConnectionInfo
from broker.network.timings import on_sent, on_write
from broker.server import Broker
from config.broker import BrokerConfig
from controller.topic_admin import NewTopic
from protocol.api_keys import ApiKey
from protocol.messages.api_versions import ApiVersionsRequest
from tests.support.batches import a_batch

TOPIC = "cost"
PARTITIONS = 8
TURN = 250
"""Requests of one kind before the other dispatcher has its turn."""


def a_connection() -> Connection:
    """What dispatcher and metrics see of one."""
    stub = SimpleNamespace(info=ConnectionInfo("c", "127.0.0.1", 1, "PLAINTEXT"), received_ns=0, timings=(), offend=print)
    return cast("Connection", stub)


def seconds(handle: Callable[[memoryview, Connection], Answer], frame: bytearray, batch_at: int, count: int) -> float:
    """How long `count` requests take, with the part of the network that tells of answers.

    The base offset of a batch at `batch_at` is set back before each: an append stamps it.
    """
    connection = a_connection()
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
    await services.topic_admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
    topic_id = services.replica_manager.partition_or_raise(TOPIC, 0).topic_id
    off = Dispatcher(services)
    on = Dispatcher(services, RequestMetrics(time.monotonic_ns, services.replica_manager.topic_stats))
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
        without, measured = [], []
        for turn in range(turns):
            pair = [(off, without), (on, measured)]
            for dispatcher, into in pair if turn % 2 else reversed(pair):
                into.append(seconds(dispatcher.handle, buffer, batch_at, TURN) / TURN * 1e6)
            await asyncio.sleep(0)
        # Neighbours in time are compared, so that the pace of the machine falls out.
        more = statistics.median(b / a - 1 for a, b in zip(without, measured, strict=True))
        print(f"{name:<30}{statistics.median(without):>10.2f}{statistics.median(measured):>10.2f}{more:>8.1%}")


async def main_async(turns: int) -> None:
    """Both tables."""
    with tempfile.TemporaryDirectory() as directory:
        properties: dict[str, Any] = {"log.dirs": directory, "listeners": "PLAINTEXT://127.0.0.1:0", "log.retention.ms": "-1"}
        broker = Broker(BrokerConfig(properties))
        await broker.start()
        try:
            await costs(broker, turns)
        finally:
            await broker.stop()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=100)
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main_async(arguments.turns))
    return 0


if __name__ == "__main__":
    sys.exit(main())
