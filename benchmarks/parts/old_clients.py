"""Measures what clients of before 2017 get, whose records are converted, and what a client of today gets beside them.

The old clients send Produce 2 with messages of format 1, and Fetch 3 from a log of format 2. Beside a client of today both send at a fixed
rate, so that every broker has the same work.
"""

import os
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.loadgen.runner import Load, Measured
from benchmarks.loads import frames, workloads
from benchmarks.loads.admin import Topic
from benchmarks.loads.batches import batch_of_values, values_like_text
from benchmarks.loads.frames import Asked
from benchmarks.loads.workloads import FETCH_CONNECTIONS, IN_FLIGHT, PRODUCE_CONNECTIONS
from benchmarks.parts.part import BROKER_LABELS, Part, running
from benchmarks.report.lines import Line, latency_of, number
from benchmarks.turns.sizes import Pace, Size
from benchmarks.turns.turn import Bench, OnInterval, Plan, Turn
from tests.support.old_messages import Old
from tests.support.old_messages import messages as message_set

_PRODUCE_VERSION, _FETCH_VERSION, _MAGIC = 2, 3, 1
_RECORDS = 150
_VALUE_BYTES = 100
_MESSAGE_BYTES = 34 + _VALUE_BYTES
_FETCH_BYTES = 64 * 1024
_FETCH_POSITIONS = 256
_OLD_RATE, _NEW_RATE = 20, 1000
"""Requests a second where an old client and one of today share the broker."""
_PERCENTS = (50, 99)
_NEW = workloads.Produce("new", f"produce 16 KiB at {_NEW_RATE:,} req/s", workloads.batch_of_16_kib("none"), rate=_NEW_RATE)
_BESIDE = {"alone": "alone", "old-produce": "beside Produce 2", "old-fetch": "beside Fetch 3"}


def take_turn(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
    """One broker on one core: the old clients alone, then a client of today alone and beside each."""
    pace = plan.size.pace
    with running(kind, turn, directory, plan) as bench:
        bench.on_topic("warm-up", PRODUCE_CONNECTIONS, lambda topic: bench.warm_up(workloads.warm_up(topic, pace.warm_up_slice_s)))
        bench.on_topic("old", PRODUCE_CONNECTIONS, partial(_measure, bench))


def _measure(bench: Bench, topic: Topic) -> None:
    pace = bench.plan.size.pace
    batches = _prefill(bench, topic)
    loads = {"old-produce": _produce(topic, pace), "old-fetch": _fetch(topic, batches, pace)}
    for key, load in loads.items():
        bench.warm_up(replace(load, warm_up_s=0, duration_s=pace.warm_up_slice_s))
        measured = bench.measure(key, key, load)
        records = measured.responses * _RECORDS if key == "old-produce" else measured.bytes_received / _MESSAGE_BYTES
        bench.turn.numbers[key] = records / measured.window_s
        bench.say(f"{key}: {bench.turn.numbers[key]:,.0f} records/s")
    steady = replace(pace, duration_s=bench.plan.size.steady_s, max_bytes=0)
    bench.on_topic("new", PRODUCE_CONNECTIONS, partial(_measure_new, bench, loads, steady))


def _measure_new(bench: Bench, loads: dict[str, Load], pace: Pace, topic: Topic) -> None:
    """The latency of a client of today: alone, and while an old client works."""
    new = _NEW.load(topic, pace)
    for key, title in _BESIDE.items():
        os.sync()  # a faster broker has left more to the disk, and would wait for it in this window
        if key not in loads:
            bench.measure(f"new-{key}", f"{_NEW.title}, {title}", new)
            continue
        bench.measure(f"new-{key}", f"{_NEW.title}, {title}", new, run=partial(_window_beside, bench, loads[key]))


def _window_beside(bench: Bench, old: Load, new: Load, on_interval: OnInterval) -> Measured:
    """The old client begins with the warm-up of the other, and ends after its window. Both generators share a core."""
    beside = replace(old, rate=_OLD_RATE, rests=True, warm_up_s=0, duration_s=2 * new.warm_up_s + new.duration_s, max_bytes=0)
    with ThreadPoolExecutor(1) as old_client:
        working = old_client.submit(bench.load, beside)
        measured = bench.load(new, on_interval)
        working.result()
    return measured


def _prefill(bench: Bench, topic: Topic) -> int:
    """Fill every partition with batches of format 2. Returns their number in each."""
    batch = _batch()
    count = bench.plan.size.pace.prefill_bytes // topic.partitions // len(batch)
    sent = frames.produce_partitions(topic.name, dict.fromkeys(range(topic.partitions), batch))
    errors = frames.produce_error_offsets(topic.name, topic.partitions)
    bench.load(Load([sent], connections=1, in_flight=2, warm_up_s=0, duration_s=600, total=count, error_offsets=errors))
    return count


def _batch() -> bytes:
    return batch_of_values(values_like_text(_RECORDS, _VALUE_BYTES), int(time.time() * 1000))


def _produce(topic: Topic, pace: Pace) -> Load:
    now_ms = int(time.time() * 1000)
    messages = message_set(_MAGIC, [Old(at, now_ms, None, value) for at, value in enumerate(values_like_text(_RECORDS, _VALUE_BYTES))])
    return Load(
        frames=[frames.produce_partitions(topic.name, {at: messages}, version=_PRODUCE_VERSION) for at in range(topic.partitions)],
        connections=PRODUCE_CONNECTIONS,
        in_flight=IN_FLIGHT,
        warm_up_s=pace.warm_up_s,
        duration_s=pace.duration_s,
        max_bytes=pace.max_bytes,
        error_offsets=frames.produce_error_offsets(topic.name, version=_PRODUCE_VERSION),
    )


def _fetch(topic: Topic, batches: int, pace: Pace) -> Load:
    chosen = random.Random(7)
    last = batches - _FETCH_BYTES // len(_batch()) - 2  # so that every answer can be full
    asked = [Asked(at % topic.partitions, _RECORDS * chosen.randrange(max(last, 1)), _FETCH_BYTES) for at in range(_FETCH_POSITIONS)]
    return Load(
        frames=[frames.fetch_partitions(topic.name, topic.topic_id, [each], _FETCH_VERSION) for each in asked],
        connections=FETCH_CONNECTIONS,
        in_flight=IN_FLIGHT,
        warm_up_s=pace.warm_up_s,
        duration_s=pace.duration_s,
        error_offsets=frames.fetch_error_offsets(topic.name, _FETCH_VERSION),
        discard_bodies=True,
    )


def lines(_: Size) -> Sequence[Line]:
    return (
        Line("old-produce", "Produce 2, messages of format 1", "records/s", number("old-produce"), ratio_at_least=0.5),
        Line("old-fetch", "Fetch 3, from a log of format 2", "records/s", number("old-fetch"), ratio_at_least=0.5),
        *(
            Line(f"new-{key}-p{at}", f"{_NEW.title}, {title}: p{at}", "ms", latency_of(f"new-{key}", at), 2, True, 1 if at == 99 else None)
            for key, title in _BESIDE.items()
            for at in _PERCENTS
        ),
    )


PART = Part(
    key="old-clients",
    title="Clients of before 2017",
    about="One broker on one core. Old clients send message sets of 150 records of 100 bytes, and fetch 64 KiB; the broker converts both. "
    f"Then a client of today writes {_NEW_RATE:,} batches of 16 KiB a second, alone and beside {_OLD_RATE} requests a second of old ones. "
    "A window begins when all earlier data is written back.",
    take_turn=take_turn,
    lines=lines,
    kinds=BROKER_LABELS,
    is_repeated=True,
)
