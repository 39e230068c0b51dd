"""Defines the loads of a single-broker run: their requests, connections and frames.

Eight connections with two requests in flight produce, four fetch. Every produce connection has its own partition, as clients have after a
rebalance; batches are made once, so the generator only copies headers.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.loadgen.runner import Load
from benchmarks.loads import frames
from benchmarks.loads.admin import Topic
from benchmarks.loads.batches import Codec, batch_of_size, batch_of_values, values_like_text
from benchmarks.turns.sizes import Pace

PRODUCE_CONNECTIONS = 8
FETCH_CONNECTIONS = 4
IN_FLIGHT = 2
STEADY_RATE = 8000
RECORDS_OF_16_KIB = 150
PREFILL_BATCH_BYTES = 16 * 1024
_FETCH_POSITIONS = 1024  # different offsets, dealt to the connections


@dataclass(frozen=True, slots=True)
class Produce:
    """One load of Produce requests. `batch` makes the batch for a create time in ms."""

    key: str
    title: str
    batch: Callable[[int], bytes]
    rate: float = 0.0

    def load(self, topic: Topic, pace: Pace) -> Load:
        batch = self.batch(int(time.time() * 1000))
        return Load(
            frames=[frames.produce(topic.name, partition, batch) for partition in range(topic.partitions)],
            connections=PRODUCE_CONNECTIONS,
            in_flight=IN_FLIGHT,
            warm_up_s=pace.warm_up_s,
            duration_s=pace.duration_s,
            rate=self.rate,
            max_bytes=pace.max_bytes,
            error_offsets=frames.produce_error_offsets(topic.name),
        )


@dataclass(frozen=True, slots=True)
class Fetch:
    """One load of Fetch requests of up to `max_bytes` at random offsets of prefilled partitions."""

    key: str
    title: str
    max_bytes: int
    rate: float = 0.0

    def load(self, topic: Topic, pace: Pace) -> Load:
        chosen = random.Random(7)
        batches = pace.prefill_bytes // topic.partitions // PREFILL_BATCH_BYTES
        last = batches - self.max_bytes // PREFILL_BATCH_BYTES - 2  # so that every answer can be full
        asked = [
            frames.fetch(topic.topic_id, i % topic.partitions, RECORDS_OF_16_KIB * chosen.randrange(last), self.max_bytes)
            for i in range(_FETCH_POSITIONS)
        ]
        return Load(
            frames=asked,
            connections=FETCH_CONNECTIONS,
            in_flight=IN_FLIGHT,
            warm_up_s=pace.warm_up_s,
            duration_s=pace.duration_s,
            rate=self.rate,
            error_offsets=frames.fetch_error_offsets(),
            discard_bodies=True,
        )


def prefill(topic: Topic, partition: int, pace: Pace) -> Load:
    """Fills one partition with its share of `prefill_bytes`."""
    batch = batch_of_16_kib("none")(int(time.time() * 1000))
    return Load(
        frames=[frames.produce(topic.name, partition, batch)],
        connections=1,
        in_flight=8,
        warm_up_s=0,
        duration_s=600,
        total=pace.prefill_bytes // topic.partitions // PREFILL_BATCH_BYTES,
        error_offsets=frames.produce_error_offsets(topic.name),
    )


def batch_of_16_kib(codec: Codec) -> Callable[[int], bytes]:
    return lambda now_ms: batch_of_size(PREFILL_BATCH_BYTES, RECORDS_OF_16_KIB, now_ms, codec)


PRODUCE: Sequence[Produce] = (
    Produce("produce-1", "produce, 1 record of 100 B", lambda now_ms: batch_of_values(values_like_text(1, 100), now_ms)),
    Produce("produce-16k", "produce, 16 KiB batch of 150 records", batch_of_16_kib("none")),
    Produce("produce-16k-lz4", "produce, the same batch as lz4", batch_of_16_kib("lz4")),
    Produce("produce-16k-snappy", "produce, the same batch as snappy", batch_of_16_kib("snappy")),
    Produce("produce-16k-zstd", "produce, the same batch as zstd", batch_of_16_kib("zstd")),
    Produce("produce-16k-gzip", "produce, the same batch as gzip", batch_of_16_kib("gzip")),
    Produce("produce-1m", "produce, 1 MB batch of 9,600 records", lambda now_ms: batch_of_size(1 << 20, 9600, now_ms)),
    Produce("steady", f"produce 16 KiB at a steady {STEADY_RATE:,} req/s", batch_of_16_kib("none"), rate=STEADY_RATE),
)
FETCH: Sequence[Fetch] = (
    Fetch("fetch-64k", "fetch, 64 KiB", 64 * 1024),
    Fetch("fetch-1m", "fetch, 1 MiB", 1 << 20),
)
LOADS: Sequence[Produce | Fetch] = (*PRODUCE, *FETCH)


def warm_up(topic: Topic, seconds: float) -> Load:
    """Every shape of batch but the largest, in turns, before anything is measured. Needs a partition per connection."""
    now_ms = int(time.time() * 1000)
    batches = [batch for produce in PRODUCE if not produce.rate and len(batch := produce.batch(now_ms)) <= PREFILL_BATCH_BYTES]
    return Load(
        frames=[frames.produce(topic.name, partition, batch) for batch in batches for partition in range(topic.partitions)],
        connections=PRODUCE_CONNECTIONS,
        in_flight=IN_FLIGHT,
        warm_up_s=0,
        duration_s=seconds,
        error_offsets=frames.produce_error_offsets(topic.name),
    )
