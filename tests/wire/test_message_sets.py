"""Message sets of formats 0 and 1 become records and come back: random ones, and those that contradict themselves."""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.conversion.down_converter import DownConverter
from ottla.protocol.conversion.message_sets import as_batch, down_convert, up_convert
from ottla.protocol.conversion.wrapped_data import compress_messages
from ottla.protocol.records.batch import parse_header
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.compression import CompressionCodec
from ottla.protocol.records.errors import (
    CorruptCompressedData,
    CorruptRecord,
    DecompressionTooLarge,
    InvalidRecord,
    MalformedMessage,
    MessageTooLarge,
    RecordFormatError,
    UnknownCompressionCodec,
)
from ottla.protocol.records.reader import Record, iter_records
from tests.support.old_messages import LOG_APPEND_TIME, Old, message, messages, read, wrapped

CODECS = [CompressionCodec.NONE, CompressionCodec.GZIP, CompressionCodec.SNAPPY, CompressionCodec.LZ4]
TEXT = st.one_of(st.none(), st.binary(max_size=300))
TIMES = st.one_of(st.just(-1), st.integers(min_value=0, max_value=2**63 - 1))


def nothing() -> None:
    """No event loop waits."""


@st.composite
def olds(draw: st.DrawFn, magic: int) -> list[Old]:
    found = []
    offset = draw(st.integers(min_value=0, max_value=2**40))
    for _ in range(draw(st.integers(min_value=1, max_value=30))):
        found.append(Old(offset, draw(TIMES) if magic else -1, draw(TEXT), draw(TEXT)))
        offset += draw(st.integers(min_value=1, max_value=3))
    return found


def message_set(magic: int, codec: int, given_olds: list[Old]) -> bytes:
    return wrapped(magic, codec, given_olds) if codec else messages(magic, given_olds)


def as_messages(batch: bytes, magic: int, first_offset: int = 0) -> bytes:
    converter = DownConverter(magic)
    down_convert(converter, memoryview(bytearray(batch)), 0, len(batch), first_offset, nothing)
    return bytes(converter.room[: converter.size])


def records_of(batch: bytes | bytearray) -> list[Old]:
    return [Old(record.offset, record.timestamp, record.key, record.value) for record in iter_records(batch)]


@pytest.mark.slow
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_every_message_becomes_the_same_record(magic: int, codec: int, data: st.DataObject) -> None:
    sent = data.draw(olds(magic))
    batch = as_batch(memoryview(bytearray(message_set(magic, codec, sent))), nothing)
    assert records_of(batch) == sent
    header = parse_header(batch)
    assert header.max_timestamp == max(old.timestamp for old in sent)
    assert (header.base_offset, header.last_offset) == (sent[0].offset, sent[-1].offset)
    assert header.compression_codec == codec


@pytest.mark.slow
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_every_record_becomes_the_same_message(magic: int, codec: int, data: st.DataObject) -> None:
    sent = data.draw(olds(1))
    headers = data.draw(st.lists(st.tuples(st.binary(max_size=5), TEXT), max_size=3))
    batch = build_batch([Record(*old, tuple(headers)) for old in sent], codec)
    first_offset = data.draw(st.integers(min_value=0, max_value=sent[-1].offset))
    found = read(as_messages(bytes(batch), magic, first_offset))
    wanted = sent if codec else [old for old in sent if old.offset >= first_offset]
    assert found == [old if magic else old._replace(timestamp=-1) for old in wanted]


@pytest.mark.parametrize("codec", CODECS)
def test_large_records_become_messages_although_their_memory_is_given_back(codec: int) -> None:
    sent = [Old(offset, offset, b"key", Random(offset).randbytes(400_000)) for offset in range(3)]
    assert read(as_messages(bytes(build_batch([Record(*old, ()) for old in sent], codec)), 1)) == sent


@settings(max_examples=25, deadline=None)
@given(data=st.data(), codec=st.sampled_from(CODECS))
def test_messages_of_format_1_become_messages_of_format_0(data: st.DataObject, codec: int) -> None:
    sent = data.draw(olds(1))
    if not codec:
        del sent[1:]  # each message is converted by itself
    found = read(as_messages(message_set(1, codec, sent), 0))
    assert found == [old._replace(timestamp=-1) for old in sent]


@settings(max_examples=100, deadline=None)
@given(data=st.data(), magic=st.sampled_from([0, 1]), codec=st.sampled_from(CODECS))
def test_damaged_messages_are_records_or_an_error_of_the_format(data: st.DataObject, magic: int, codec: int) -> None:
    frame = bytearray(message_set(magic, codec, data.draw(olds(magic))))
    for _ in range(data.draw(st.integers(min_value=1, max_value=4))):
        frame[data.draw(st.integers(min_value=0, max_value=len(frame) - 1))] = data.draw(st.integers(min_value=0, max_value=255))
    with suppress(RecordFormatError):
        as_batch(memoryview(frame), nothing)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), magic=st.sampled_from([0, 1]))
def test_damaged_records_are_messages_or_an_error_of_the_format(data: st.DataObject, magic: int) -> None:
    batch = build_batch([Record(*old) for old in data.draw(olds(1))])
    for _ in range(data.draw(st.integers(min_value=1, max_value=4))):
        batch[data.draw(st.integers(min_value=57, max_value=len(batch) - 1))] = data.draw(st.integers(min_value=0, max_value=255))
    with suppress(RecordFormatError):
        as_messages(bytes(batch), magic)


SENT = [Old(0, 1000, b"k", b"v"), Old(1, 1001, None, None)]
FOREIGN = message(0, SENT[0]._replace(offset=5)) + message(1, SENT[1])


def converted(frame: bytes, max_bytes: int = 2**20) -> list[Old]:
    found = up_convert(memoryview(bytearray(frame)), 0, len(frame), nothing, max_bytes=max_bytes)
    found.check_offsets()
    assert found.converter.foreign == 0
    return [Old(0, 0, b"", b"")] * found.converter.count


def with_value(value: bytes | None, codec: int, magic: int = 1, offset: int = 1) -> bytes:
    """A message with the attribute of a codec and this value."""
    return message(magic, Old(offset, 1000, None, value), codec)


def with_magic(data: bytes, magic: int) -> bytes:
    """The message with another magic, which its checksum does not cover."""
    return data[:16] + bytes((magic,)) + data[17:]


REFUSED = [
    ("a wrong checksum", message(1, SENT[0], crc=1), CorruptRecord),
    ("a wrong checksum of a compressed message", message(1, Old(0, 1, None, b"x"), CompressionCodec.GZIP, crc=1), CorruptRecord),
    (
        "a wrong checksum inside",
        with_value(compress_messages(CompressionCodec.GZIP, 1, message(1, SENT[0], crc=1)), CompressionCodec.GZIP),
        CorruptRecord,
    ),
    (
        "nested twice",
        with_value(compress_messages(CompressionCodec.GZIP, 1, wrapped(1, CompressionCodec.GZIP, SENT)), CompressionCodec.GZIP),
        InvalidRecord,
    ),
    ("an outer offset below the last inner one", wrapped(1, CompressionCodec.GZIP, [*SENT, Old(9, 1, b"", b"")], 3), InvalidRecord),
    ("a negative outer offset", wrapped(1, CompressionCodec.GZIP, SENT, -1), InvalidRecord),
    ("nothing inside", with_value(compress_messages(CompressionCodec.GZIP, 1, b""), CompressionCodec.GZIP), InvalidRecord),
    ("no value", with_value(None, CompressionCodec.SNAPPY), InvalidRecord),
    ("zstd", with_value(b"", CompressionCodec.ZSTD), InvalidRecord),
    ("codec 6", with_value(b"", 6), UnknownCompressionCodec),
    ("codec 6 and a wrong checksum", message(1, SENT[0], 6, crc=1), CorruptRecord),
    (
        "a wrong checksum in front of another message",
        message(1, SENT[0], CompressionCodec.GZIP, crc=1) + message(1, SENT[1]),
        CorruptRecord,
    ),
    (
        "a message inside whose magic would place key and value elsewhere",
        with_value(compress_messages(CompressionCodec.GZIP, 0, with_magic(message(0, SENT[0]), 3)), CompressionCodec.GZIP, 0),
        MalformedMessage,
    ),
    ("no gzip data", with_value(b"\1\2\3", CompressionCodec.GZIP), CorruptCompressedData),
    ("two compressed messages", 2 * wrapped(1, CompressionCodec.GZIP, SENT), InvalidRecord),
    ("a compressed message behind another", message(1, SENT[0]) + wrapped(1, CompressionCodec.GZIP, SENT), InvalidRecord),
    ("a size of 13 behind the first message", message(1, SENT[0]) + struct.pack(">qi", 1, 13) + b"\0" * 13, CorruptRecord),
    ("magic 3 behind the first message", message(1, SENT[0]) + message(3, SENT[0]), CorruptRecord),
    ("more bytes than allowed", wrapped(1, CompressionCodec.GZIP, [Old(0, 1, None, b"\0" * 2**21)]), DecompressionTooLarge),
]


@pytest.mark.parametrize(("frame", "error"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_messages_that_contradict_themselves_are_refused(frame: bytes, error: type[RecordFormatError]) -> None:
    with pytest.raises(error):
        converted(frame)


@pytest.mark.parametrize("codec", [CompressionCodec.NONE, CompressionCodec.GZIP])
def test_a_message_that_is_too_large_is_refused_before_its_checksum_is_looked_at(codec: int) -> None:
    large = message(1, Old(1, 1, None, bytes(100)), codec, crc=1)
    frame = bytearray(large if codec else message(1, SENT[0]) + large)
    with pytest.raises(MessageTooLarge) as refused:
        up_convert(memoryview(frame), 0, len(frame), nothing, max_message_bytes=len(large) - 1)
    assert refused.value.size == len(large)
    with pytest.raises(CorruptRecord):
        up_convert(memoryview(frame), 0, len(frame), nothing, max_message_bytes=len(large))


@pytest.mark.parametrize("magic", [0, 1])
def test_sizes_that_lie_are_refused(magic: int) -> None:
    start = struct.pack(">bB", magic, 0) + (struct.pack(">q", 1) if magic else b"")
    for size in (3, 5, 2**31 - 1):
        for lengths in (struct.pack(">i", size) + b"\0" * 4, struct.pack(">ii", -1, size) + b"\0" * min(size - 1, 9)):
            body = start + lengths
            frame = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
            with pytest.raises(MalformedMessage):
                converted(frame)


def test_messages_of_another_magic_are_counted() -> None:
    found = up_convert(memoryview(bytearray(FOREIGN)), 0, len(FOREIGN), nothing)
    assert (found.converter.count, found.converter.foreign) == (1, 1)


def test_an_incomplete_last_message_is_left_out() -> None:
    whole = messages(1, SENT)
    for cut in range(1, len(message(1, SENT[1])) + 1):
        assert len(converted(whole[:-cut])) == 1
    assert len(converted(whole)) == 2


def test_a_compressed_message_with_offset_0_counts_from_0() -> None:
    frame = wrapped(1, CompressionCodec.LZ4, [Old(7, 1, b"", b""), Old(8, 1, b"", b"")], 0)
    assert [old.offset for old in records_of(as_batch(memoryview(bytearray(frame)), nothing))] == [0, 1]


def test_the_time_of_the_append_replaces_that_of_each_message() -> None:
    frame = wrapped(1, CompressionCodec.SNAPPY, SENT, attributes=LOG_APPEND_TIME, timestamp=5000)
    assert [old.timestamp for old in records_of(as_batch(memoryview(bytearray(frame)), nothing))] == [5000, 5000]


def test_control_batches_have_no_messages() -> None:
    batch = build_batch([Record(0, 1, b"\0\0\0\1", b"\0\0\0\0\0\0")], is_control=True, is_transactional=True, producer_id=1)
    assert as_messages(bytes(batch), 1) == b""


EMPTY_MESSAGES = 50_000


def test_very_many_empty_messages_take_memory_for_their_bytes_only() -> None:
    frame = bytearray(message(0, Old(0, -1, None, None)) * EMPTY_MESSAGES)
    pauses = []
    found = up_convert(memoryview(frame), 0, len(frame), lambda: pauses.append(None))
    assert found.converter.count == EMPTY_MESSAGES
    assert found.converter.size < len(frame)
    assert len(pauses) == EMPTY_MESSAGES // 2000


def test_lz4_of_format_0_has_the_wrong_checksum_of_the_first_clients() -> None:
    right = compress_messages(CompressionCodec.LZ4, 1, b"abc")
    old = compress_messages(CompressionCodec.LZ4, 0, b"abc")
    assert bytes(right)[:7] == bytes.fromhex("04224d18604082")
    assert bytes(old)[:6] == bytes(right)[:6]
    assert bytes(old)[6] != bytes(right)[6]
    assert bytes(old)[7:] == bytes(right)[7:]
