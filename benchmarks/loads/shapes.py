"""Declares the shapes of requests that clients send: many partitions, versions, sessions, long names, and forty shapes at once.

A shape prepares what it needs on a broker and makes loads of it. Every answer is checked for the length of a good one, and the first answer
to one frame of each connection is decoded (`loadgen/answers.py`), so that errors in any partition fail the load.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import crc32c

from benchmarks.loadgen.prepared import TAKEN, Patch, Prepared, checksum_over, dealt
from benchmarks.loadgen.runner import Load
from benchmarks.loads import frames
from benchmarks.loads.admin import Topic
from benchmarks.loads.batches import COVERED_AT, CRC_AT, SEQUENCE_AT, Codec, batch_of_size, of_producer
from benchmarks.loads.frames import NEW_SESSION, Asked, Session
from benchmarks.loads.stage import CONTENTS, Stage, fetches
from benchmarks.loads.workloads import FETCH_CONNECTIONS, IN_FLIGHT, PRODUCE_CONNECTIONS, RECORDS_OF_16_KIB
from benchmarks.turns.sizes import Pace, Size
from tests.support.old_messages import Old
from tests.support.old_messages import messages as message_set

LoadMaker = Callable[[Pace], Load]
"""Makes a load that can be run once: an idempotent producer has an id of its own each time."""

FETCH_VERSIONS = (4, 11, 12, 17)
PRODUCE_VERSIONS = (3, 7, 9, 11)
STEADY_RATE = 8000
INTERVAL_S = 0.25
MIXED_CONNECTIONS = 40
_MIXED_LEAD = 64
_MIXED_SESSIONS = 2
_MIXED_PARTITIONS = 50
_ALL, _LEADER, _NONE = -1, 1, 0  # acks
_CODECS: Sequence[Codec] = ("none", "lz4", "snappy", "zstd", "gzip")
_FIRST_WITH_ZSTD = 7  # version of Produce
_NEWEST_PRODUCE, _NEWEST_FETCH = PRODUCE_VERSIONS[-1], FETCH_VERSIONS[-1]
_PRODUCE_OF_MESSAGES, _FETCH_OF_MESSAGES = 2, 3
_MESSAGE_BYTES = 100
_NAME_LENGTHS = (3, 38, 73, 108, 143, 178, 213, 249)  # one per connection; 249 is the longest that Kafka allows
_POSITIONS = 256  # different fetches of a load
_SESSION_CONNECTIONS = 8
_SESSION_BATCHES = 64  # of a partition with news


@dataclass(frozen=True, slots=True)
class Shape:
    """One line: `ratio_at_least` is the wanted ratio of its request rate to the reference's."""

    key: str
    title: str
    ratio_at_least: float
    prepare: Callable[[Stage], LoadMaker]


@dataclass(frozen=True, slots=True)
class Batches:
    """The contents of a Produce request: a batch of `records` records for each of `partitions` partitions."""

    partitions: int
    records: int
    batch_bytes: int

    def batch(self, codec: Codec = "none") -> bytes:
        """One batch, with the present time."""
        return batch_of_size(self.batch_bytes, self.records, int(time.time() * 1000), codec)


TEN = Batches(10, 10, 1131)
FIFTY = Batches(50, 2, 200)
ONE_LARGE = Batches(1, RECORDS_OF_16_KIB, 16 << 10)
ONE_RECORD = Batches(1, 1, 170)
ONE_LARGER = Batches(1, 600, 64 << 10)


# Produce


def produced(
    topic: str, batches: dict[int, bytes], *, version: int = _NEWEST_PRODUCE, acks: int = _ALL, patches: Sequence[Patch] = ()
) -> Prepared:
    """A Produce with one batch for each of these partitions."""
    return Prepared(
        frames.produce_partitions(topic, batches, acks, version),
        frames.produce_error_offsets(topic, len(batches), version),
        frames.produce_answer_bytes(topic, len(batches), version),
        patches=tuple(patches),
        is_answered=acks != _NONE,
        is_shown=acks != _NONE,
    )


def produced_idempotently(
    topic: str, batches: dict[int, bytes], producer_id: int, first_counter: int, *, records: int, version: int = _NEWEST_PRODUCE
) -> Prepared:
    """Like `produced`, by an idempotent producer, whose sequence numbers advance. A counter for each partition, from `first_counter` on."""
    numbered = {partition: of_producer(batch, producer_id) for partition, batch in batches.items()}
    unpatched = produced(topic, numbered, version=version)
    patches, at = [], 0
    for counter, batch in enumerate(numbered.values(), first_counter):
        at = unpatched.frame.index(batch, at)

        def crc(sequence: int, batch: bytes = batch) -> int:
            covered = bytearray(batch)
            covered[SEQUENCE_AT : SEQUENCE_AT + 4] = sequence.to_bytes(4, "big")
            return crc32c.crc32c(covered[COVERED_AT:])

        patches.append(Patch(at + SEQUENCE_AT, counter, 0, records, checksum_over(at + CRC_AT, crc)))
        at += len(batch)
    return replace(unpatched, patches=tuple(patches))


def _produce_many(key: str, batches: Batches) -> Callable[[Stage], LoadMaker]:
    """All connections write to all partitions of one topic."""

    def prepare(stage: Stage) -> LoadMaker:
        (topic,) = stage.topics([key], batches.partitions)
        sent = produced(topic.name, dict.fromkeys(range(batches.partitions), batches.batch()))
        return lambda pace: _produce_load(pace, [sent])

    return prepare


def _produce_version(key: str, version: int, *, is_idempotent: bool) -> Callable[[Stage], LoadMaker]:
    """Every connection writes to a topic of its own, with a name of another length."""

    def prepare(stage: Stage) -> LoadMaker:
        topics = stage.topics([(f"n{length}-{key}" * length)[:length] for length in _NAME_LENGTHS], 1)
        batch = ONE_LARGE.batch()

        def make(pace: Pace) -> Load:
            if not is_idempotent:
                return _produce_load(pace, [produced(topic.name, {0: batch}, version=version) for topic in topics])
            ids = stage.producer_ids(len(topics))
            numbered = [
                produced_idempotently(topic.name, {0: batch}, producer_id, at, records=ONE_LARGE.records, version=version)
                for at, (topic, producer_id) in enumerate(zip(topics, ids, strict=True))
            ]
            return _produce_load(pace, numbered)

        return make

    return prepare


def _produce_messages(stage: Stage) -> LoadMaker:
    """Clients of before 2017: as many messages of format 1 as a batch of 16 KiB has records, each connection to a partition of its own."""
    (topic,) = stage.topics(["old"], PRODUCE_CONNECTIONS)
    now_ms = int(time.time() * 1000)
    olds = [Old(number, now_ms, None, bytes(_MESSAGE_BYTES)) for number in range(ONE_LARGE.records)]
    messages = message_set(1, olds)
    sent = [produced(topic.name, {partition: messages}, version=_PRODUCE_OF_MESSAGES) for partition in range(topic.partitions)]
    return lambda pace: _produce_load(pace, sent)


def _produce_load(pace: Pace, sent: Sequence[Prepared]) -> Load:
    return Load(sent, PRODUCE_CONNECTIONS, IN_FLIGHT, pace.warm_up_s, pace.duration_s, max_bytes=pace.max_bytes)


# Fetch


def _fetch(contents: str, batches: int, version: int, *, at_start: bool = False, is_wide: bool = False) -> Callable[[Stage], LoadMaker]:
    """Fetches of a filled topic, outside of any session."""

    def prepare(stage: Stage) -> LoadMaker:
        asked = fetches(stage.stock(contents), _POSITIONS, batches, version=version, at_start=at_start, is_wide=is_wide)
        shown = [replace(each, is_shown=True) for each in asked[:FETCH_CONNECTIONS]]
        return lambda pace: _fetch_load(pace, [*shown, *asked[FETCH_CONNECTIONS:]])

    return prepare


def _fetch_load(pace: Pace, asked: Sequence[Prepared]) -> Load:
    return Load(asked, FETCH_CONNECTIONS, IN_FLIGHT, pace.warm_up_s, pace.duration_s, discard_bodies=True)


@dataclass(frozen=True, slots=True)
class _SessionTopic:
    """A topic of many partitions, of which the first have much more than the others."""

    topic: Topic
    ends: Sequence[int]
    batch_length: int


def _session_topic(stage: Stage) -> _SessionTopic:
    partitions, contents = stage.bench.plan.size.session_partitions, CONTENTS["2k"]
    topic, batch = stage.keep("session", partitions), contents.batch()
    stage.fill(topic, range(partitions), batch, 1)
    stage.fill(topic, range(2 * _SESSION_CONNECTIONS), batch, _SESSION_BATCHES)
    return _SessionTopic(topic, stage.ends(topic), len(batch))


def sessions(stage: Stage, connections: int) -> tuple[list[Prepared], list[list[Prepared]]]:
    """(the first request of each connection's session, its later requests). Every session has all partitions; two of them have news.

    A connection reads its own two partitions batch by batch, again and again; it has read all others to their ends.
    """
    found = stage.once("session", lambda: _session_topic(stage))
    opening, lists = [], []
    for at in range(connections):
        pair = (2 * at, 2 * at + 1)
        all_of_them = [Asked(each, 0 if each in pair else end, CONTENTS["2k"].batch_bytes) for each, end in enumerate(found.ends)]
        begun = frames.fetch_partitions(found.topic.name, found.topic.topic_id, all_of_them, session=NEW_SESSION)
        least, place = 2 * found.batch_length, frames.session_id_offset()
        opening.append(Prepared(begun, frames.fetch_error_offsets()[:1], least, takes=place, is_shown=True))
        lists.append([_continued(found, pair, step, at) for step in range(_SESSION_BATCHES)])
    return opening, lists


def _continued(found: _SessionTopic, pair: tuple[int, int], step: int, counter: int) -> Prepared:
    """A fetch of a session that names the two partitions whose offsets advanced."""
    contents = CONTENTS["2k"]
    asked = [Asked(each, step * contents.records, contents.batch_bytes) for each in pair]

    def make(session: Session) -> bytes:
        return frames.fetch_partitions(found.topic.name, found.topic.topic_id, asked, session=session)

    id_at, epoch_at = frames.session_offsets(make)
    patches = (Patch(id_at, TAKEN), Patch(epoch_at, counter, first=1))
    return Prepared(make(Session(0, 1)), frames.fetch_error_offsets(), 2 * found.batch_length, patches, is_shown=step == 0)


def _fetch_in_sessions(stage: Stage) -> LoadMaker:
    opening, lists = sessions(stage, _SESSION_CONNECTIONS)
    sent = dealt(lists)
    return lambda pace: Load(sent, _SESSION_CONNECTIONS, 1, pace.warm_up_s, pace.duration_s, discard_bodies=True, opening=opening)


# All at once


def _mixed(stage: Stage) -> LoadMaker:
    """Connections that each send another shape, with one request in flight; none gets far ahead of the others."""
    (topic,) = stage.topics(["mixed"], _MIXED_PARTITIONS)
    opening, in_session = sessions(stage, _MIXED_SESSIONS)
    fetched = _mixed_fetches(stage)
    numbers = range(MIXED_CONNECTIONS - len(in_session) - len(fetched))
    producers = [_MixedProducer(topic.name, number) for number in numbers]

    def make(pace: Pace) -> Load:
        ids = stage.producer_ids(len(producers))
        produced = [producer.sent(producer_id) for producer, producer_id in zip(producers, ids, strict=True)]
        return Load(
            dealt([*in_session, *fetched, *produced]),
            MIXED_CONNECTIONS,
            1,
            pace.warm_up_s,
            pace.duration_s,
            max_bytes=pace.max_bytes,
            discard_bodies=True,
            opening=opening,
            lead=_MIXED_LEAD,
        )

    return make


def _mixed_fetches(stage: Stage) -> list[list[Prepared]]:
    """The list of each connection that fetches outside of sessions: four shapes in different versions."""
    shapes = (("4k", 1, False), ("16k", 4, False), ("16k", 1, True), ("2k", 1, True))
    lists = []
    for seed, (contents, batches, is_wide) in enumerate(shapes):
        for version in FETCH_VERSIONS[seed % 2 :: 2] if is_wide else FETCH_VERSIONS:
            asked = fetches(stage.stock(contents), _SESSION_BATCHES, batches, version=version, is_wide=is_wide, seed=seed)
            lists.append([replace(asked[0], is_shown=True), *asked[1:]])
    return lists


class _MixedProducer:
    """Sends one shape of Produce; its number among the producers decides shape, version, acks and codec."""

    def __init__(self, topic: str, number: int) -> None:
        self._topic = topic
        self._number = number
        self._carried = (ONE_RECORD, ONE_LARGE, TEN, FIFTY, ONE_LARGER)[number % 5]
        codec = _CODECS[number // 5 % len(_CODECS)]
        version = PRODUCE_VERSIONS[number % 4]
        self._version = max(version, _FIRST_WITH_ZSTD) if codec == "zstd" else version
        self._acks = (_ALL, _LEADER, _NONE)[number % 3]
        first = number % (_MIXED_PARTITIONS - self._carried.partitions + 1)
        self._batches = dict.fromkeys(range(first, first + self._carried.partitions), self._carried.batch(codec))

    def sent(self, producer_id: int) -> list[Prepared]:
        """Requests in turns. Every other one with acks=all is idempotent; requests without an answer are followed by one with an answer."""
        if self._acks == _ALL and self._number % 2 == 0:
            counter = _MIXED_SESSIONS + self._number * _MIXED_PARTITIONS
            records = self._carried.records
            return [produced_idempotently(self._topic, self._batches, producer_id, counter, records=records, version=self._version)]
        if self._acks == _NONE:
            unanswered, answered = (produced(self._topic, self._batches, version=self._version, acks=acks) for acks in (_NONE, _LEADER))
            return [unanswered, unanswered, unanswered, answered]
        return [produced(self._topic, self._batches, version=self._version, acks=self._acks)]


# At a fixed rate


def _steady_produce(stage: Stage) -> LoadMaker:
    (topic,) = stage.topics(["steady"], PRODUCE_CONNECTIONS)
    batch = ONE_LARGE.batch()
    sent = [produced(topic.name, {partition: batch}) for partition in range(topic.partitions)]
    return lambda pace: replace(_produce_load(pace, sent), rate=STEADY_RATE, interval_s=INTERVAL_S, max_bytes=0)


def _steady_fetch(stage: Stage) -> LoadMaker:
    make = _fetch("16k", 4, _NEWEST_FETCH)(stage)
    return lambda pace: replace(make(pace), rate=STEADY_RATE, interval_s=INTERVAL_S)


# The catalogue

MANY = (
    Shape("produce-10x10", "produce, 10 partitions of 10 records", 3, _produce_many("produce-10x10", TEN)),
    Shape("produce-50x2", "produce, 50 partitions of 2 records", 1.5, _produce_many("produce-50x2", FIFTY)),
    Shape("fetch-10x16k", "fetch, 10 partitions of 16 KiB", 2.5, _fetch("16k", 1, _NEWEST_FETCH, is_wide=True)),
    Shape("fetch-50x2k", "fetch, 50 partitions of 2 KiB", 3, _fetch("2k", 1, _NEWEST_FETCH, is_wide=True)),
)
FETCH_GROUPS = {
    f"fetch-{size}{place}": [f"fetch-{size}-v{version}{place}" for version in FETCH_VERSIONS]
    for size in ("4k", "64k")
    for place in ("", "-start")
}
"""Shapes of Fetch that differ by nothing but the version."""
FETCH_BY_VERSION = tuple(
    Shape(
        f"fetch-{size}-v{version}{'-start' if at_start else ''}",
        f"fetch, {size[:-1]} KiB, v{version}, {'at the beginning of a segment' if at_start else 'at random offsets'}",
        2.5,
        _fetch(contents, batches, version, at_start=at_start),
    )
    for size, contents, batches in (("4k", "4k", 1), ("64k", "16k", 4))
    for at_start in (False, True)
    for version in FETCH_VERSIONS
)
PRODUCE_BY_VERSION = tuple(
    Shape(
        f"produce-16k-v{version}{'-idempotent' if is_idempotent else ''}",
        f"produce, 16 KiB, v{version}, names of 3 to 249 bytes{', idempotent' if is_idempotent else ''}",
        3,
        _produce_version(f"v{version}", version, is_idempotent=is_idempotent),
    )
    for version in PRODUCE_VERSIONS
    for is_idempotent in (False, True)
)
OLD = (
    Shape("produce-messages-v2", "produce, messages of format 1 as in 16 KiB, v2", 0.5, _produce_messages),
    Shape("fetch-64k-v3", "fetch, 64 KiB, v3, converted to messages of format 1", 0.5, _fetch("16k", 4, _FETCH_OF_MESSAGES)),
)
"""Shapes of clients that know message format 1 only."""
MIXED = Shape("mixed", f"mixed, {MIXED_CONNECTIONS} connections, each another shape", 2, _mixed)
STEADY = (
    Shape("steady-produce", f"produce 16 KiB at {STEADY_RATE:,} req/s", 1, _steady_produce),
    Shape("steady-fetch", f"fetch 64 KiB at {STEADY_RATE:,} req/s", 1, _steady_fetch),
)


def in_sessions(size: Size) -> Shape:
    """Fetches in sessions of so many partitions."""
    title = f"fetch, session of {size.session_partitions:,} partitions, two with news"
    return Shape("fetch-session", title, 5, _fetch_in_sessions)


def closed_loops(size: Size) -> Sequence[Shape]:
    """All shapes that are sent as fast as they are answered."""
    return (*MANY, in_sessions(size), *FETCH_BY_VERSION, *PRODUCE_BY_VERSION, *OLD, MIXED)
