"""A topic that lives on a slow disk, and the one client that works on it: in a thread, until it is told that it is over.

It makes the topic, writes to it, reads, moves it, changes its configuration, deletes it and makes it anew under the same name. Since nobody
else works on it, it knows at any time what has to be there (`History`), at which offset.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Protocol
from zlib import crc32

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, Refused
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import builder as record_builder
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.reader import Record as ReadRecord
from ottla.protocol.records.reader import iter_records
from ottla.protocol.topic_partition import TopicPartition
from tests.soak import slow_requests as requests
from tests.support.admin_requests import a_topic
from tests.support.batches import a_batch
from tests.support.history import History, Place, Record, decode

PATIENCE_SECONDS = 120.0
BACKOFF_SECONDS = 0.01
ANSWER_SECONDS = 60.0
CODECS = ("none", "none", "gzip", "snappy", "lz4", "zstd")
KEYS = 20
FIRST_PRODUCER_ID = 1_000_000
STEPS = {"write": 14, "read": 3, "delete_records": 1, "move": 2, "reassign": 1, "configure": 2, "check": 1, "recreate": 1}
"""How often each is done, in proportion."""

MAY_CHANGE: Mapping[str, Sequence[str]] = {
    "cleanup.policy": ("compact", "delete", "compact,delete"),
    "min.cleanable.dirty.ratio": ("0.01",),
    "retention.bytes": ("-1", "2000", "0"),
    "retention.ms": ("-1", "1", "200"),
    "flush.ms": ("1", "30", "100000"),
    "flush.messages": ("1", "9", "1000000"),
    "file.delete.delay.ms": ("0", "1", "100"),
    "compression.type": ("producer", "zstd", "lz4"),
    "segment.ms": ("10", "100", "100000"),
    "max.compaction.lag.ms": ("1", "100000000"),
}


class Over(Exception):
    """Somebody else found something wrong: no need to go on."""


class Round(Protocol):
    """What a topic is a part of."""

    bootstrap: str
    broker_ids: Sequence[int]
    log_dirs: Mapping[int, Sequence[Path]]
    is_calm: bool
    """No broker goes."""
    is_over: bool
    has_failed: bool

    def fail(self, reason: str) -> None:
        """Something is wrong."""


def key_of(record: Record) -> bytes:
    """Who reads a record knows what its key was."""
    return b"key-%d" % (crc32(record.encode()) % KEYS)


def code_of(error: ClientError) -> ErrorCode:
    """What a question ended with: nobody has to answer, but who does has to answer in time."""
    if isinstance(error, Refused):
        return error.code
    return ErrorCode.UNKNOWN_SERVER_ERROR if "did not answer in time" in str(error) else ErrorCode.NETWORK_EXCEPTION


class Life:
    """What was done to a topic between its creation and its deletion."""

    def __init__(self, name: str, topic_id: bytes, partitions: int, configs: Mapping[str, str]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions
        self.history = History()
        self.ends = dict.fromkeys(range(partitions), 0)
        """Where the next record has to be."""
        self.deleted: Counter[int] = Counter()
        """Up to where DeleteRecords was to go."""
        self.sequences: Counter[tuple[int, int]] = Counter()
        """By partition and producer id."""
        self.may_expire = False
        self._places: dict[tuple[int, bytes], list[Place]] = defaultdict(list)
        self.policy = ""
        self.configure(configs)

    def configure(self, configs: Mapping[str, str]) -> None:
        """These are about to be in force."""
        self.policy = configs.get("cleanup.policy", self.policy) or "delete"
        self.is_compacted = getattr(self, "is_compacted", False) or "compact" in self.policy
        self.may_expire |= any(name in ("retention.ms", "retention.bytes") and value != "-1" for name, value in configs.items())
        if self.is_compacted:
            for places in self._places.values():
                self.history.may_be_gone(places[:-1])

    def records(self, partition: int, count: int) -> list[Record]:
        """The next ones, which are about to be sent."""
        found = [Record(f"{self.name}-{partition}", self.ends[partition] + at) for at in range(count)]
        for record in found:
            self.history.sent(record, partition)
            if self.is_compacted:
                self.history.may_be_gone(self._places[partition, key_of(record)])
        return found

    def acknowledged(self, partition: int, records: Sequence[Record], base_offset: int, *, was_sent_again: bool = False) -> None:
        """Raises AssertionError when they do not follow the last ones."""
        end = self.ends[partition]
        if was_sent_again and base_offset > end and (self.may_expire or self.deleted[partition]):
            # Written before a stop, and all there was deleted: a log that begins empty knows no producers, as that of Apache Kafka.
            self.history.may_be_gone(Place(partition, at) for at in range(end, base_offset))
            end = base_offset
        assert base_offset == end, f"{self.name}-{partition}: written at offset {base_offset} where {end} was to come"
        for offset, record in enumerate(records, end):
            place = Place(partition, offset)
            self.history.acknowledged(record, place)
            places = self._places[partition, key_of(record)]
            places.append(place)
            if self.is_compacted:
                self.history.may_be_gone(places[:-1])
        self.ends[partition] = end + len(records)

    def starts_at(self, partition: int, offset: int) -> None:
        """What is before this was deleted; as far as it was to be, that is as it should."""
        allowed = offset if self.may_expire else min(offset, self.deleted[partition])
        self.history.may_be_gone(Place(partition, at) for at in range(allowed))


class SlowTopic(threading.Thread):
    """See the module."""

    def __init__(self, round: Round, number: int, seed: int) -> None:
        super().__init__(name=f"topic-{number}", daemon=True)
        self.topic = f"t{number}"
        self.counts: Counter[str] = Counter()
        self.life: Life | None = None
        self._round = round
        self._random = Random(seed)
        self._client = Cluster(round.bootstrap, timeout_seconds=ANSWER_SECONDS)
        self._former: set[bytes] = set()
        self._producer_id = FIRST_PRODUCER_ID
        self._readings = 0

    def run(self) -> None:
        """Steps until it is over."""
        try:
            while not self._round.is_over:
                self._step()
        except Over:
            pass
        except Exception:
            self._round.fail(f"{self.topic}:\n{traceback.format_exc()}")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _step(self) -> None:
        if self.life is None:
            self.life = self._create()
            return
        (name,) = self._random.choices(list(STEPS), list(STEPS.values()))
        self.counts[name] += 1
        getattr(self, name)(self.life)

    # ---- asking

    def _again(
        self, what: str, ask: Callable[[], Any], fine: Sequence[ErrorCode] = (ErrorCode.NONE,), passing: Sequence[ErrorCode] = ()
    ) -> Any:
        """The answer to the first question that is answered with one of `fine`. Raises AssertionError for an error that does not pass."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                found = ask()
                code, reason = ErrorCode.of(found.error_code), f"{ErrorCode.of(found.error_code).name}: {found}"
                if code in fine:
                    return found
            except ClientError as error:
                code, reason = code_of(error), str(error)
            assert code.retriable or code in passing, f"{what}: {reason}"
            self.counts[f"again: {code.name}"] += 1
            if self._round.is_over and self._round.has_failed:
                raise Over
            assert time.monotonic() < deadline, f"{what}: after {PATIENCE_SECONDS} s still {reason}"
            self._client.forget(self.topic)
            time.sleep(BACKOFF_SECONDS)

    # ---- steps

    def _create(self) -> Life:
        random = self._random
        partitions = random.choice([1, 1, 2, 5])
        replicas = random.randint(1, min(3, len(self._round.broker_ids)))
        configs = self._first_configs(replicas)

        def ask() -> Any:
            found = requests.create(self._client, a_topic(self.topic, partitions, replicas, configs=configs))
            return self._known(partitions) if found.error_code == ErrorCode.TOPIC_ALREADY_EXISTS else found

        # Too few brokers may be there at the moment, and the topic that was deleted may still be going.
        self._again("create", ask, passing=(ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.TOPIC_ALREADY_EXISTS))
        found = self._again("the new topic", lambda: self._known(partitions))
        self._former.add(found.topic_id)
        self.counts["created"] += 1
        return Life(self.topic, found.topic_id, partitions, configs)

    def _known(self, partitions: int) -> Any:
        """The topic of now with leaders of all partitions, or an error that passes."""
        found = requests.describe(self._client, self.topic)
        if not found.error_code:
            is_old = found.topic_id in self._former or len(found.partitions) != partitions
            if is_old or any(each.error_code for each in found.partitions):
                found.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        return found

    def _first_configs(self, replicas: int) -> dict[str, str]:
        random = self._random
        found = {
            "min.insync.replicas": str(random.randint(1, min(2, replicas))),
            "segment.bytes": random.choice(["2300", "4000", "20000"]),
            "file.delete.delay.ms": random.choice(["0", "1", "20", "300"]),
            "retention.ms": "-1",
            "index.interval.bytes": random.choice(["10", "200", "4096"]),
        }
        for chance, name, values in (
            (0.3, "message.timestamp.type", ["LogAppendTime"]),
            (0.5, "flush.messages", ["1", "7", "50"]),
            (0.6, "flush.ms", ["1", "20"]),
            (0.2, "segment.ms", ["5", "50"]),
            (0.3, "preallocate", ["true"]),
            (0.3, "cleanup.policy", ["compact", "compact,delete"]),
            (0.3, "min.cleanable.dirty.ratio", ["0.01"]),
        ):
            if random.random() < chance:
                found[name] = random.choice(values)
        return found

    def recreate(self, life: Life) -> None:
        """Delete it; the next step makes it anew."""
        self._again("delete", lambda: requests.delete(self._client, self.topic), (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        self.life = None

    def write(self, life: Life) -> None:
        """Some batches."""
        for _ in range(self._random.choice([1, 3, 10, 30])):
            self._write_batch(life)

    def _write_batch(self, life: Life) -> None:
        random = self._random
        partition = random.randrange(life.partitions)
        records = life.records(partition, random.randint(1, 5))
        now = time.time_ns() // 1_000_000
        padded = random.choice([0, 60, 350])
        content = [record_builder.Record(at, now + at, key_of(each), each.encode(padded)) for at, each in enumerate(records)]
        producer_id = self._producer_id + random.randrange(4)
        sequence = life.sequences[partition, producer_id]
        batch = bytes(a_batch(content, random.choice(CODECS), producer_id=producer_id, base_sequence=sequence))
        name = TopicPartition(self.topic, partition)
        attempts = 0

        def ask() -> Any:
            nonlocal attempts
            attempts += 1
            return requests.produce(self._client, name, batch)

        found = self._again(
            f"write to {name}",
            ask,
            (ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        )
        if found.error_code:
            # Who has lost all of its records is forgotten; what it writes next has to begin with 0.
            assert life.may_expire or life.deleted[partition], f"write to {name}: {found}"
            self.counts["forgotten producers"] += 1
            self._producer_id += 10
            return
        life.acknowledged(partition, records, found.base_offset, was_sent_again=attempts > 1)
        life.sequences[partition, producer_id] += len(records)
        self.counts["batches"] += 1

    def read(self, life: Life) -> None:
        """One partition from anywhere."""
        partition = self._random.randrange(life.partitions)
        found = self._read(life, partition, self._random.randint(0, life.ends[partition]))
        self._tell(life, partition, self._next_reading(), found or [])

    def check(self, life: Life) -> None:
        """All there is. Raises AssertionError with what is wrong."""
        reading = self._next_reading()
        for partition in range(life.partitions):
            found = None
            while found is None:  # retention was faster
                start = self._offset(partition, requests.EARLIEST)
                life.starts_at(partition, start)
                end = self._offset(partition, requests.LATEST)
                assert end == life.ends[partition], f"{self.topic}-{partition}: ends at {end}, not {life.ends[partition]}"
                found = self._read(life, partition, start)
            self._tell(life, partition, reading, found)
        life.history.came_to_the_end(reading)
        violations = life.history.violations()
        assert not violations, "\n".join([f"{len(violations)} violations in {self.topic}", *violations[:20]])

    def _next_reading(self) -> str:
        self._readings += 1
        return f"reading {self._readings}"

    def _offset(self, partition: int, timestamp: int) -> int:
        name = TopicPartition(self.topic, partition)
        return int(self._again(f"offset of {name}", lambda: requests.offset(self._client, name, timestamp)).offset)

    def _read(self, life: Life, partition: int, start: int) -> list[ReadRecord] | None:
        """From `start` to the end; None when there is nothing at an offset on the way any more."""
        name = TopicPartition(self.topic, partition)
        records: list[ReadRecord] = []
        offset, end = start, life.ends[partition]
        deadline = time.monotonic() + PATIENCE_SECONDS
        while offset < end:
            size = self._random.choice([500, 5_000, 1 << 20])
            found = self._again(
                f"read {name} from {offset}",
                lambda offset=offset, size=size: requests.fetch(self._client, name, offset, size),
                (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE),
            )
            if found.error_code:
                return None
            data = bytes(found.records or b"")
            if not data and found.high_watermark >= end:
                break  # the rest was compacted, or is lost: the history knows
            before = offset
            for at, header in iter_batches(data):
                offset = max(offset, header.next_offset)
                records += [record for record in iter_records(data, at, header) if record.offset >= before]
            assert offset > before or time.monotonic() < deadline, f"read {name}: nothing comes from {offset} on"
        return records

    def _tell(self, life: Life, partition: int, reading: str, records: Sequence[ReadRecord]) -> None:
        for record in records:
            known = decode(record.value or b"")
            assert key_of(known) == record.key, f"{self.topic}-{partition}: {known} has the key {record.key!r}"
            life.history.polled(reading, known, Place(partition, record.offset))
        self.counts["records read"] += len(records)

    def delete_records(self, life: Life) -> None:
        """Up to anywhere."""
        if "delete" not in life.policy:
            return
        partition = self._random.randrange(life.partitions)
        before = self._random.randint(0, life.ends[partition])
        life.deleted[partition] = max(life.deleted[partition], before)
        fine = (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.POLICY_VIOLATION)
        name = TopicPartition(self.topic, partition)
        self._again(f"delete records of {name}", lambda: requests.delete_records(self._client, name, before), fine)

    def move(self, life: Life) -> None:
        """Some partitions, on one broker, to whatever directory."""
        broker_id = self._random.choice(self._round.broker_ids)
        for partition in range(life.partitions):
            if self._random.random() < 0.7:
                log_dir = str(self._random.choice(self._round.log_dirs[broker_id]))
                name = TopicPartition(self.topic, partition)
                self._once(lambda name=name, log_dir=log_dir: requests.move(self._client, broker_id, name, log_dir))

    def reassign(self, life: Life) -> None:
        """One partition to other brokers.

        Only where brokers stay: who is away when its replica goes elsewhere, or is to be told of it by a controller that dies, keeps the
        log as a stray, which is in the way of the next topic of that name for a while.
        """
        if len(self._round.broker_ids) == 1 or not self._round.is_calm:
            return
        partition = TopicPartition(self.topic, self._random.randrange(life.partitions))
        replicas = self._random.sample(self._round.broker_ids, self._random.randint(1, 3))
        self._once(lambda: requests.reassign(self._client, partition, replicas), (ErrorCode.INVALID_REPLICA_ASSIGNMENT,))

    def _once(self, ask: Callable[[], Any], fine: Sequence[ErrorCode] = ()) -> None:
        """Whether it is done or not; but nothing unheard of."""
        try:
            code = ErrorCode.of(ask().error_code)
        except ClientError as error:
            code = code_of(error)
        assert code == ErrorCode.NONE or code.retriable or code in fine, code.name

    def configure(self, life: Life) -> None:
        """One key."""
        name = self._random.choice(list(MAY_CHANGE))
        configs = {name: self._random.choice(MAY_CHANGE[name])}
        life.configure(configs)
        self._again("configure", lambda: requests.configure(self._client, self.topic, configs))
