"""Sends the same Produce and Fetch requests to Apache Kafka and to Ottla, and compares the answers byte by byte.

Only the following is left out: ids of topics, times that the broker took from its clock, and the compressed bytes of snappy, which has two
implementations. A message or batch with one of the latter two is compared field by field, and its records one by one.
"""

from __future__ import annotations

import random
import socket
import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import crc32c

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.compression import CompressionCodec, decompress
from tests.integration.old_formats.random_sets import RandomSet, random_set
from tests.integration.old_formats.scenes import FETCH_VERSIONS, FIRST_WITH_TOPIC_IDS, Scene
from tests.support.golden_replay import comparable, decode, receive, request_frame
from tests.support.old_messages import LOG_APPEND_TIME

SECONDS = 60.0
CLOSED = b"the connection was closed"
OPEN = b"the connection is open"
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "snappy": {},
    "uncompressed": {"compression.type": "uncompressed"},
    "gzip": {"compression.type": "gzip"},
    "lz4": {"compression.type": "lz4"},
    "compacted": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "timed": {"message.timestamp.before.max.ms": "1000"},
    "small": {"max.message.bytes": "600"},
}
STRICT_TOPICS = {"compacted", "timed", "small"}
"""Refuse sets that other topics take."""
_MESSAGE = struct.Struct(">qiIbb")
_BATCH = struct.Struct(">qiibIhiqqqhii")
_OVERHEAD = 12
_CODEC_MASK = 7
_MAX_BYTES = 1 << 24


class Asked(NamedTuple):
    """A request, to be sent to either broker."""

    api_key: ApiKey
    version: int
    topic: str
    offset: int = 0
    records: bytes = b""
    acks: int = -1


class Player:
    """One connection to one broker, on which requests are sent one after the other."""

    def __init__(self, port: int, topics: Mapping[str, Mapping[str, str]]) -> None:
        """Create the topics."""
        self._port = port
        self._socket: socket.socket | None = None
        scene = Scene(port)
        scene.create({name: dict(config) for name, config in topics.items()})
        self.topic_ids = scene.topic_ids

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, asked: Asked) -> bytes:
        """The answer with a topic's id left out; CLOSED, or OPEN where no answer is given."""
        try:
            if self._socket is None:
                self._socket = socket.create_connection(("127.0.0.1", self._port), SECONDS)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall(self._frame(asked))
            if asked.api_key is ApiKey.PRODUCE and not asked.acks:
                self._socket.sendall(request_frame(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0))
                receive(self._socket)
                return OPEN
            return receive(self._socket).replace(self.topic_ids[asked.topic], bytes(16))
        except (EOFError, ConnectionError):
            self.close()
            return CLOSED

    def _frame(self, asked: Asked) -> bytes:
        if asked.api_key is ApiKey.PRODUCE:
            data = TopicProduceData(name=asked.topic, partition_data=[PartitionProduceData(index=0, records=asked.records)])
            return request_frame(ProduceRequest(acks=asked.acks, timeout_ms=10_000, topic_data=[data]), ApiKey.PRODUCE, asked.version)
        named = asked.version < FIRST_WITH_TOPIC_IDS
        partition = FetchPartition(partition=0, fetch_offset=asked.offset, partition_max_bytes=_MAX_BYTES, last_fetched_epoch=-1)
        topic = FetchTopic(
            topic=asked.topic if named else "", topic_id=bytes(16) if named else self.topic_ids[asked.topic], partitions=[partition]
        )
        more: dict[str, int] = {"max_bytes": _MAX_BYTES} if asked.version >= 3 else {}
        if asked.version >= 7:
            more["session_epoch"] = -1
        return request_frame(FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic], **more), ApiKey.FETCH, asked.version)


class Comparison:
    """Plays random message sets to both brokers. `codes` counts the error codes of Produce, CLOSED and OPEN among them."""

    def __init__(self, theirs: Player, ours: Player, topics: Mapping[str, Mapping[str, str]]) -> None:
        self._theirs = theirs
        self._ours = ours
        self._topics = topics
        self._with_snappy: set[str] = set()
        self._are_refused = False
        self.codes: Counter[int | bytes] = Counter()

    def play(self, seed: int, *, is_strict: bool) -> str | None:
        """Produce a random set and fetch what became of it; the first difference, if there is one.

        Unless `is_strict`, a set with several faults may be refused with different error codes, as docs/differences.md says.
        """
        made = random_set(seed)
        chance = random.Random(f"topic of {seed}")
        topic = chance.choice(list(self._topics))
        if topic == "plain" and CompressionCodec.SNAPPY in made.codecs:
            topic = "snappy"
        acks = chance.choice((-1, -1, -1, 1, 1, 0))
        asked = Asked(ApiKey.PRODUCE, made.version, topic, records=made.records, acks=acks)
        answer, difference = self._both(asked)
        has_several_faults = made.faults + (topic in STRICT_TOPICS) > 1
        if difference is not None and not is_strict and has_several_faults and self._are_refused:
            return None
        if difference is None:
            difference = self._fetch(made, asked, answer)
        return None if difference is None else f"set {seed}: {made.story}\n{difference}"

    def walk(self) -> Iterator[str]:
        """Read every topic from several offsets in every version; the differences.

        Whole answers of old versions end somewhere among the messages, which depends on the sizes of compressed ones. Topics that may have
        snappy are left out there.
        """
        for topic in self._topics:
            for version in FETCH_VERSIONS:
                if version > 3 or topic not in self._with_snappy:
                    for offset in (0, 1, 7, 50):
                        _, difference = self._both(Asked(ApiKey.FETCH, version, topic, offset))
                        if difference is not None:
                            yield difference

    def _fetch(self, made: RandomSet, produced: Asked, answer: bytes) -> str | None:
        if answer in (CLOSED, OPEN):
            self.codes[answer] += 1
            return None
        response: Any = decode(answer, ApiKey.PRODUCE, made.version)
        (topic,) = response.responses
        (partition,) = topic.partition_responses
        self.codes[partition.error_code] += 1
        if partition.error_code or partition.base_offset < 0:
            return None
        if CompressionCodec.SNAPPY in made.codecs:
            self._with_snappy.add(produced.topic)
        for version in FETCH_VERSIONS:
            for offset in (partition.base_offset, partition.base_offset + 1):
                _, difference = self._both(Asked(ApiKey.FETCH, version, produced.topic, offset))
                if difference is not None:
                    return difference
        return None

    def _both(self, asked: Asked) -> tuple[bytes, str | None]:
        """Apache Kafka's answer, and how that of Ottla differs."""
        theirs, ours = self._theirs.ask(asked), self._ours.ask(asked)
        if theirs == ours:
            return theirs, None
        known, found = _Masked(theirs, asked), _Masked(ours, asked)
        self._are_refused = asked.api_key is ApiKey.PRODUCE and is_refused(known.fields) and is_refused(found.fields)
        if known.is_masked and found.is_masked and known.fields == found.fields:
            return theirs, None
        what = f"{asked.api_key.name} {asked.version} of {asked.topic} from {asked.offset}, acks {asked.acks}, {asked.records.hex()}"
        return theirs, f"{what}\n  Apache Kafka: {known.fields}\n  Ottla:        {found.fields}"


def is_refused(answer: Any) -> bool:
    """Whether the only partition of a Produce answer has an error."""
    return isinstance(answer, dict) and bool(answer["responses"][0]["partition_responses"][0]["error_code"])


class _Masked:
    """The fields of an answer. `is_masked` tells whether some of its bytes are left out."""

    def __init__(self, answer: bytes, asked: Asked) -> None:
        self.is_masked = False
        self.fields: Any = answer
        if answer not in (CLOSED, OPEN):
            self.fields = comparable(decode(answer, asked.api_key, asked.version), self._rewrite)

    def _rewrite(self, name: str, value: Any) -> Any:
        if name == "records" and value is not None:
            return self._contents(bytes(value))
        if name == "log_append_time_ms" and value >= 0:
            self.is_masked = True
            return "now"
        return value

    def _contents(self, data: bytes) -> list[object]:
        """Each message or batch in full, or without what is left out; the incomplete bytes at the end only if all before were in full."""
        found: list[object] = []
        at = 0
        whole = True
        while at + _OVERHEAD < len(data):
            size = struct.unpack_from(">i", data, at + 8)[0]
            end = at + _OVERHEAD + size
            if end > len(data) or size < 0:
                break
            one = data[at:end]
            fields = self._batch(one) if one[16] == 2 else self._message(one)
            if fields is None:
                found.append(one.hex())
            else:
                found.append(fields)
                whole = False
            at = end
        if whole:
            found.append(data[at:].hex())
        else:
            self.is_masked = True
        return found

    def _message(self, data: bytes) -> tuple[object, ...] | None:
        """The fields of a message of format 0 or 1; None if nothing of it is to be left out."""
        offset, _, crc, magic, attributes = _MESSAGE.unpack_from(data)
        codec = attributes & _CODEC_MASK
        is_stamped = magic > 0 and bool(attributes & LOG_APPEND_TIME)
        if codec != CompressionCodec.SNAPPY and not is_stamped:
            return None
        assert crc == zlib.crc32(data[16:]), "a message with a wrong checksum"
        at = _MESSAGE.size
        time: object = None
        if magic:
            time = "now" if is_stamped else struct.unpack_from(">q", data, at)[0]
            at += 8
        (key_size,) = struct.unpack_from(">i", data, at)
        at += 4
        key = None if key_size < 0 else data[at : at + key_size]
        at += max(key_size, 0)
        (size,) = struct.unpack_from(">i", data, at)
        value = None if size < 0 else data[at + 4 :]
        inside: object = value
        if codec and value is not None:
            inside = self._contents(_decompressed(codec, magic, value))
        return ("message", offset, magic, attributes, time, key, inside)

    def _batch(self, data: bytes) -> tuple[object, ...] | None:
        """The fields of a batch of format 2; None if nothing of it is to be left out."""
        base_offset, _, epoch, _, crc, attributes, *fields = _BATCH.unpack_from(data)
        codec = attributes & _CODEC_MASK
        is_stamped = bool(attributes & LOG_APPEND_TIME)
        if codec != CompressionCodec.SNAPPY and not is_stamped:
            return None
        assert crc == crc32c.crc32c(data[21:]), "a batch with a wrong checksum"
        if is_stamped:
            fields[2] = "now"  # the largest timestamp
        return ("batch", base_offset, epoch, attributes, *fields, decompress(codec, data[_BATCH.size :]))


def _decompressed(codec: int, magic: int, value: bytes) -> bytes:
    if codec == CompressionCodec.LZ4 and not magic:
        value = value[:6] + b"\x82" + value[7:]  # the checksum of the frame's header that is right in format 1
    return decompress(codec, value)
