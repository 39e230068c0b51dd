"""Has a producer and a reader of local data work at fixed rates, alone or beside a reader of old data, and measures both.

All clients are processes of Python that sleep between their requests, since generators that poll would take the cores of the broker.
"""

import multiprocessing
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from typing import Any, Final

from benchmarks.loadgen.runner import LoadFailedError
from benchmarks.loads import frames
from benchmarks.loads.admin import Admin, Topic
from benchmarks.loads.old_data import OldData, OldReader, catch_up
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

PRODUCED_PER_S: Final = 400
"""Batches of 16 KiB."""
READ_PER_S: Final = 800
"""Fetches of 64 KiB."""
_READ_BYTES: Final = 64 << 10
_READY_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Beside:
    """The times of the producer's requests, and the rates of the readers of local and of old data."""

    produced_s: list[float]
    read_mb_per_s: float
    old_mb_per_s: float


def measure(port: int, local: Topic, local_end: int, batch: bytes, old: OldData | None, seconds: float) -> Beside:
    """Produce to partition 1 of `local`, read its partition 0 before `local_end`, and read all of `old` again and again, if it is named."""
    with multiprocessing.Manager() as manager:
        results: Any = manager.dict()
        begin, end = multiprocessing.Event(), multiprocessing.Event()
        works: dict[str, Callable[[Event], Any]] = {
            "produced": lambda end: _produce(port, local, batch, end),
            "read": lambda end: _read(port, local, local_end, end),
            **({"old": lambda end: _read_old(port, old, end)} if old is not None else {}),
        }
        clients = [multiprocessing.Process(target=_run, args=(name, work, begin, end, results)) for name, work in works.items()]
        for client in clients:
            client.start()
        begin.set()
        time.sleep(seconds)
        end.set()
        for client in clients:
            client.join(_READY_S)
        if any(client.exitcode for client in clients):
            raise LoadFailedError("a client beside the reader of old data has failed")
        return Beside(results["produced"], results["read"], results.get("old", 0.0))


def _run(name: str, work: Callable[[Event], Any], begin: Event, end: Event, results: Any) -> None:
    begin.wait(_READY_S)
    results[name] = work(end)


def _produce(port: int, topic: Topic, batch: bytes, end: Event) -> list[float]:
    data = TopicProduceData(name=topic.name, partition_data=[PartitionProduceData(index=1, records=memoryview(batch))])
    request = ProduceRequest(acks=frames.ALL_IN_SYNC_REPLICAS, timeout_ms=30_000, topic_data=[data])
    taken = []
    with Admin("127.0.0.1", port) as admin:
        due = time.monotonic()
        while not end.is_set():
            due += 1 / PRODUCED_PER_S
            time.sleep(max(0.0, due - time.monotonic()))
            began = time.monotonic()  # a client that is late sends at once, and its own delay does not count
            admin.ask(ApiKey.PRODUCE, request, ProduceResponse)
            taken.append(time.monotonic() - began)
    return taken


def _read(port: int, topic: Topic, local_end: int, end: Event) -> float:
    chosen = random.Random(7)
    with OldReader(port, topic) as reader:
        began = due = time.monotonic()
        while not end.is_set():
            due += 1 / READ_PER_S
            time.sleep(max(0.0, due - time.monotonic()))
            reader.fetch({0: chosen.randrange(local_end)}, _READ_BYTES)
        return reader.received / (time.monotonic() - began) / 1e6


def _read_old(port: int, data: OldData, end: Event) -> float:
    began, received = time.monotonic(), 0
    while not end.is_set():
        received += catch_up(port, data, end.is_set).received
    return received / (time.monotonic() - began) / 1e6
