"""What a leader demands of produced records."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.records.batch import HEADER_SIZE, BatchHeader, TimestampType, crc_is_valid, parse_header
from ottla.protocol.records.builder import encode_varint
from ottla.protocol.records.compression import CompressionCodec, compress
from ottla.protocol.records.reader import iter_records
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.errors import CorruptRecord, InvalidRecord, InvalidTimestamp, RecordTooLarge, StorageError, UnsupportedCompressionType
from ottla.storage.validation.batch import (
    INLINE_CHECK_MAX_BYTES,
    INLINE_CHECK_MAX_RECORDS,
    INLINE_EXPANDED_MAX_BYTES,
    INLINE_SUSPECT_MAX_RECORDS,
    complete_validation,
    read_only_batch,
)
from ottla.storage.validation.record_errors import InvalidProduceRecords, MalformedRecords, UnreadableRecords, error_message
from ottla.storage.validation.records import check_produced
from ottla.storage.validation.rules import ValidationRules
from ottla.storage.validation.run import BatchRun
from tests.support.batches import FIRST_TIMESTAMP, a_batch, a_record, judged, with_bytes
from tests.support.odd_batches import framed

ORDERS = TopicPartition("orders", 0)
PLAIN = ValidationRules(ORDERS)
COMPACTED = ValidationRules(ORDERS, compact=True)
LOG_APPEND_TIME = ValidationRules(ORDERS, timestamp_type=TimestampType.LOG_APPEND_TIME)
NOW = FIRST_TIMESTAMP + 60_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def validated(batch: bytearray, rules: ValidationRules = PLAIN) -> BatchRun:
    """The batch after everything that validation does, the worker's part included."""
    result = judged(batch, rules, NOW)
    return complete_validation(result.detached(), rules, NOW) if result.needs_worker else result


def read(records: bytes | bytearray, version: int = 7) -> BatchHeader:
    """The header of what a Produce request of that version has for a partition."""
    run = BatchRun(memoryview(records))
    read_only_batch(run, version)
    return run.header()


# --- the one batch of a request


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("records", [1, 3, 50])
def test_a_good_batch_is_accepted_as_it_is(codec: str, records: int) -> None:
    batch = a_batch(records, codec, producer_id=9)
    result = judged(batch, PLAIN, NOW)
    assert (result.needs_worker, result.needs_recompression, result.takes_log_append_time) == (False, False, False)
    assert (result.header(), result.size, result.new_max_timestamp, result.log_append_time_ms) == (
        parse_header(batch),
        len(batch),
        FIRST_TIMESTAMP + records - 1,
        -1,
    )
    before = result.header()
    result.stamp(100, 4)
    stamped = parse_header(batch)
    assert stamped == result.header() == before._replace(base_offset=100, partition_leader_epoch=4)
    assert crc_is_valid(batch)


def test_records_in_a_buffer_that_cannot_be_written_are_copied() -> None:
    batch = bytes(a_batch(2))
    for records in (batch, memoryview(batch)):
        result = judged(records, PLAIN, NOW)
        result.stamp(9, 1)
        assert parse_header(result.batch()).base_offset == 9
    assert batch == a_batch(2)


def test_nothing_and_two_batches_are_no_produce_request() -> None:
    for records in (b"", a_batch()[:-1], a_batch()[:12], a_batch() + a_batch()):
        with pytest.raises(InvalidProduceRecords):
            read(bytearray(records))


def test_an_incomplete_batch_behind_the_first_is_cut_off() -> None:
    batch = a_batch(2)
    result = judged(batch + a_batch()[:-1], PLAIN, NOW)
    assert result.batch() == batch


@pytest.mark.parametrize("claimed", [2**31 - 1, 2**31 - 12, 2**31 - 13, 2**30])
def test_a_batch_that_claims_gibibytes_is_incomplete_like_every_other(claimed: int) -> None:
    batch = a_batch(2)
    claiming = with_bytes(batch, 8, claimed.to_bytes(4, "big"))
    with pytest.raises(InvalidProduceRecords, match="must have at least one record batch"):
        read(claiming)
    assert read(batch + claiming) == read(batch)


def test_garbage_that_looks_like_a_header_refuses_the_records() -> None:
    with pytest.raises(MalformedRecords) as caught:
        read(bytearray(80))
    assert error_message(caught.value) == "Record size 0 is less than the minimum record overhead (14)"
    with pytest.raises(CorruptRecord) as behind:
        read(a_batch() + bytes(20))
    assert error_message(behind.value) is None


def test_zstd_needs_produce_version_7() -> None:
    with pytest.raises(UnsupportedCompressionType):
        read(a_batch(1, "zstd"), 6)
    assert read(a_batch(1, "zstd"), 7).compression_codec == 4
    assert read(a_batch(1, "lz4"), 3).compression_codec == 3


def test_zstd_is_not_stored_while_older_brokers_could_not_read_it() -> None:
    for target, codec, is_refused in (
        (None, "zstd", True),
        (None, "lz4", False),
        (None, "none", False),
        (CompressionCodec.ZSTD, "lz4", True),
        (CompressionCodec.ZSTD, "none", True),
        (CompressionCodec.GZIP, "zstd", False),
    ):
        rules = ValidationRules(ORDERS, compression_codec=target, refuses_zstd=True)
        batch = a_batch(2, codec)
        if is_refused:
            with pytest.raises(UnsupportedCompressionType):
                judged(batch, rules, NOW)
        else:
            judged(batch, rules, NOW)
    judged(a_batch(2, "zstd"), ValidationRules(ORDERS), NOW)


# --- the header


def test_a_damaged_batch_is_corrupt() -> None:
    batch = a_batch(2)
    batch[-1] ^= 1
    with pytest.raises(CorruptRecord):
        judged(batch, PLAIN, NOW)


def test_a_batch_of_exactly_the_allowed_size_is_accepted_and_a_byte_more_is_not() -> None:
    batch = a_batch(value_bytes=500)
    judged(batch, ValidationRules(ORDERS, max_message_bytes=len(batch)), NOW)
    with pytest.raises(RecordTooLarge) as caught:
        judged(batch, ValidationRules(ORDERS, max_message_bytes=len(batch) - 1), NOW)
    assert (caught.value.size_bytes, caught.value.limit_bytes) == (len(batch), len(batch) - 1)


def test_the_size_is_judged_before_the_checksum() -> None:
    batch = a_batch(value_bytes=500)
    batch[-1] ^= 1
    with pytest.raises(RecordTooLarge):
        judged(batch, ValidationRules(ORDERS, max_message_bytes=100), NOW)


@pytest.mark.parametrize(("last_offset_delta", "count"), [(0, 2), (1, 1), (5, 6), (-1, 0), (-2, -1), (2**31 - 1, 2**31 - 1)])
def test_the_count_and_the_offsets_have_to_agree(last_offset_delta: int, count: int) -> None:
    batch = with_bytes(a_batch(), 23, last_offset_delta.to_bytes(4, "big", signed=True))
    with pytest.raises(InvalidRecord):
        judged(with_bytes(batch, 57, count.to_bytes(4, "big", signed=True)), PLAIN, NOW)


def test_a_producer_may_not_choose_the_base_offset_but_a_coordinator_may() -> None:
    batch = a_batch(base_offset=5)
    with pytest.raises(InvalidRecord):
        judged(batch, PLAIN, NOW)
    judged(batch, PLAIN, NOW, from_client=False)


def test_control_batches_are_for_coordinators_only() -> None:
    batch = a_batch(control=True, transactional=True, producer_id=3, base_sequence=-1)
    with pytest.raises(InvalidRecord, match="control"):
        judged(with_bytes(batch, 53, bytes(4)), PLAIN, NOW)
    assert not judged(batch, COMPACTED, NOW, from_client=False).needs_worker


def test_a_producer_id_needs_a_sequence() -> None:
    with pytest.raises(InvalidRecord, match="sequence"):
        judged(a_batch(producer_id=3, base_sequence=-1), PLAIN, NOW)
    judged(a_batch(producer_id=-1, base_sequence=-1), PLAIN, NOW)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_do_not_exist_are_unreadable(codec: int) -> None:
    with pytest.raises(UnreadableRecords):
        judged(with_bytes(a_batch(), 21, codec.to_bytes(2, "big")), PLAIN, NOW)


@pytest.mark.parametrize("codec", [1, 3, 4])
@pytest.mark.parametrize("records", [1, 300])
def test_a_body_that_does_not_begin_like_its_codec_is_unreadable(codec: int, records: int) -> None:
    batch = with_bytes(a_batch(records), 21, codec.to_bytes(2, "big"))
    with pytest.raises(UnreadableRecords):
        validated(batch)


# --- records


@pytest.mark.parametrize("records", [1, 2, 4, 5, 60])
@pytest.mark.parametrize("value_bytes", [0, 50, 60, 100, 8000, 9000])
def test_batches_with_values_of_any_length_are_accepted(records: int, value_bytes: int) -> None:
    judged(a_batch(records, value_bytes=value_bytes), PLAIN, NOW)


@pytest.mark.parametrize("records", [1, 2, 4, 5, 60])
def test_the_records_of_a_batch_have_to_fill_it(records: int) -> None:
    for change in (-1, 1, 0x40):
        batch = a_batch(records, value_bytes=10)
        batch[HEADER_SIZE] += 2 * change
        with pytest.raises(InvalidRecord):
            judged(with_bytes(batch, HEADER_SIZE, bytes(batch[HEADER_SIZE : HEADER_SIZE + 1])), PLAIN, NOW)


def test_more_records_than_fit_into_the_bytes_are_refused_at_any_size() -> None:
    batch = with_bytes(a_batch(10), 57, (1000).to_bytes(4, "big"))
    with pytest.raises(InvalidRecord, match="premature EOF"):
        judged(with_bytes(batch, 23, (999).to_bytes(4, "big")), PLAIN, NOW)


# --- timestamps


@pytest.mark.parametrize("codec", CODECS)
def test_the_maximum_timestamp_is_put_right(codec: str) -> None:
    batch = with_bytes(a_batch(10, codec, timestamps=[50, 90, *[70] * 8]), 35, (5).to_bytes(8, "big"))
    result = judged(batch, PLAIN, NOW)
    assert result.new_max_timestamp == 90
    result.stamp(7, 0)
    assert parse_header(batch).max_timestamp == 90
    assert crc_is_valid(batch)


def test_log_append_time_is_the_leaders_clock() -> None:
    batch = a_batch(3, "lz4")
    result = judged(batch, LOG_APPEND_TIME, NOW)
    assert (result.takes_log_append_time, result.new_max_timestamp, result.log_append_time_ms) == (True, NOW, NOW)
    result.stamp(7, 0)
    assert {record.timestamp for record in iter_records(batch)} == {NOW}
    assert crc_is_valid(batch)


@pytest.mark.parametrize("codec", CODECS)
def test_an_early_timestamp_behind_the_first_record_is_found(codec: str) -> None:
    rules = ValidationRules(ORDERS, timestamp_before_max_ms=1000)
    with pytest.raises(InvalidTimestamp):
        judged(a_batch(20, codec, timestamps=[NOW, 5, *[NOW] * 18]), rules, NOW)


def test_claimed_log_append_time_without_a_time_is_refused() -> None:
    with pytest.raises(InvalidTimestamp):
        judged(a_batch(2, timestamps=[-1, -1], log_append_time=-1), PLAIN, NOW)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_producer_may_not_claim_log_append_time_for_a_topic_that_has_it(codec: str) -> None:
    with pytest.raises(InvalidTimestamp) as caught:
        judged(a_batch(2, codec, log_append_time=FIRST_TIMESTAMP), LOG_APPEND_TIME, NOW)
    name = "DefaultRecord" if codec == "none" else "PartialDefaultRecord"
    assert caught.value.record_errors[1] == (
        1,
        f"Invalid timestamp type in message {name}(offset=1, timestamp={FIRST_TIMESTAMP}, key=3 bytes, value=5 bytes). "
        "Producer should not set timestamp type to LogAppendTime.",
    )


def test_claimed_log_append_time_is_taken_away_where_the_topic_has_create_time() -> None:
    batch = a_batch(2, log_append_time=FIRST_TIMESTAMP + 9)
    judged(batch, PLAIN, NOW).stamp(0, 0)
    header = parse_header(batch)
    assert (header.timestamp_type, header.max_timestamp) == (TimestampType.CREATE_TIME, FIRST_TIMESTAMP + 9)
    assert crc_is_valid(batch)


@pytest.mark.parametrize("codec", CODECS)
def test_timestamps_beyond_the_limits_are_refused_record_by_record(codec: str) -> None:
    rules = ValidationRules(ORDERS, timestamp_before_max_ms=1000, timestamp_after_max_ms=500)
    times = [NOW, NOW - 1000, NOW + 500, -1]
    judged(a_batch(4, codec, timestamps=times), rules, NOW)
    for outside in (NOW - 1001, NOW + 501, -2):
        with pytest.raises(InvalidTimestamp) as caught:
            judged(a_batch(5, codec, timestamps=[outside, *times]), rules, NOW)
        assert caught.value.record_errors == (
            (
                0,
                f"Timestamp {outside} of message with offset 0 is out of range. The timestamp should be within [{NOW - 1000}, {NOW + 500}]",
            ),
        )
        assert error_message(caught.value) == "One or more records have been rejected due to invalid timestamp"


@pytest.mark.parametrize("codec", CODECS)
def test_a_timestamp_whose_age_is_no_long_does_not_hide_the_others(codec: str) -> None:
    """In Java's arithmetic the earliest record is not too old, but the one between it and the latest is."""
    rules = ValidationRules(ORDERS, timestamp_before_max_ms=1000)
    with pytest.raises(InvalidTimestamp) as caught:
        judged(a_batch(3, codec, timestamps=[NOW, NOW - 1001, -(2**63)]), rules, NOW)
    assert [index for index, _ in caught.value.record_errors] == [1]


# --- compacted topics


@pytest.mark.parametrize("codec", CODECS)
def test_records_without_key_are_refused_by_compacted_topics(codec: str) -> None:
    records = [a_record(0), a_record(1, key=None), a_record(2, key=None), a_record(3), a_record(4, key=None), a_record(5, key=None)]
    with pytest.raises(InvalidRecord) as caught:
        judged(a_batch(records, codec), COMPACTED, NOW)
    text = "Compacted topic cannot accept message without key in topic partition orders-0"
    assert caught.value.record_errors == tuple((index, text) for index in (1, 2, 4, 5))
    shown = ", ".join(f"RecordError(batchIndex={index}, message='{text}')" for index in (1, 2, 4))
    assert error_message(caught.value) == (
        "One or more records have been rejected due to 4 record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
    judged(a_batch(records, codec), PLAIN, NOW)


def test_of_very_many_refused_records_the_first_ones_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.storage.validation.records.MOST_RECORD_ERRORS", 4)
    with pytest.raises(InvalidRecord) as caught:
        judged(a_batch(10, "gzip", key=None), COMPACTED, NOW)
    assert [index for index, _ in caught.value.record_errors] == [0, 1, 2, 3]
    assert "due to 10 record errors in total" in caught.value.reason


def test_a_worker_lets_the_event_loop_run_between_slices_of_a_refused_batch() -> None:
    batch = a_batch(1_200, key=None)
    pauses: list[None] = []
    with pytest.raises(InvalidRecord):
        check_produced(batch, parse_header(batch), COMPACTED, NOW, lambda: pauses.append(None))
    assert len(pauses) == 6, "one for the check, five for the errors"


def test_large_batches_are_left_to_a_worker() -> None:
    many = a_batch([a_record(offset, FIRST_TIMESTAMP, None, None) for offset in range(INLINE_CHECK_MAX_RECORDS + 1)])
    large = a_batch(1, value_bytes=INLINE_CHECK_MAX_BYTES)
    compressed = a_batch(2, "lz4", value_bytes=INLINE_EXPANDED_MAX_BYTES)
    for batch in (many, large, compressed):
        rules = ValidationRules(ORDERS, max_message_bytes=len(batch))
        result = judged(batch, rules, NOW)
        assert result.needs_worker
        done = complete_validation(result.detached(), rules, NOW)
        assert not done.needs_worker
        assert done.batch() == batch


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_many_records_of_which_one_breaks_a_rule_are_left_to_a_worker(codec: str) -> None:
    records = [a_record(offset, key=None if offset == 7 else b"k") for offset in range(INLINE_SUSPECT_MAX_RECORDS + 1)]
    result = judged(a_batch(records, codec), COMPACTED, NOW)
    assert result.needs_worker
    with pytest.raises(InvalidRecord) as caught:
        complete_validation(result.detached(), COMPACTED, NOW)
    assert [index for index, _ in caught.value.record_errors] == [7]


def test_a_batch_that_is_small_only_while_compressed_is_left_to_a_worker() -> None:
    batch = a_batch(10, "zstd", value_bytes=50_000)
    assert len(batch) < 2000
    assert judged(batch, PLAIN, NOW).needs_worker
    assert validated(batch, PLAIN).header() == parse_header(batch)


@pytest.mark.parametrize("target", [None, CompressionCodec.LZ4])
def test_a_record_that_claims_2_gib_takes_no_memory_for_them(target: CompressionCodec | None) -> None:
    """The batch has 300 bytes, and expands to two pieces."""
    batch = framed(compress(CompressionCodec.GZIP, encode_varint(2**31 - 1) + bytes(200_000)), CompressionCodec.GZIP)
    rules = ValidationRules(ORDERS, compression_codec=target)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecord):
            complete_validation(judged(batch, rules, NOW).detached(), rules, NOW, max_bytes=INLINE_CHECK_MAX_BYTES)
        assert tracemalloc.get_traced_memory()[1] < 2 * INLINE_CHECK_MAX_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", CODECS)
def test_a_coordinators_records_are_not_examined(codec: str) -> None:
    batch = with_bytes(a_batch(2, codec), 57, (200).to_bytes(4, "big"))
    assert judged(batch, PLAIN, NOW, from_client=False).is_accepted
    with pytest.raises(InvalidRecord):
        judged(batch, PLAIN, NOW)


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_records_with_odd_offsets_are_unreadable(codec: str) -> None:
    batch = with_bytes(a_batch([a_record(5), a_record(7), a_record(2)], codec, base_offset=0), 23, (2).to_bytes(4, "big"))
    if codec == "none":
        assert validated(batch).batch() == batch
    else:
        with pytest.raises(UnreadableRecords):
            validated(batch)


# --- anything


@given(
    codec=st.sampled_from(CODECS),
    records=st.integers(1, 6),
    flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4),
    rules=st.sampled_from([PLAIN, COMPACTED, LOG_APPEND_TIME, ValidationRules(ORDERS, compression_codec=3, timestamp_before_max_ms=10)]),
    right_crc=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_damaged_batches_are_accepted_or_refused_and_nothing_else(
    codec: str, records: int, flips: list[tuple[int, int]], rules: ValidationRules, right_crc: bool
) -> None:
    batch = a_batch(records, codec)
    for position, byte in flips:
        batch[position % len(batch)] = byte
    try:
        result = validated(with_bytes(batch, 0, b"") if right_crc else batch, rules)
    except StorageError:
        return
    result.stamp(1000, 3)
    header = parse_header(result.batch())
    assert crc_is_valid(result.batch())
    assert (header.base_offset, header.partition_leader_epoch, header.size) == (1000, 3, len(result.batch()))
    assert header.record_count == header.last_offset_delta + 1


@given(records=st.binary(max_size=150))
@settings(max_examples=200, deadline=None)
def test_arbitrary_bytes_are_refused(records: bytes) -> None:
    with pytest.raises(StorageError):
        judged(bytearray(records), PLAIN, NOW)
