"""Measures the cost of transactions for other clients: plain producers beside an open one, and readers of committed records.

The loads that are compared run in short windows, in turns, each on a topic of its own. So a disk or a machine that slows down affects all
alike. The records that are read stand in transactions, of which every eighth was aborted.
"""

import random
import statistics
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from benchmarks.loadgen.prepared import Prepared
from benchmarks.loadgen.runner import Load, Measured, one_after_another
from benchmarks.loadgen.transactional import TransactionLoad, run_transactions
from benchmarks.loads import frames, transaction_frames
from benchmarks.loads.admin import Admin, Topic
from benchmarks.loads.frames import Asked
from benchmarks.loads.shapes import ONE_LARGE, produced
from benchmarks.loads.stage import Stage
from benchmarks.loads.workloads import FETCH_CONNECTIONS, IN_FLIGHT, PRODUCE_CONNECTIONS, RECORDS_OF_16_KIB
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

HELD_BACK: Final = 10
PRODUCE: Final = {
    "others-alone": "16 KiB from plain producers, no transaction",
    "others-open": "the same into partitions with an open transaction",
    "others-held": f"the same, with {HELD_BACK} read_committed consumers that wait for it",
}
FETCH: Final = {
    "read-uncommitted": "fetch 64 KiB of transactions, read_uncommitted",
    "read-committed": "fetch 64 KiB of transactions, read_committed",
}
KEYS: Final = (*PRODUCE, *FETCH)
_PARTITIONS: Final = PRODUCE_CONNECTIONS
_READ_PARTITIONS: Final = 4
_READ_BATCHES: Final = 4
_ABORTED: Final = 8  # one of so many
_POSITIONS: Final = 256
_FILL_PAUSE_S: Final = 0.001
_WINDOWS: Final = 10
"""The windows of each load."""
_WINDOW_WARM_UP_S: Final = 0.1


def measure_all(stage: Stage) -> None:
    """Measure the loads of KEYS that the plan includes."""
    bench = stage.bench
    if any(bench.plan.includes(key) for key in PRODUCE):
        bench.attempt("plain producers", lambda: _cleared(stage, _measure_produce))
    if any(bench.plan.includes(key) for key in FETCH):
        bench.attempt("readers of transactions", lambda: _cleared(stage, _measure_fetch))


def _cleared(stage: Stage, work: Callable[[Stage], None]) -> None:
    try:
        work(stage)
    finally:
        stage.clear()


def _measure_produce(stage: Stage) -> None:
    alone, beside_open, beside_held = stage.topics(list(PRODUCE), _PARTITIONS)
    batch = ONE_LARGE.batch()
    loads = {topic.name: _produces(stage, topic, batch) for topic in (alone, beside_open, beside_held)}
    _warm_up(stage, loads[alone.name])
    port = stage.bench.broker.port
    with _open_transaction(stage, [beside_open, beside_held], batch), _held_back(port, beside_held, stage.ends(beside_held)):
        _measure_in_turns(stage, PRODUCE, loads)


def _produces(stage: Stage, topic: Topic, batch: bytes) -> Load:
    sent = [produced(topic.name, {partition: batch}) for partition in range(_PARTITIONS)]
    return Load(sent, PRODUCE_CONNECTIONS, IN_FLIGHT, 0, 0, max_bytes=stage.pace.max_bytes // _WINDOWS)


def _warm_up(stage: Stage, load: Load) -> None:
    briefly = replace(load, duration_s=stage.pace.warm_up_slice_s)
    stage.bench.warm_up_by(lambda: stage.bench.load(briefly), stage.pace.warm_up_limit_s / 4)


def _measure_in_turns(stage: Stage, titles: Mapping[str, str], loads: Mapping[str, Load]) -> None:
    """Measure these loads, and how many times as fast the first is as each other one: the median of the windows."""
    bench, pace = stage.bench, stage.pace
    wanted = [key for key in titles if bench.plan.includes(key)]
    windows: dict[str, list[Measured]] = {key: [] for key in wanted}
    for turn in range(_WINDOWS):
        first = turn % len(wanted)
        for key in (*wanted[first:], *wanted[:first]):
            load = replace(loads[key], warm_up_s=_WINDOW_WARM_UP_S, duration_s=pace.duration_s / _WINDOWS)
            windows[key].append(bench.load(load))
        bench.plan.pass_on()
    without = next(iter(titles))
    for key in wanted:
        bench.keep(key, titles[key], one_after_another(windows[key]))
        if without in wanted and key != without:
            bench.turn.numbers[f"{key}-cost"] = cost_of(windows[without], windows[key])


def cost_of(without: Sequence[Measured], beside: Sequence[Measured]) -> float:
    """How many times as fast the first load is as the other one: the median of the windows."""
    return statistics.median(one.per_second / other.per_second for one, other in zip(without, beside, strict=True))


@contextmanager
def _open_transaction(stage: Stage, topics: Sequence[Topic], batch: bytes) -> Iterator[None]:
    """One with a batch in every partition of the topics; it is aborted afterwards."""
    port = stage.bench.broker.port
    who = transaction_frames.begin(port, "open")
    ports = dict.fromkeys(range(_PARTITIONS), port)
    opening = []
    for topic in topics:
        opening.append(transaction_frames.add_partitions(who, topic.name, range(_PARTITIONS)))
        opening.append(transaction_frames.produce(who, topic.name, dict.fromkeys(ports, batch), ONE_LARGE.records, ports))
    run_transactions(TransactionLoad([opening], 0, 0, _FILL_PAUSE_S, total=1))
    try:
        yield
    finally:
        ending = [transaction_frames.end(who, lambda _: False)]
        run_transactions(TransactionLoad([ending], 0, 0, _FILL_PAUSE_S, total=1))


@contextmanager
def _held_back(port: int, topic: Topic, ends: Sequence[int]) -> Iterator[None]:
    """Consumers in long polls of all partitions from behind the open transaction on, where they are shown nothing."""
    stopping = threading.Event()
    partitions = [FetchPartition(partition=at, fetch_offset=end, partition_max_bytes=1 << 20) for at, end in enumerate(ends)]
    topics = [FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=partitions)]
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, isolation_level=frames.READ_COMMITTED, session_id=0, session_epoch=-1, topics=topics
    )

    def poll() -> None:
        with Admin("127.0.0.1", port) as consumer:
            while not stopping.is_set():
                consumer.ask(ApiKey.FETCH, request, FetchResponse)

    consumers = [threading.Thread(target=poll, name="held back") for _ in range(HELD_BACK)]
    for consumer in consumers:
        consumer.start()
    try:
        yield
    finally:
        stopping.set()
        for consumer in consumers:
            consumer.join()


def _measure_fetch(stage: Stage) -> None:
    bench, pace = stage.bench, stage.pace
    (topic,) = stage.topics(["transactions"], _READ_PARTITIONS)
    batch = ONE_LARGE.batch()
    transactions = pace.prefill_bytes // 4 // _READ_PARTITIONS // len(batch)
    _fill(bench.broker.port, topic, batch, transactions)
    levels = zip(FETCH, (frames.READ_UNCOMMITTED, frames.READ_COMMITTED), strict=True)
    loads = {key: _fetches(topic, transactions, len(batch), level) for key, level in levels}
    for load in loads.values():
        _warm_up(stage, load)
    _measure_in_turns(stage, FETCH, loads)


def _fill(port: int, topic: Topic, batch: bytes, transactions: int) -> None:
    """So many transactions, each with a batch in every partition."""
    who = transaction_frames.begin(port, "filling")
    ports = dict.fromkeys(range(topic.partitions), port)
    steps = [
        transaction_frames.add_partitions(who, topic.name, range(topic.partitions)),
        transaction_frames.produce(who, topic.name, dict.fromkeys(ports, batch), RECORDS_OF_16_KIB, ports),
        transaction_frames.end(who, lambda number: number % _ABORTED != 0),
    ]
    run_transactions(TransactionLoad([steps], 0, 0, _FILL_PAUSE_S, total=transactions))


def _fetches(topic: Topic, transactions: int, batch_bytes: int, level: int) -> Load:
    """Fetches at the beginnings of transactions. Each has the records of one batch in every partition, and a marker."""
    chosen = random.Random(7)
    asked = []
    for at in range(_POSITIONS):
        offset = chosen.randrange(transactions - _READ_BATCHES) * (RECORDS_OF_16_KIB + 1)
        wanted = [Asked(at % _READ_PARTITIONS, offset, _READ_BATCHES * (batch_bytes + 128))]
        frame = frames.fetch_partitions(topic.name, topic.topic_id, wanted, isolation_level=level)
        asked.append(Prepared(frame, frames.fetch_error_offsets(), _READ_BATCHES * batch_bytes, is_shown=at < FETCH_CONNECTIONS))
    return Load(asked, FETCH_CONNECTIONS, IN_FLIGHT, 0, 0, discard_bodies=True)
