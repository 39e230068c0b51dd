"""The reader of answers to a Fetch reads what the generated codec reads: recorded frames, every version and shape, and damaged bytes."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.cursors.fetch_answer_reader import FetchAnswerReader
from ottla.protocol.cursors.request_reader import END, PARTITION
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.schema.wire import ProtocolError
from tests.support.fetch_requests import fetch_responses
from tests.support.golden_frames import all_golden_frames
from tests.support.produce_requests import MANY_EXAMPLES

LAST_VERSION = FetchResponse.SCHEMA.versions.last
VERSIONS = range(LAST_VERSION + 1)


def reader_of(data: bytes, version: int, offset: int = 0) -> FetchAnswerReader:
    return FetchAnswerReader(memoryview(bytearray(data)), offset, version)


def partitions_of(reader: FetchAnswerReader) -> list[tuple[Any, ...]]:
    found = []
    while (element := reader.advance()) != END:
        if element != PARTITION:
            continue
        found.append(
            (
                reader.topic, reader.index, reader.partition_error_code, reader.high_watermark, reader.last_stable_offset,
                reader.log_start_offset, reader.preferred_read_replica, reader.diverging_epoch, reader.diverging_end_offset,
                bytes(reader.records()),
            )
        )  # fmt: skip
    return found


def is_read_equally(data: bytes, version: int, offset: int = 0) -> bool:
    """What the generated decoder accepts is read the same; whether the reader accepts the bytes. It passes over more than that one does."""
    try:
        response, end = FetchResponse.decode(memoryview(data), version, offset)
    except ProtocolError:
        response = None
    try:
        reader = reader_of(data, version, offset)
        assert reader.verify(1_000_000)
    except ProtocolError:
        assert response is None
        return False
    found = partitions_of(reader)
    assert reader.advance() == END
    if response is None:
        return True
    assert reader.at == end
    assert (reader.throttle_time_ms, reader.error_code, reader.session_id) == (
        response.throttle_time_ms, response.error_code, response.session_id
    )  # fmt: skip
    assert found == [
        (
            topic.topic_id if version >= 13 else topic.topic.encode(), told.partition_index, told.error_code, told.high_watermark,
            told.last_stable_offset, told.log_start_offset, told.preferred_read_replica, told.diverging_epoch.epoch,
            told.diverging_epoch.end_offset, bytes(told.records or b""),
        )
        for topic in response.responses
        for told in topic.partitions
    ]  # fmt: skip
    return True


def test_every_recorded_answer_is_read_the_same() -> None:
    checked = 0
    for frame in all_golden_frames():
        if not frame.is_request and frame.api.key == ApiKey.FETCH:
            _, offset = frame.header_class.decode(frame.data, frame.header_version)
            assert is_read_equally(frame.data, frame.version, offset), frame.where
            checked += 1
    assert checked > 20


@pytest.mark.slow
@MANY_EXAMPLES
@given(st.sampled_from(VERSIONS), st.data())
def test_any_answer_is_read_the_same(version: int, data: st.DataObject) -> None:
    assert is_read_equally(data.draw(fetch_responses(version)).encode(version), version)


@MANY_EXAMPLES
@given(st.sampled_from(VERSIONS), st.data())
def test_a_changed_or_cut_answer_is_read_the_same_or_refused(version: int, data: st.DataObject) -> None:
    changed = bytearray(data.draw(fetch_responses(version)).encode(version))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(changed)))
        changed[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=5))
    is_read_equally(bytes(changed[: data.draw(st.integers(0, len(changed)))]), version)
    is_read_equally(bytes(changed), version)


@given(st.sampled_from(VERSIONS), st.binary(max_size=200))
@example(version=17, data=b"")
def test_any_bytes_are_read_the_same_or_refused(version: int, data: bytes) -> None:
    is_read_equally(data, version)


@pytest.mark.parametrize("version", [0, 4, 11, 12, 17])
@pytest.mark.parametrize("size", [2**14 - 2, 2**14 - 1, 2**21 - 2, 2**21 - 1, 2**22])
def test_records_of_any_length_are_a_view_of_the_frame(version: int, size: int) -> None:
    told = PartitionData(high_watermark=1, records=bytes(size))
    frame = memoryview(bytearray(FetchResponse(responses=[FetchableTopicResponse(partitions=[told])]).encode(version)))
    reader = FetchAnswerReader(frame, 0, version)
    assert reader.advance() == PARTITION
    records = reader.records()
    assert len(records) == size
    frame[reader.start] = 7
    assert records[0] == 7
