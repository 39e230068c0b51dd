"""Batch headers: finding them in a buffer, reading them, and the fields a broker rewrites."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.cursors import fields
from ottla.protocol.records.batch import (
    HEADER_SIZE,
    MAX_INT32,
    TimestampType,
    crc_is_valid,
    increment_sequence,
    iter_batches,
    known_codec,
    next_batch_size,
    parse_header,
    stamp_max_timestamp,
)
from ottla.protocol.records.errors import CorruptRecord, InvalidMagic, RecordFormatError, UnknownCompressionCodec
from tests.support.batches import FIRST_TIMESTAMP, a_batch, with_bytes

MAGIC_1 = bytes.fromhex("00000000000000000000001839268c3301000000018bcfe56800000000016b0000000176")
MAGIC_0 = bytes.fromhex("0000000000000000000000101fecd70a0000000000016b0000000176")


def test_the_properties_of_a_header_follow_from_its_fields() -> None:
    header = parse_header(a_batch(3, "zstd", base_offset=40, producer_id=7, base_sequence=MAX_INT32, transactional=True))
    assert (header.last_offset, header.next_offset, header.size) == (42, 43, header.batch_length + 12)
    assert (header.compression_codec, header.is_transactional, header.is_control) == (4, True, False)
    assert (header.timestamp_type, header.delete_horizon_ms, header.last_sequence) == (TimestampType.CREATE_TIME, None, 1)


def test_a_batch_without_producer_has_no_sequence() -> None:
    header = parse_header(a_batch())
    assert (header.producer_id, header.last_sequence) == (-1, -1)


def test_a_delete_horizon_takes_the_place_of_the_base_timestamp() -> None:
    header = parse_header(a_batch(2, delete_horizon_ms=FIRST_TIMESTAMP + 99))
    assert (header.has_delete_horizon, header.delete_horizon_ms) == (True, FIRST_TIMESTAMP + 99)
    assert header.max_timestamp == FIRST_TIMESTAMP + 1


def test_batches_are_found_one_after_another_and_a_cut_off_last_one_is_passed_over() -> None:
    first, second = a_batch(2), a_batch(1, "lz4", base_offset=2)
    buffer = first + second + a_batch(1, base_offset=3)[:-1]
    assert [(position, header.base_offset) for position, header in iter_batches(buffer)] == [(0, 0), (len(first), 2)]
    assert [position for position, _ in iter_batches(memoryview(buffer), start=len(first))] == [len(first)]
    assert [position for position, _ in iter_batches(buffer, end=len(first))] == [0]


@pytest.mark.parametrize("length", [0, 11, 12, 16])
def test_less_than_a_header_up_to_the_magic_is_no_batch(length: int) -> None:
    assert next_batch_size(a_batch()[:length], 0, length) is None


@pytest.mark.parametrize(("message", "timestamp"), [(MAGIC_0, -1), (MAGIC_1, 1700000000000)])
def test_a_message_of_an_old_format_has_a_header(message: bytes, timestamp: int) -> None:
    ((position, header),) = iter_batches(message)
    assert (position, header.magic, header.size) == (0, message[16], len(message))
    assert (header.base_offset, header.last_offset, header.record_count, header.max_timestamp) == (0, 0, 1, timestamp)
    assert (header.partition_leader_epoch, header.producer_id, header.base_sequence) == (-1, -1, -1)
    assert crc_is_valid(message)
    assert not crc_is_valid(message[:-1] + b"x")


@pytest.mark.parametrize("magic", [3, 127, -1, -128])
def test_a_magic_that_never_existed_is_corrupt(magic: int) -> None:
    with pytest.raises(InvalidMagic) as caught:
        list(iter_batches(with_bytes(a_batch(), 16, magic.to_bytes(1, "big", signed=True))))
    assert caught.value.magic == magic


@pytest.mark.parametrize("length", [-(2**31), -12, 0, 13, 14, 48])
def test_a_length_that_no_batch_can_have_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptRecord):
        list(iter_batches(with_bytes(a_batch(), 8, length.to_bytes(4, "big", signed=True))))


def test_the_checksum_covers_everything_from_the_attributes_on_and_nothing_before() -> None:
    batch = a_batch(2, value_bytes=20)
    for position in range(len(batch)):
        damaged = bytearray(b"prefix") + batch
        damaged[6 + position] ^= 1
        if 8 <= position < 12:
            continue  # the length says what the checksum is computed over
        assert crc_is_valid(damaged, 6) == (position < 17 and position not in range(8, 12)), position


def test_stamping_changes_offset_and_leader_epoch_alone() -> None:
    batch = a_batch(3)
    buffer = memoryview(bytearray(5) + batch)
    fields.stamp(buffer, 5, 1 << 40, parse_header(batch).batch_length, 17)
    assert parse_header(buffer, 5) == parse_header(batch)._replace(base_offset=1 << 40, partition_leader_epoch=17)
    assert crc_is_valid(buffer, 5)
    assert bytes(buffer[:5]) == bytes(5)
    assert buffer[5 + HEADER_SIZE :] == batch[HEADER_SIZE:]


def test_log_append_time_marks_the_batch_and_keeps_its_checksum_right() -> None:
    buffer = bytearray(3) + a_batch(3, "gzip")
    header = parse_header(buffer, 3)
    stamp_max_timestamp(buffer, 3, header, TimestampType.LOG_APPEND_TIME, FIRST_TIMESTAMP + 5000)
    stamped = parse_header(buffer, 3)
    assert (stamped.timestamp_type, stamped.max_timestamp) == (TimestampType.LOG_APPEND_TIME, FIRST_TIMESTAMP + 5000)
    assert (stamped.compression_codec, stamped.base_timestamp) == (1, header.base_timestamp)
    assert crc_is_valid(buffer, 3)


def test_a_header_that_is_right_already_is_not_touched() -> None:
    batch = with_bytes(a_batch(), 21, b"\x00\x80")  # an attribute bit without meaning
    before = bytes(batch)
    stamp_max_timestamp(batch, 0, parse_header(batch), TimestampType.CREATE_TIME, FIRST_TIMESTAMP)
    assert batch == before
    stamp_max_timestamp(batch, 0, parse_header(batch), TimestampType.CREATE_TIME, FIRST_TIMESTAMP + 1)
    assert parse_header(batch).attributes == 0
    assert crc_is_valid(batch)


def test_sequences_wrap_to_zero() -> None:
    assert increment_sequence(MAX_INT32, 1) == 0
    assert increment_sequence(MAX_INT32 - 2, 5) == 2
    assert increment_sequence(5, 3) == 8


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codec_bits_without_a_codec_are_refused(codec: int) -> None:
    with pytest.raises(UnknownCompressionCodec):
        known_codec(parse_header(with_bytes(a_batch(), 21, codec.to_bytes(2, "big"))))


@given(buffer=st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_arbitrary_bytes_give_batches_inside_the_buffer_or_a_declared_error(buffer: bytes) -> None:
    _iterate(buffer)


@given(flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=5))
@settings(max_examples=200, deadline=None)
def test_damaged_batches_give_batches_inside_the_buffer_or_a_declared_error(flips: list[tuple[int, int]]) -> None:
    buffer = a_batch(3) + a_batch(2, "zstd", base_offset=3)
    for position, change in flips:
        buffer[position % len(buffer)] ^= change
    _iterate(bytes(buffer))


def _iterate(buffer: bytes) -> None:
    try:
        for position, header in iter_batches(buffer):
            assert HEADER_SIZE <= header.size <= len(buffer) - position
            crc_is_valid(buffer, position)
    except RecordFormatError:
        pass
