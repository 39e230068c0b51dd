"""The records inside a batch: written, read again, and refused when they break the format."""

import contextlib
import itertools
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.records.batch import HEADER_SIZE, TIMESTAMP_TYPE_MASK, BatchHeader, crc_is_valid, parse_header
from ottla.protocol.records.builder import (
    VARINTS,
    ControlRecordType,
    EndTransactionMarker,
    build_end_transaction_marker,
    control_record_type,
    empty_batch,
    encode_outlines,
    encode_records,
    encode_varint,
    encode_varlong,
    parse_end_transaction_marker,
)
from ottla.protocol.records.compression import CODEC_BY_NAME
from ottla.protocol.records.errors import DecompressionTooLarge, InvalidRecord, RecordFormatError
from ottla.protocol.records.reader import (
    BYTES_PER_SLICE,
    Record,
    RecordsSummary,
    check_records,
    iter_keys_and_values,
    iter_offsets_and_timestamps,
    iter_records,
    join_header_keys,
    outline_records,
    parse_records,
    record_data,
    record_pieces,
)
from ottla.protocol.records.record_step import INCOMPLETE, OVERLONG, read_varint, read_varlong
from tests.support.batches import FIRST_TIMESTAMP, a_batch, a_record, with_bytes, with_crc

maybe_bytes = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.binary(max_size=20), maybe_bytes), max_size=3).map(tuple)
contents = st.lists(st.tuples(st.integers(-1, 2**48), maybe_bytes, maybe_bytes, headers), min_size=1, max_size=12)


def checked(data: bytes, header: BatchHeader) -> RecordsSummary:
    """What a check of these records finds."""
    return check_records(iter((data,)), header)


@given(contents=contents, codec=st.sampled_from(sorted(CODEC_BY_NAME)), base_offset=st.integers(0, 2**60))
@settings(max_examples=150, deadline=None)
def test_records_come_back_as_they_were_written(
    contents: list[tuple[int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]], codec: str, base_offset: int
) -> None:
    records = [Record(base_offset + index, *content) for index, content in enumerate(contents)]
    batch = a_batch(records, codec, base_offset)
    assert crc_is_valid(batch)
    assert list(iter_records(memoryview(batch))) == records
    assert parse_header(batch).max_timestamp == max(record.timestamp for record in records)


@given(value=st.integers(-(2**31), 2**31 - 1))
def test_varints_come_back(value: int) -> None:
    encoded = encode_varint(value)
    assert len(encoded) <= 5
    assert read_varint(encoded, 0, len(encoded)) == (value, len(encoded))


@given(value=st.integers(-(2**63), 2**63 - 1))
def test_varlongs_come_back(value: int) -> None:
    encoded = encode_varlong(value)
    assert len(encoded) <= 10
    assert read_varlong(b"\x00" + encoded, 1, len(encoded) + 1) == (value, len(encoded) + 1)


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-(2**31), "ffffffff0f"), (2**31 - 1, "feffffff0f")],
)
def test_zigzag_is_kafkas(value: int, data: str) -> None:
    assert encode_varint(value).hex() == encode_varlong(value).hex() == data


def test_the_table_of_varints_holds_what_is_encoded() -> None:
    assert [encode_varint(value) for value in range(len(VARINTS))] == VARINTS
    assert len(VARINTS) >= 1024


def test_varints_that_are_too_long_or_cut_off_have_no_end() -> None:
    assert read_varint(b"\x80" * 5 + b"\x01", 0, 6)[1] == OVERLONG
    assert read_varlong(b"\x80" * 10 + b"\x01", 0, 11)[1] == OVERLONG
    for read in (read_varint, read_varlong):
        assert read(b"\x80\x80\x01", 0, 2)[1] == INCOMPLETE


def test_timestamps_of_a_log_append_time_batch_are_the_leaders() -> None:
    batch = a_batch(3, log_append_time=FIRST_TIMESTAMP + 777)
    assert {record.timestamp for record in iter_records(batch)} == {FIRST_TIMESTAMP + 777}


def test_records_keep_their_offsets_after_compaction_left_gaps() -> None:
    records = [a_record(offset) for offset in (3, 7, 8)]
    batch = a_batch(records, "lz4", base_offset=1)
    assert [record.offset for record in iter_records(batch)] == [3, 7, 8]
    assert not checked(record_data(batch, 0, parse_header(batch)), parse_header(batch)).offsets_are_consecutive


def test_timestamps_that_leave_the_range_wrap_as_in_java() -> None:
    batch = a_batch([a_record(0, timestamp=2**62), a_record(1, timestamp=-(2**62) - 5)])
    wrapped = with_bytes(batch, 27, (2**63 - 1).to_bytes(8, "big"))
    assert all(-(2**63) <= record.timestamp < 2**63 for record in iter_records(wrapped))


def test_a_long_batch_is_checked_in_slices() -> None:
    batch = a_batch([a_record(offset, timestamp=FIRST_TIMESTAMP + offset % 700) for offset in range(40_000)])
    pauses: list[None] = []
    summary = check_records(iter((record_data(batch, 0, parse_header(batch)),)), parse_header(batch), lambda: pauses.append(None))
    assert summary == (FIRST_TIMESTAMP + 699, FIRST_TIMESTAMP, True, False)
    assert len(pauses) == -(-(len(batch) - HEADER_SIZE) // BYTES_PER_SLICE) > 1


def test_few_long_records_are_checked_in_as_many_slices() -> None:
    """Each of them may have half a million headers."""
    batch = a_batch([a_record(offset, value=bytes(BYTES_PER_SLICE)) for offset in range(5)])
    pauses: list[None] = []
    check_records(record_pieces(batch, 0, parse_header(batch)), parse_header(batch), lambda: pauses.append(None))
    assert len(pauses) == 5


@pytest.mark.slow
def test_headers_that_nobody_needs_are_not_made() -> None:
    """A compressed batch of 1 MiB may have 64 million empty ones."""
    batch = a_batch([a_record(headers=[(b"", None)] * 50_000)])
    header, data = parse_header(batch), record_data(batch, 0, parse_header(batch))
    tracemalloc.start()
    try:
        checked(data, header)
        assert len(list(iter_keys_and_values(data, header))) == 1
        assert list(iter_offsets_and_timestamps(data, header)) == [(0, FIRST_TIMESTAMP)]
        (record,) = parse_records(data, header, read_headers=join_header_keys)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert record.headers == ((b"," * 49_999, None),)


@pytest.mark.parametrize("is_log_append_time", [False, True])
def test_outlines_are_the_records_with_key_value_and_headers_encoded(is_log_append_time: bool) -> None:
    records = [
        a_record(0, key=None, value=b"v" * 300, headers=[(b"h", None), (b"", b"x")]),
        a_record(1, timestamp=FIRST_TIMESTAMP - 7, key=b"k" * 70, value=None),
        a_record(2, timestamp=FIRST_TIMESTAMP + 2**40),
    ]
    batch = a_batch(records)
    header = parse_header(batch)
    if is_log_append_time:
        header = header._replace(attributes=header.attributes | TIMESTAMP_TYPE_MASK)
    data = record_data(batch, 0, header)
    outlines = list(outline_records(data, header))
    expected = list(parse_records(data, header))
    assert [outline[:2] for outline in outlines] == [record[:2] for record in expected]
    assert [(outline.key_bytes, outline.value_bytes) for outline in outlines] == [(-1, 300), (70, -1), (1, 1)]
    assert encode_outlines(outlines, 5, header.base_timestamp) == encode_records(expected, -5, header.base_timestamp)


def test_a_summary_leaves_out_records_without_timestamp() -> None:
    batch = a_batch([a_record(0, timestamp=50), a_record(1, timestamp=-1), a_record(2, timestamp=40, key=None)])
    summary = checked(record_data(batch, 0, parse_header(batch)), parse_header(batch))
    assert summary == (50, 40, True, True)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("count", [-1, 1, 3])
def test_a_count_that_differs_from_the_records_is_refused(codec: str, count: int) -> None:
    batch = with_bytes(a_batch(2, codec), 57, count.to_bytes(4, "big", signed=True))
    with pytest.raises(InvalidRecord):
        list(iter_records(batch))


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"", "nothing"),
        (b"\x80", "half a length"),
        (b"\x10\x00\x00\x00\x02k\x02v", "a length beyond the batch"),
        (b"\x0c\x00\x00\x00\x02k\x02v\x00", "a length that is too small"),
        (b"\x12\x00\x00\x00\x02k\x02v\x00\x00", "a length that is too large"),
        (b"\x01\x00\x00\x00\x02k\x02v\x00", "a negative length"),
        (b"\x10\x00\x00\x00\x7ek\x02v\x00", "a key beyond the batch"),
        (b"\x10\x00\x00\x00\x02k\x7ev\x00", "a value beyond the batch"),
        (b"\x10\x00\x00\x00\x02k\x02v\x01", "a negative number of headers"),
        (b"\x10\x00\x00\x00\x02k\x02v\x7e", "more headers than bytes"),
        (b"\x14\x00\x00\x00\x02k\x02v\x02\x01\x01", "a header without key"),
        (b"\x10\x00\x00\x00\x02k\x02v\x00rest", "bytes behind the last record"),
        (b"\x22\x00" + b"\x80" * 10 + b"\x01\x00\x02k\x02v\x00", "a timestamp delta that never ends"),
    ],
)
def test_bodies_that_are_no_records_are_refused(body: bytes, what: str) -> None:
    batch = a_batch()[:HEADER_SIZE] + body
    batch = with_bytes(batch, 8, (len(batch) - 12).to_bytes(4, "big"))
    with pytest.raises(InvalidRecord):
        list(iter_records(batch))
    with pytest.raises(InvalidRecord):
        checked(body, parse_header(batch))


@given(data=st.binary(max_size=80), count=st.integers(-1, 5))
@settings(max_examples=400, deadline=None)
def test_walking_and_reading_agree_on_arbitrary_bytes(data: bytes, count: int) -> None:
    _walk_as_read(data, count)


@given(flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3), count=st.integers(1, 4))
@settings(max_examples=400, deadline=None)
def test_walking_and_reading_agree_on_damaged_records(flips: list[tuple[int, int]], count: int) -> None:
    records = [a_record(index, value=b"v" * 70 * index, headers=[(b"h", b"x"), (b"n", None)]) for index in range(count)]
    data = encode_records(records, 0, FIRST_TIMESTAMP)
    for position, byte in flips:
        data[position % len(data)] = byte
    _walk_as_read(bytes(data), count)


@given(
    cuts=st.lists(st.integers(0, 700), max_size=12),
    flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=2),
    count=st.integers(1, 8),
)
@settings(max_examples=400, deadline=None)
def test_records_in_pieces_are_judged_as_in_one(cuts: list[int], flips: list[tuple[int, int]], count: int) -> None:
    records = [a_record(index, value=b"v" * 30 * index, headers=[(b"h", b"x"), (b"n", None)]) for index in range(count)]
    data = encode_records(records, 0, FIRST_TIMESTAMP)
    for position, byte in flips:
        data[position % len(data)] = byte
    header = parse_header(a_batch())._replace(record_count=count)
    places = sorted({0, *(min(cut, len(data)) for cut in cuts), len(data)})
    pieces = [bytes(data[start:end]) for start, end in itertools.pairwise(places)]
    try:
        expected: RecordsSummary | str = checked(bytes(data), header)
    except InvalidRecord as error:
        expected = type(error).__name__
    try:
        found: RecordsSummary | str = check_records(iter(pieces), header)
    except InvalidRecord as error:
        found = type(error).__name__
    assert found == expected


def test_a_record_that_claims_more_than_the_limit_is_not_collected() -> None:
    header = parse_header(a_batch())
    pieces = iter([encode_varint(2**30), *[bytes(1000)] * 100])
    with pytest.raises(DecompressionTooLarge):
        check_records(pieces, header, max_bytes=10_000)
    assert len(list(pieces)) >= 89


def _walk_as_read(data: bytes, count: int) -> None:
    header = parse_header(a_batch())._replace(record_count=count)
    try:
        records = list(parse_records(data, header))
    except InvalidRecord:
        with pytest.raises(InvalidRecord):
            checked(data, header)
        with pytest.raises(InvalidRecord):
            list(iter_keys_and_values(data, header))
        with pytest.raises(InvalidRecord):
            list(parse_records(data, header, read_headers=join_header_keys))
    else:
        assert list(iter_keys_and_values(data, header)) == [(record.key, record.value) for record in records]
        assert list(iter_offsets_and_timestamps(data, header)) == [record[:2] for record in records]
        for record, joined in zip(records, parse_records(data, header, read_headers=join_header_keys), strict=True):
            assert joined[:4] == record[:4]
            assert b",".join(key for key, _ in joined.headers) == b",".join(key for key, _ in record.headers)
        summary = checked(data, header)
        if records:
            assert summary.has_null_key == any(record.key is None for record in records)
            assert [record.offset for record in records] == list(range(count)) or not summary.offsets_are_consecutive


@given(
    codec=st.sampled_from(sorted(CODEC_BY_NAME)),
    flips=st.lists(st.tuples(st.integers(HEADER_SIZE, 10_000), st.integers(0, 255)), min_size=1, max_size=4),
)
@settings(max_examples=200, deadline=None)
def test_damaged_batches_give_records_or_a_declared_error(codec: str, flips: list[tuple[int, int]]) -> None:
    batch = a_batch(5, codec)
    for position, byte in flips:
        batch[HEADER_SIZE + position % (len(batch) - HEADER_SIZE)] = byte
    with contextlib.suppress(RecordFormatError):
        list(iter_records(with_crc(batch), max_bytes=1 << 16))


def test_an_expansion_beyond_the_limit_is_refused() -> None:
    batch = a_batch(10, "zstd", value_bytes=10_000)
    with pytest.raises(DecompressionTooLarge):
        list(iter_records(batch, max_bytes=50_000))


def test_transaction_markers_are_read_as_they_were_written() -> None:
    for kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        marker = EndTransactionMarker(kind, 12)
        batch = build_end_transaction_marker(marker, timestamp=FIRST_TIMESTAMP, producer_id=5, producer_epoch=3)
        header = parse_header(batch)
        assert (header.is_control, header.is_transactional, header.base_sequence, header.record_count) == (True, True, -1, 1)
        assert [parse_end_transaction_marker(record) for record in iter_records(batch)] == [marker]


@pytest.mark.parametrize(
    "record",
    [
        a_record(key=None),
        a_record(key=b"\x00\x00\x00"),
        a_record(key=b"\xff\xff\x00\x00", value=bytes(6)),
        a_record(key=bytes(4), value=None),
        a_record(key=bytes(4), value=bytes(5)),
        a_record(key=bytes(4), value=b"\xff\xff" + bytes(4)),
        a_record(key=b"\x00\x00\x00\x02", value=bytes(6)),
    ],
)
def test_what_is_no_transaction_marker_is_refused(record: Record) -> None:
    with pytest.raises(InvalidRecord):
        parse_end_transaction_marker(record)


def test_control_records_of_a_later_version_are_read_as_far_as_known() -> None:
    assert control_record_type(b"\x00\x01\x00\x01more") is ControlRecordType.COMMIT
    assert control_record_type(b"\x00\x00\x00\x63") is ControlRecordType.UNKNOWN


def test_an_empty_batch_has_offsets_and_sequence_but_no_records() -> None:
    batch = empty_batch(base_offset=5, last_offset=9, timestamp=FIRST_TIMESTAMP, producer_id=4, producer_epoch=1, base_sequence=20)
    header = parse_header(batch)
    assert (header.last_offset, header.last_sequence, header.record_count, header.size) == (9, 24, 0, HEADER_SIZE)
    assert crc_is_valid(batch)
    assert list(iter_records(batch)) == []
