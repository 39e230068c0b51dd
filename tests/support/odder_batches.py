"""Builds more batches that no client sends: fields at the edges of their types, odd streams, and odd bytes around a good batch."""

import random
import struct
import zlib
from typing import Any

from ottla.protocol.records.builder import encode_varint, encode_varlong
from ottla.protocol.records.compression import compress
from tests.support.odd_batches import CODECS, TIME, a_body, an_odd_record, framed
from tests.support.odder_streams import STREAMS


def _with_times(*elapsed: int) -> bytes:
    return b"".join(an_odd_record(index, elapsed=encode_varlong(each)) for index, each in enumerate(elapsed))


def _with_deltas(*deltas: int) -> bytes:
    return b"".join(an_odd_record(delta) for delta in deltas)


def _nine_and(inside: bytes) -> bytes:
    """Nine good records, and one with these bytes behind its length."""
    return a_body(9) + encode_varint(len(inside)) + inside


def _tiny(count: int, key: bytes | None) -> bytes:
    return b"".join(an_odd_record(index, key=key, value=None) for index in range(count))


_MIDDLE = _with_times(0, 5, 50, 5, 5, 5, 5, 5, 5, 5)
_UNTIMED = encode_varlong(-TIME - 1)

BATCHES: dict[str, tuple[bytes, dict[str, Any]]] = {
    "one of two": (a_body(1), {"count": 2}),
    "a header three times": (a_body(headers=b"\x08\x02a\x02b\x02a\x02b\x02a\x01\x02a\x00"), {}),
    "header key of 4,000 bytes": (a_body(1, headers=b"\x02" + encode_varint(4000) + b"h" * 4000 + b"\x00"), {"count": 1}),
    "header key with a surrogate": (a_body(headers=b"\x02\x06\xed\xa0\x80\x00"), {}),
    "header key in a longer form": (a_body(headers=b"\x02\x04\xc0\x80\x00"), {}),
    "header key of a zero": (a_body(headers=b"\x02\x02\x00\x00"), {}),
    "1,000 headers": (a_body(2, headers=encode_varint(1000) + b"\0\1" * 1000), {"count": 2}),
    "header value in six bytes": (a_body(9) + an_odd_record(9, headers=b"\x02\x02a\x81\x80\x80\x80\x80\x00"), {}),
    "header value in five bytes": (a_body(9) + an_odd_record(9, headers=b"\x02\x02a\x80\x80\x80\x80\x00"), {}),
    "key length of six bytes": (_nine_and(b"\0\0\x12\x82\x80\x80\x80\x80\x00k\x02v\0"), {}),
    "key length of five bytes": (_nine_and(b"\0\0\x12\x82\x80\x80\x80\x00k\x02v\0"), {}),
    "value length of six bytes": (_nine_and(b"\0\0\x12\x02k\x82\x80\x80\x80\x80\x00v\0"), {}),
    "value length of five bytes": (_nine_and(b"\0\0\x12\x02k\x82\x80\x80\x80\x00v\0"), {}),
    "key of length -2^31": (a_body(9) + an_odd_record(9, key=b"", key_size=-(2**31)), {}),
    "all keys of length -2": (a_body(key=b"", key_size=-2), {}),
    "attributes alone": (_nine_and(b"\0"), {}),
    "two bytes": (_nine_and(b"\0\0"), {}),
    "no header count behind nulls": (_nine_and(b"\0\0\x12\x01\x01"), {}),
    "nulls": (_nine_and(b"\0\0\x12\x01\x01\0"), {}),
    "zeros": (bytes(70), {}),
    "zeros of seven bytes": (b"\x0c\0\0\0\0\0\0" * 10, {}),
    "times up and down": (_with_times(0, 5, -5, -TIME - 1, 9, 9, 0, -9, 3, 1), {}),
    "largest time first": (_with_times(50, 5, 5, 5, 5, 5, 5, 5, 5, 5), {"max_timestamp": TIME + 50}),
    "largest time in the middle": (_MIDDLE, {"max_timestamp": TIME + 50}),
    "largest time understated": (_MIDDLE, {"max_timestamp": TIME + 4}),
    "largest time overstated": (_MIDDLE, {"max_timestamp": TIME + 400}),
    "no times": (a_body(elapsed=_UNTIMED), {"max_timestamp": -1}),
    "times from -1 on": (_with_times(*range(10)), {"base_timestamp": -1, "max_timestamp": 8}),
    "time 0": (a_body(), {"base_timestamp": 0, "max_timestamp": 0}),
    "far future": (a_body(), {"base_timestamp": 4_000_000_000_000, "max_timestamp": 4_000_000_000_000}),
    "deltas from 5 on": (_with_deltas(*range(5, 15)), {}),
    "deltas 0 and 5": (_with_deltas(0, 5), {"count": 2}),
    "deltas 0 and 5 in six offsets": (_with_deltas(0, 5), {"count": 2, "last_delta": 5}),
    "deltas 0 and 5 of six": (_with_deltas(0, 5), {"count": 6}),
    "deltas 1 and 0": (_with_deltas(1, 0), {"count": 2}),
    "delta 2^31-1": (an_odd_record(2**31 - 1), {"count": 1}),
    "delta -2^31": (an_odd_record(-(2**31)), {"count": 1}),
    "log append time, and another one": (a_body(elapsed=encode_varlong(5)), {"attributes": 8, "max_timestamp": TIME + 77}),
    "log append time, and a horizon": (a_body(), {"attributes": 8 | 64}),
    "log append time 0": (a_body(), {"attributes": 8, "max_timestamp": 0}),
    "log append time -2": (a_body(), {"attributes": 8, "max_timestamp": -2}),
    "log append time 2^63-1": (a_body(), {"attributes": 8, "max_timestamp": 2**63 - 1}),
    "log append time, null keys": (a_body(key=None), {"attributes": 8}),
    "log append time -1, null keys": (a_body(key=None), {"attributes": 8, "max_timestamp": -1}),
    "attribute 7": (a_body(), {"attributes": 0x80}),
    "attribute 15": (a_body(), {"attributes": 0x8000}),
    "horizon, and unknown attributes": (a_body(), {"attributes": 0x7FC0}),
    "horizon, and later times": (a_body(elapsed=encode_varlong(5)), {"attributes": 64}),
    "unknown attributes, wrong time": (a_body(), {"attributes": 0x7F80, "max_timestamp": TIME + 5}),
    "horizon, wrong time": (a_body(), {"attributes": 64, "max_timestamp": TIME + 5}),
    "control, without records": (b"", {"attributes": 32, "count": 0}),
    "control, log append time": (a_body(), {"attributes": 40}),
    "control, with a producer": (a_body(1), {"attributes": 32, "count": 1, "producer": (9100, 0, 0)}),
    "marker": (a_body(1, key=b"\0\0\0\1", value=bytes(6)), {"attributes": 48, "count": 1, "producer": (9101, 0, -1)}),
    "nothing in no offsets": (b"", {"count": 0, "last_delta": -1}),
    "nothing in one offset": (b"", {"count": 0, "last_delta": 0}),
    "nothing of one": (b"", {"count": 1}),
    "nothing of -1": (b"", {"count": -1, "last_delta": 0}),
    "nothing of -2^31": (b"", {"count": -(2**31), "last_delta": 0}),
    "ten of none": (a_body(), {"count": 0, "last_delta": 9}),
    "ten of -2^31": (a_body(), {"count": -(2**31), "last_delta": 9}),
    "last delta 2^31-1": (a_body(), {"last_delta": 2**31 - 1}),
    "ten of 2^31-1": (a_body(), {"count": 2**31 - 1, "last_delta": 2**31 - 2}),
    "base offset 1": (a_body(), {"base_offset": 1}),
    "base offset 2^63-1": (a_body(), {"base_offset": 2**63 - 1}),
    "base offset -2^63": (a_body(), {"base_offset": -(2**63)}),
    "leader epoch 2^31-1": (a_body(), {"leader_epoch": 2**31 - 1}),
    "leader epoch -2^31": (a_body(), {"leader_epoch": -(2**31)}),
    "2,000 records": (_tiny(2000, b""), {"count": 2000}),
    "2,000 null keys": (_tiny(2000, None), {"count": 2000}),
    "2,000 records, the last one of no bytes": (_tiny(1999, b"") + b"\0", {"count": 2000}),
}
"""Records and header of batches in every codec."""

PRODUCERS = {
    "epoch -1": (-1, 0),
    "epoch and sequence -1": (-1, -1),
    "epoch -2": (-2, 0),
    "epoch -2^15": (-(2**15), 0),
    "epoch 2^15-1": (2**15 - 1, 0),
    "sequence 2^31-1": (0, 2**31 - 1),
    "sequence 2^31-5": (0, 2**31 - 5),
    "sequence -2^31": (0, -(2**31)),
    "sequence 1": (0, 1),
    "epoch 1, sequence 5": (1, 5),
}
"""Epochs and sequences of producers, each of which is new."""

PRODUCER_IDS = {
    "0": (0, 0, 0),
    "-2": (-2, 0, 0),
    "-2^63": (-(2**63), 0, 0),
    "2^63-1": (2**63 - 1, 0, 0),
    "-1 with epoch 3 and sequence 7": (-1, 3, 7),
    "-1 with epoch 3": (-1, 3, -1),
}


def _around_a_batch() -> dict[str, bytes]:
    """Odd lengths, and bytes before and behind the end of a good batch."""
    good = framed(a_body())
    found = {f"length {length}": framed(a_body(), length=length) for length in (-(2**31), -1, 0, 13, 14, 48, 49, 60, 138, 140, 2**31 - 1)}
    found |= {f"cut to {size}": good[:size] for size in (1, 8, 11, 12, 13, 16, 17, 18, 21, 23, 57, 60, 61, 62)}
    for size in (1, 11, 12, 16, 17, 26, 61):
        found[f"{size} zeros behind"] = good + bytes(size)
        found[f"{size} letters behind"] = good + b"x" * size
        found[f"{size} bytes of another batch behind"] = good + good[:size]
    found |= {f"magic {magic}": framed(a_body(), magic=magic) for magic in (-128, -1, 0, 1, 3, 4, 127)}
    packed = framed(compress(1, a_body()), 1)
    found["three batches"] = good * 3
    found["a batch of magic 1 behind"] = good + framed(a_body(), magic=1)
    found["a batch of magic 3 behind"] = good + framed(a_body(), magic=3)
    found["a good batch behind one with a wrong checksum"] = good[:-1] + b"\1" + good
    found["gzip behind plain"] = good + packed
    found["plain behind gzip"] = packed + good
    found["checksum 0"] = good[:17] + bytes(4) + good[21:]
    found["checksum of format 1"] = good[:17] + struct.pack(">I", zlib.crc32(good[21:])) + good[21:]
    return found


def odder_kinds() -> dict[str, bytes]:
    """All batches by their names."""
    found: dict[str, bytes] = {}
    ids = iter(range(20_000, 30_000))
    for number, codec in enumerate(CODECS):
        for name, (body, fields) in BATCHES.items():
            told = {**fields, "attributes": fields.get("attributes", 0) | number}
            found[f"{codec}: {name}"] = framed(compress(number, body), number, **told)
        for name, (epoch, sequence) in PRODUCERS.items():
            found[f"{codec}: producer of {name}"] = framed(compress(number, a_body()), number, producer=(next(ids), epoch, sequence))
        for name, stream in STREAMS.get(codec, {}).items():
            found[f"{codec}: {name}, as a stream"] = framed(stream(a_body()), number)
    found |= {f"producer {name}": framed(a_body(), producer=producer) for name, producer in PRODUCER_IDS.items()}
    for unknown in (5, 6, 7):
        found[f"codec {unknown}, no bytes"] = framed(b"", unknown)
        found[f"codec {unknown}, one record less"] = framed(a_body(), unknown, count=11)
        found[f"codec {unknown}, control"] = framed(a_body(), unknown, attributes=32)
        found[f"codec {unknown}, log append time"] = framed(a_body(), unknown, attributes=8)
    found["a record of 1,100 bytes"] = framed(a_body(1, value=random.Random(1).randbytes(1_100)), count=1)
    return found | _around_a_batch()
