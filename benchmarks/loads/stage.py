"""Makes the topics that loads need on a broker: topics of one load, which are deleted after it, and topics that many loads read."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from benchmarks.loadgen.prepared import Prepared
from benchmarks.loadgen.runner import Load
from benchmarks.loads import frames
from benchmarks.loads.admin import NOTHING, Admin, Topic
from benchmarks.loads.batches import batch_of_size
from benchmarks.loads.frames import Asked
from benchmarks.turns.sizes import Pace
from benchmarks.turns.turn import Bench

Made = TypeVar("Made")
_SEGMENT_BYTES = 4 << 20
_PREFILL_S = 600


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a topic that loads read: batches of one size in every partition."""

    partitions: int
    batch_bytes: int
    records: int

    def batch(self) -> bytes:
        """One of them."""
        return batch_of_size(self.batch_bytes, self.records, int(time.time() * 1000))


CONTENTS: Mapping[str, Contents] = {
    "2k": Contents(50, 2 << 10, 18),
    "4k": Contents(4, 4 << 10, 37),
    "16k": Contents(10, 16 << 10, 150),
}


@dataclass(frozen=True, slots=True)
class Stock:
    """A topic that has been filled. `segments` has, of every partition, the first offset and the batches of each segment."""

    topic: Topic
    contents: Contents
    batch_length: int
    segments: Sequence[Sequence[tuple[int, int]]]

    def at_random(self, chosen: random.Random, partition: int, batches: int) -> int:
        """A random offset from which the same segment has `batches` batches, counting the one that contains it."""
        base, there = chosen.choice([each for each in self.segments[partition] if each[1] >= batches])
        return base + chosen.randrange((there - batches) * self.contents.records + 1)

    def at_start(self, chosen: random.Random, partition: int, batches: int) -> int:
        """The first offset of a random segment that has `batches` batches."""
        return chosen.choice([base for base, there in self.segments[partition] if there >= batches])


class Stage:
    """The topics of a broker under load."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._own: list[str] = []
        self._kept: dict[str, Any] = {}

    @property
    def pace(self) -> Pace:
        return self.bench.plan.size.pace

    def topics(self, names: Sequence[str], partitions: int, config: Mapping[str, str] = NOTHING) -> list[Topic]:
        """New topics, until `clear`. Raises BrokerRefusedError."""
        with self._admin() as admin:
            made = admin.create_topics(names, partitions, config)
        self._own += names
        return made

    def clear(self) -> None:
        """Delete the topics of the last load, and wait until their files are gone. Raises BrokerRefusedError."""
        names, self._own = self._own, []
        with self._admin() as admin:
            for name in names:
                admin.delete_topic(name)
        for name in names:
            self.bench.until_deleted(name)

    def keep(self, name: str, partitions: int, config: Mapping[str, str] = NOTHING) -> Topic:
        """A new topic that stays. Raises BrokerRefusedError."""
        with self._admin() as admin:
            return admin.create_topics([name], partitions, config)[0]

    def once(self, key: str, make: Callable[[], Made]) -> Made:
        """The result of `make` from the first call with this key."""
        if key not in self._kept:
            self._kept[key] = make()
        found: Made = self._kept[key]
        return found

    def stock(self, key: str) -> Stock:
        """The topic with the entry `key` of CONTENTS, filled on first use. Raises BrokerRefusedError, LoadFailedError."""
        return self.once(f"stock-{key}", lambda: self._filled(f"stock-{key}", CONTENTS[key]))

    def producer_ids(self, count: int) -> list[int]:
        """New ones. Raises BrokerRefusedError."""
        with self._admin() as admin:
            return [admin.producer_id() for _ in range(count)]

    def ends(self, topic: Topic) -> list[int]:
        """The log end offset of every partition. Raises BrokerRefusedError."""
        with self._admin() as admin:
            return admin.ends(topic)

    def fill(self, topic: Topic, partitions: Sequence[int], batch: bytes, times: int) -> None:
        """Append a batch at least `times` times to these partitions. Raises LoadFailedError."""
        frame = frames.produce_partitions(topic.name, dict.fromkeys(partitions, batch))
        prepared = Prepared(frame, frames.produce_error_offsets(topic.name, len(partitions)), is_shown=True)
        self.bench.load(Load([prepared], connections=1, in_flight=2, warm_up_s=0, duration_s=_PREFILL_S, total=times))

    def _filled(self, name: str, contents: Contents) -> Stock:
        topic = self.keep(name, contents.partitions, {"segment.bytes": str(_SEGMENT_BYTES)})
        batch = contents.batch()
        times = self.pace.prefill_bytes // len(CONTENTS) // contents.partitions // contents.batch_bytes
        self.fill(topic, range(contents.partitions), batch, times)
        ends = self.ends(topic)
        segments = []
        for partition, end in enumerate(ends):
            bases = [*self.bench.segments(name, partition), end]
            segments.append([(base, (after - base) // contents.records) for base, after in pairwise(bases)])
        return Stock(topic, contents, len(batch), segments)

    def _admin(self) -> Admin:
        return Admin("127.0.0.1", self.bench.broker.port)


def fetches(
    stock: Stock, count: int, batches: int, *, version: int, at_start: bool = False, is_wide: bool = False, seed: int = 7
) -> list[Prepared]:
    """Fetches of `batches` batches each, at different offsets; with `is_wide` of all partitions at once, otherwise of each in turn."""
    chosen = random.Random(seed)
    max_bytes = batches * stock.contents.batch_bytes
    offset = stock.at_start if at_start else stock.at_random
    topic = stock.topic
    made = []
    for at in range(count):
        partitions = range(topic.partitions) if is_wide else [at % topic.partitions]
        asked = [Asked(partition, offset(chosen, partition, batches), max_bytes) for partition in partitions]
        made.append(
            Prepared(
                frames.fetch_partitions(topic.name, topic.topic_id, asked, version),
                frames.fetch_error_offsets(topic.name, version),
                least_answer_bytes=len(asked) * batches * stock.batch_length,
            )
        )
    return made
