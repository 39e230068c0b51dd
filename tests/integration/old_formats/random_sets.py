"""Makes random message sets of formats 0 and 1 from a seed: any codec, nesting, offsets, timestamps, keys and tombstones. Some are wrong.

Most sets have at most one fault. The first fault of several that a broker reports depends on the order in which it looks.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

from ottla.protocol.conversion.wrapped_data import compress_messages
from ottla.protocol.records.compression import CompressionCodec
from tests.support.batches import a_batch
from tests.support.old_messages import LOG_APPEND_TIME, Old, message, messages

TIME = 1_700_000_000_000
CODECS = (CompressionCodec.GZIP, CompressionCodec.SNAPPY, CompressionCodec.LZ4)
SIZE_AT, CRC_AT, MAGIC_AT, ATTRIBUTES_AT = 8, 12, 16, 17
LARGEST_LIE = 1 << 20
"""Largest size that a message claims; a reader of Apache Kafka allocates as much."""


class RandomSet(NamedTuple):
    """The records of one Produce request, and what they are in words."""

    version: int
    records: bytes
    story: str
    codecs: frozenset[int]
    """The codecs of its compressed messages."""
    faults: int
    """How many reasons to refuse it there are at most; a topic may have another one."""


def random_set(seed: int) -> RandomSet:
    """The same set for the same seed."""
    return _Maker(seed).make()


def with_crc(data: bytes) -> bytes:
    """The message with the checksum that is right for its bytes."""
    return data[:CRC_AT] + struct.pack(">I", zlib.crc32(data[MAGIC_AT:])) + data[MAGIC_AT:]


class _Maker:
    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._story: list[str] = []
        self._codecs: set[int] = set()
        self._faults = 0

    def make(self) -> RandomSet:
        magic = self._chance.randint(0, 1)
        shape = self._picked(_SHAPES)
        self._story.append(f"magic {magic}, {shape.__name__.strip('_')}")
        self._faults += shape not in _WHOLE
        records = shape(self, magic)
        if self._chance.random() < 0.15:
            records = self._harmed(records)
        versions = (2, 2, 2, 2, 2, 1, 0, 3) if magic else (0, 0, 1, 1, 2, 2)
        return RandomSet(self._chance.choice(versions), records, "; ".join(self._story), frozenset(self._codecs), self._faults)

    def _picked(self, weights: dict[Callable[[_Maker, int], bytes], int]) -> Callable[[_Maker, int], bytes]:
        return self._chance.choices(list(weights), list(weights.values()))[0]

    # -- the fields of messages --------------------------------------------------------------------------------------------

    def _olds(self, magic: int, count: int | None = None) -> list[Old]:
        """Some messages, whose offsets and timestamps are as they should be or in one of many other ways."""
        chance = self._chance
        count = chance.choice((1, 1, 2, 3, 5, 12, 40)) if count is None else count
        offsets = self._offsets(count)
        times = self._times(count) if magic else [-1] * count
        return [Old(offset, time, self._key(), self._value()) for offset, time in zip(offsets, times, strict=True)]

    def _offsets(self, count: int) -> list[int]:
        chance = self._chance
        kind = chance.choice(("counted",) * 6 + ("zero", "gaps", "late", "shuffled", "negative", "large"))
        if kind != "counted":
            self._story.append(f"offsets {kind}")
        match kind:
            case "zero":
                return [0] * count
            case "gaps":
                return sorted(chance.sample(range(4 * count), count))
            case "late":
                return list(range(1000, 1000 + count))
            case "shuffled":
                return chance.sample(range(count), count)
            case "negative":
                return list(range(-3, count - 3))
            case "large":
                return list(range(1 << 40, (1 << 40) + count))
        return list(range(count))

    def _times(self, count: int) -> list[int]:
        chance = self._chance
        kind = chance.choice(("counted",) * 3 + ("same", "absent", "some", "shuffled", "early", "late", "negative"))
        if kind != "counted":
            self._story.append(f"timestamps {kind}")
        match kind:
            case "same":
                return [TIME] * count
            case "absent":
                return [-1] * count
            case "some":
                return [chance.choice((-1, TIME + number)) for number in range(count)]
            case "shuffled":
                return [TIME + chance.randint(0, 10_000) for _ in range(count)]
            case "early":
                return [chance.randint(0, 5) for _ in range(count)]
            case "late":
                return [chance.choice((TIME, (1 << 62) - 1, (1 << 63) - 1)) for _ in range(count)]
            case "negative":
                self._faults += 1
                return [chance.choice((TIME, -2, -(1 << 40))) for _ in range(count)]
        return [TIME + number for number in range(count)]

    def _key(self) -> bytes | None:
        chance = self._chance
        return chance.choice((None, b"", b"key", b"key", chance.randbytes(chance.randint(1, 40))))

    def _value(self) -> bytes | None:
        chance = self._chance
        return chance.choice((None, b"", b"value " * chance.randint(1, 30), chance.randbytes(chance.randint(1, 200))))

    def _flags(self, magic: int) -> int:
        """Attributes beside the codec: mostly none; the broker's timestamps, or bits without a meaning."""
        flags = self._chance.choice((0,) * 8 + (LOG_APPEND_TIME if magic else 0, 0x10, 0x80))
        if flags:
            self._faults += flags == LOG_APPEND_TIME
            self._story.append(f"attributes {flags:#x}")
        return flags

    # -- shapes ------------------------------------------------------------------------------------------------------------

    def _single_messages(self, magic: int) -> bytes:
        return messages(magic, self._olds(magic), self._flags(magic))

    def _wrapped(self, magic: int, inner: bytes, last: int, time: int, key: bytes | None = None) -> bytes:
        """A compressed message; `last` and `time` are what its own fields should be."""
        codec = self._chance.choice(CODECS)
        self._codecs.add(codec)
        self._story.append(codec.label)
        value = bytes(compress_messages(codec, magic, inner))
        return message(magic, Old(self._outer_offset(last), self._outer_time(time), key, value), self._flags(magic) | codec)

    def _outer_offset(self, last: int) -> int:
        chance = self._chance
        kind = chance.choice(("last",) * 6 + ("zero", "less", "more", "far", "negative"))
        if kind != "last":
            self._faults += kind in ("less", "negative")
            self._story.append(f"wrapper offset {kind}")
        return {"last": last, "zero": 0, "less": last - 1, "more": last + 1, "far": last + 1000, "negative": -1}[kind]

    def _outer_time(self, time: int) -> int:
        kind = self._chance.choice(("largest",) * 5 + ("absent", "other"))
        if kind != "largest":
            self._story.append(f"wrapper timestamp {kind}")
        return {"largest": time, "absent": -1, "other": TIME + 99_999}[kind]

    def _compressed(self, magic: int) -> bytes:
        """One compressed message, with relative offsets in format 1."""
        olds = self._olds(magic)
        return self._wrapped(magic, messages(magic, olds, self._flags(magic)), olds[-1].offset, max(old.timestamp for old in olds))

    def _compressed_and_harmed_inside(self, magic: int) -> bytes:
        olds = self._olds(magic)
        return self._wrapped(
            magic, self._harmed(messages(magic, olds), is_inside=True), olds[-1].offset, max(old.timestamp for old in olds)
        )

    def _compressed_with_a_key(self, magic: int) -> bytes:
        olds = self._olds(magic)
        return self._wrapped(magic, messages(magic, olds), olds[-1].offset, olds[-1].timestamp, b"wrapper")

    def _compressed_of_nothing(self, magic: int) -> bytes:
        return self._wrapped(magic, self._chance.choice((b"", bytes(5), message(magic, self._olds(magic, 1)[0])[:-1])), 0, TIME)

    def _compressed_of_the_other_magic(self, magic: int) -> bytes:
        olds = self._olds(1 - magic)
        inner = messages(1 - magic, olds)
        if self._chance.random() < 0.5:
            self._story.append("behind one of its own")
            inner = messages(magic, self._olds(magic, 1)) + inner
        return self._wrapped(magic, inner, olds[-1].offset, TIME)

    def _nested(self, magic: int) -> bytes:
        """Compressed messages in a compressed message, alone or among others, to a depth of up to four."""
        inner = self._compressed(magic)
        for _ in range(self._chance.randint(1, 3)):
            among = messages(magic, self._olds(magic, 1))
            inner = self._wrapped(magic, self._chance.choice((inner, inner, among + inner, inner + among)), 1, TIME)
        return inner

    def _several(self, magic: int) -> bytes:
        """Compressed messages and single ones in a row."""
        parts = [self._compressed(magic), self._chance.choice((_Maker._compressed, _Maker._single_messages))(self, magic)]
        self._chance.shuffle(parts)
        return b"".join(parts)

    def _of_both_magics(self, magic: int) -> bytes:
        return messages(magic, self._olds(magic)) + messages(1 - magic, self._olds(1 - magic))

    def _with_a_batch(self, magic: int) -> bytes:
        """A batch of format 2 beside messages."""
        parts = [messages(magic, self._olds(magic)), bytes(a_batch(2))]
        self._chance.shuffle(parts)
        return b"".join(parts)

    def _of_a_false_codec(self, magic: int) -> bytes:
        """A message that says to be compressed, with a codec that its format may not have, and is not."""
        codec = self._chance.choice((1, 2, 3, 4, 5, 6, 7))
        self._story.append(f"codec {codec}")
        self._codecs.add(codec)
        value = self._chance.choice((None, b"", b"not compressed"))
        return message(magic, Old(0, TIME, None, value), codec)

    def _with_a_wrong_length(self, magic: int) -> bytes:
        """The length of a key that is not there, with the right checksum."""
        (old,) = self._olds(magic, 1)
        data = bytearray(message(magic, old))
        at = MAGIC_AT + 2 + 8 * magic
        data[at : at + 4] = struct.pack(">i", self._chance.choice((-2, len(data), len(data) - at - 8, 1 << 20)))
        harmed = with_crc(bytes(data))
        if self._chance.random() < 0.5:
            return harmed
        return self._wrapped(magic, harmed, old.offset, TIME)

    def _with_a_short_stream(self, magic: int) -> bytes:
        """A compressed value that ends early, with the right checksum."""
        codec = self._chance.choice(CODECS)
        self._codecs.add(codec)
        self._story.append(codec.label)
        value = bytes(compress_messages(codec, magic, messages(magic, self._olds(magic, 3))))
        return message(magic, Old(2, TIME, None, value[: self._chance.randrange(self._chance.choice((len(value), 24)))]), codec)

    # -- faults ------------------------------------------------------------------------------------------------------------

    def _harmed(self, records: bytes, *, is_inside: bool = False) -> bytes:
        """The messages with one fault, most often in the first of them.

        Behind a size that is a little wrong any bytes are taken for a size. A reader of compressed messages allocates that many.
        """
        chance = self._chance
        kind = chance.choice(("cut", "cut", "longer", "bit", "size", "checksum", "magic", "attributes", "empty"))
        self._story.append(f"fault: {kind}")
        self._faults += 1
        data = bytearray(records)
        if len(data) <= ATTRIBUTES_AT:
            return bytes(data)
        match kind:
            case "cut":
                return records[: -chance.randint(1, len(records) - 1)]
            case "longer":
                return records + chance.randbytes(chance.randint(1, 11))
            case "bit":
                # The sizes are left to the next case: one that is too large would cost a reader its memory.
                size = struct.unpack_from(">i", data, SIZE_AT)[0]
                body = range(CRC_AT, min(len(data), CRC_AT + max(size, 0)))
                at = chance.choice((*range(SIZE_AT), *body))
                data[at] ^= 1 << chance.randrange(8)
                self._faults += at == MAGIC_AT
            case "size":
                size = struct.unpack_from(">i", data, SIZE_AT)[0]
                small = () if is_inside else (14, 22, size - 1, size + 1)
                lie = chance.choice((-1, 0, 13, LARGEST_LIE, *small))
                data[SIZE_AT:CRC_AT] = struct.pack(">i", lie)
            case "checksum":
                data[CRC_AT] ^= 0xFF
            case "magic":
                # Every field is wrong then.
                self._faults += 1
                data[MAGIC_AT] = chance.choice((2, 3, 127, 255))
            case "attributes":
                data[ATTRIBUTES_AT] ^= 1 << chance.randrange(8)
            case "empty":
                return b""
        return bytes(data)


_WHOLE = (_Maker._single_messages, _Maker._compressed, _Maker._compressed_and_harmed_inside, _Maker._compressed_with_a_key)
"""Shapes that are no fault by themselves."""
_SHAPES: dict[Callable[[_Maker, int], bytes], int] = {
    _Maker._single_messages: 25,
    _Maker._compressed: 35,
    _Maker._compressed_and_harmed_inside: 10,
    _Maker._compressed_with_a_key: 3,
    _Maker._compressed_of_nothing: 3,
    _Maker._compressed_of_the_other_magic: 3,
    _Maker._nested: 5,
    _Maker._several: 4,
    _Maker._of_both_magics: 3,
    _Maker._with_a_batch: 3,
    _Maker._of_a_false_codec: 3,
    _Maker._with_a_wrong_length: 4,
    _Maker._with_a_short_stream: 4,
}
