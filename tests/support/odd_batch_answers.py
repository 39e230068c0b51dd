"""Sends batches to a broker, and compares what two brokers made of them.

`python -m tests.support.odd_batch_answers HOST_PORT FILE` records the answers of a broker to `odd_batches.kinds()`, and to the batches that
the recording in tests/golden/odd-batches.json calls given. Where Ottla is stricter than Apache Kafka on purpose, `explained` tells why two
answers differ (docs/differences.md, section "Record validation").
"""

import base64
import json
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.batch import CODEC_MASK, HEADER_SIZE, MAGIC_OFFSET, iter_batches, parse_header
from ottla.protocol.records.compression import decompressed
from ottla.protocol.records.errors import RecordFormatError
from tests.support.odd_batches import CODECS, kinds
from tests.support.wire_client import WireClient

GOLDEN = Path(__file__).parents[1] / "golden" / "odd-batches.json"
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "zstd": {"compression.type": "zstd"},
    "uncompressed": {"compression.type": "uncompressed"},
    "compacted": {"cleanup.policy": "compact"},
    "log-append-time": {"message.timestamp.type": "LogAppendTime"},
}
"""Topics of one partition, and how they are configured."""
_COMPACTED = {"cleanup.policy": "compact"}
_STAMPED = {"message.timestamp.type": "LogAppendTime"}
_LIMITED = {"message.timestamp.after.max.ms": "3600000", "message.timestamp.before.max.ms": "86400000"}
MORE_TOPICS: dict[str, dict[str, str]] = {
    "gzip": {"compression.type": "gzip"},
    "snappy": {"compression.type": "snappy"},
    "lz4": {"compression.type": "lz4"},
    "stamped-gzip": {**_STAMPED, "compression.type": "gzip"},
    "compacted-stamped": {**_COMPACTED, **_STAMPED},
    "compacted-stamped-uncompressed": {**_COMPACTED, **_STAMPED, "compression.type": "uncompressed"},
    "compacted-stamped-lz4": {**_COMPACTED, **_STAMPED, "compression.type": "lz4"},
    "compacted-stamped-zstd": {**_COMPACTED, **_STAMPED, "compression.type": "zstd"},
    "limited": _LIMITED,
    "limited-compacted-gzip": {**_LIMITED, **_COMPACTED, "compression.type": "gzip"},
    "small-uncompressed": {"max.message.bytes": "170", "compression.type": "uncompressed"},
}
"""Topics with several rules at once, for the recording of `tests.support.odder_batch_answers`."""
ALL_TOPICS = {**TOPICS, **MORE_TOPICS}
KEPT = {"retention.ms": "-1", "segment.ms": str(2**63 - 1), "min.compaction.lag.ms": str(2**63 - 1)}
"""Nothing is deleted, nor compacted, whatever times the records have."""
JAVA_HEAP_BYTES = 16 * 1024 * 1024
"""A part of what the broker in the tests has: it may have no room for a record of this size."""
UNKNOWN_SERVER_ERROR = -1
INVALID_RECORD = 87
_LIMITS = re.compile(r"within \[-?\d+, -?\d+\]")
_PREFIX = re.compile(r"in topic partition \S+-0")


class Answer(NamedTuple):
    """The answer of a broker to one batch. Numbers that depend on the clock are left out of the texts."""

    code: int
    message: str | None
    errors: tuple[tuple[int, str], ...]


def create_topics(bootstrap: str, prefix: str) -> None:
    """Make the topics, with this in front of their names."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    fresh = [NewTopic(prefix + name, 1, 1, config={**config, **KEPT}) for name, config in ALL_TOPICS.items()]
    for made in admin.create_topics(fresh).values():
        try:
            made.result(60)
        except KafkaException as error:
            raise AssertionError(str(error)) from error


def ask(client: WireClient, topic: str, batch: bytes) -> tuple[Answer, int]:
    """The answer to a Produce of one batch, and its offset, or -1."""
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
    answer = client.ask(ProduceRequest(transactional_id=None, acks=-1, timeout_ms=60_000, topic_data=data), 9)
    found: Any = answer.responses[0].partition_responses[0]
    errors = tuple((each.batch_index, _timeless(each.batch_index_error_message)) for each in found.record_errors or ())
    return Answer(found.error_code, found.error_message and _timeless(found.error_message), errors), found.base_offset


def _timeless(text: str) -> str:
    return _PREFIX.sub("in topic partition P", _LIMITS.sub("within [A, B]", text))


def stored(client: WireClient, topic: str) -> dict[int, bytes]:
    """All batches of the topic by their offsets, each from its magic on: what a leader never changes again."""
    found: dict[int, bytes] = {}
    offset = 0
    while True:
        partition = FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=1 << 24, current_leader_epoch=-1, last_fetched_epoch=-1
        )
        topics = [FetchTopic(topic=topic, partitions=[partition])]
        answer = client.ask(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 24, topics=topics, session_epoch=-1), 12)
        part: Any = answer.responses[0].partitions[0]
        assert part.error_code == 0
        records = bytes(part.records or b"")
        batches = [(at, header) for at, header in iter_batches(records) if header.base_offset >= offset]
        if not batches:
            return found
        found |= {header.base_offset: records[at + MAGIC_OFFSET : at + header.size] for at, header in batches}
        offset = batches[-1][1].next_offset


def explained(batch: bytes, topic: str, theirs: Answer, ours: Answer) -> str:
    """Why the answers may differ; empty if they may not. `theirs` is Apache Kafka's."""
    header = parse_header(batch)
    codec = header.attributes & CODEC_MASK
    data = b""
    is_damaged = False
    if codec:
        try:
            for piece in decompressed(codec, memoryview(batch)[HEADER_SIZE:]):
                data += piece
        except RecordFormatError:
            is_damaged = True
    else:
        data = batch[HEADER_SIZE:]
    body = batch[HEADER_SIZE:]
    if codec == 3 and ours.code == UNKNOWN_SERVER_ERROR and (body[4] & 0x0C or b"\0\0\0\x80" in body or b"\1\0\0\0\0" in body):
        return "the size, the checksum, an empty block or the end mark of an lz4 frame"
    if codec == 4 and ours.code == UNKNOWN_SERVER_ERROR and _JavaReader(data).read(header.record_count, skips=False) == "read":
        return "an incomplete zstd frame behind the records"
    if is_damaged and {theirs.code, ours.code} == {UNKNOWN_SERVER_ERROR, INVALID_RECORD}:
        return "a damaged stream of damaged records"
    if ours.code == INVALID_RECORD and not ours.errors:
        java = _JavaReader(data)
        found = java.read(header.record_count, skips=_stays_compressed(codec, topic))
        if found == "read" or (found == "the end" and (is_damaged or java.largest > JAVA_HEAP_BYTES)):
            return "a length that Java does not look at, or has no room for"
    return ""


def _stays_compressed(codec: int, topic: str) -> bool:
    return codec > 0 and ALL_TOPICS[topic].get("compression.type") in (None, CODECS[codec])


class _JavaReader:
    """Reads records as Apache Kafka's DefaultRecord does: any negative length is null, and a stream's records have no length."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self.largest = 0
        """The largest length of a record."""

    def read(self, count: int, *, skips: bool) -> str:
        """The outcome: "read", "malformed", or "the end" of the data within a record."""
        try:
            for _ in range(count):
                self._read_record(skips)
        except IndexError:
            return "the end"
        except ValueError:
            return "malformed"
        return "read"

    def _read_record(self, skips: bool) -> None:
        size = self._number(35)
        self.largest = max(self.largest, size)
        start = self._at
        end = len(self._data) if skips else start + size
        if end > len(self._data):
            raise IndexError
        self._at += 1
        self._number(70)
        self._number(35)
        for _ in range(2):
            self._skip(self._number(35))
        headers = self._number(35)
        if headers < 0:
            raise ValueError
        for _ in range(headers):
            key = self._number(35)
            if key < 0:
                raise ValueError
            self._skip(key)
            self._skip(self._number(35))
        if not skips and self._at != end:
            raise ValueError

    def _skip(self, size: int) -> None:
        self._at += max(size, 0)
        if self._at > len(self._data):
            raise IndexError

    def _number(self, bits: int) -> int:
        raw = 0
        for shift in range(0, bits, 7):
            byte = self._data[self._at]
            self._at += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                raw &= (1 << (32 if bits == 35 else 64)) - 1
                return (raw >> 1) ^ -(raw & 1)
        raise ValueError


def as_json(answer: Answer) -> list[Any]:
    """The code alone where nothing else was said."""
    return [answer.code, answer.message, [list(each) for each in answer.errors]] if answer.message else [answer.code]


def from_json(recorded: list[Any]) -> Answer:
    """The recorded answer."""
    if len(recorded) == 1:
        return Answer(recorded[0], None, ())
    return Answer(recorded[0], recorded[1], tuple((index, text) for index, text in recorded[2]))


@cache
def recorded_batches() -> Mapping[str, Mapping[str, Any]]:
    """By the name of each batch: its bytes, and the answers of Apache Kafka by topic."""
    found: dict[str, dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return found


def main(address: str, file: str) -> None:
    """Record."""
    create_topics(address, "")
    client = WireClient(int(address.rpartition(":")[2]))
    others = {name: base64.b64decode(known["base64"]) for name, known in recorded_batches().items() if name.startswith("given: ")}
    lines = []
    for name, batch in {**kinds(), **others}.items():
        answers = {topic: as_json(ask(client, topic, batch)[0]) for topic in TOPICS}
        lines.append(f"{json.dumps(name)}: " + json.dumps({"base64": base64.b64encode(batch).decode(), **answers}))
    Path(file).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
