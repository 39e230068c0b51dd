"""The reader and the writer of Produce say what the generated codec says: recorded frames, every version and shape, and damaged bytes."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.cursors.produce import ProduceAnswer, ProduceReader
from ottla.protocol.cursors.request_reader import END, NO_RECORDS, PARTITION
from ottla.protocol.messages.header import ResponseHeader
from ottla.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.schema.registry import api
from ottla.protocol.schema.wire import MAX_ELEMENTS, ProtocolError, TooManyElements, UnsupportedField
from tests.support.golden_frames import all_golden_frames
from tests.support.produce_requests import MANY_EXAMPLES, NAMES, TEXTS, Shown, a_request, advance_to, id_of, key_of, produce_requests, shown

LAST_VERSION = ProduceRequest.SCHEMA.versions.last
VERSIONS = range(LAST_VERSION + 1)


def reader_of(data: bytes, version: int, offset: int = 0) -> ProduceReader:
    return ProduceReader(memoryview(bytearray(data)), offset, version)


def partitions_of(reader: ProduceReader) -> Iterator[Shown]:
    while advance_to(reader, PARTITION):
        yield reader.topic, reader.index, None if reader.start == NO_RECORDS else bytes(reader.frame[reader.start : reader.end])


def verified(data: bytes, version: int, limit: int = 1_000_000) -> ProduceReader:
    reader = reader_of(data, version)
    while not reader.verify(limit):
        pass
    return reader


def shown_once(request: ProduceRequest, version: int) -> list[Shown]:
    """Every partition where it is named last."""
    every = shown(request, version)
    last = {(topic, index): number for number, (topic, index, _) in enumerate(every)}
    return [partition for number, partition in enumerate(every) if last[partition[:2]] == number]


def read_equally(data: bytes, version: int, offset: int = 0) -> bool:
    """Both readers accept the bytes and read the same, or both refuse them; whether they accept."""
    try:
        request, end = ProduceRequest.decode(data, version, offset)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            reader = reader_of(data, version, offset)
            reader.verify(1_000_000)
        return False
    reader = reader_of(data, version, offset)
    transactional_id = None if request.transactional_id is None else request.transactional_id.encode()
    assert (reader.transactional_id, reader.acks, reader.timeout_ms) == (transactional_id, request.acks, request.timeout_ms)
    assert list(partitions_of(reader)) == shown(request, version)
    assert reader.advance() == END
    assert reader.at == end
    reader = verified(data[offset:], version)
    assert list(partitions_of(reader)) == shown_once(request, version)
    return True


def test_every_recorded_produce_is_read_the_same() -> None:
    checked = 0
    for frame in all_golden_frames():
        if frame.is_request and frame.api.key == ApiKey.PRODUCE:
            _, offset = frame.header_class.decode(frame.data, frame.header_version)
            assert read_equally(frame.data, frame.version, offset), frame.where
            checked += 1
    assert checked > 20


@MANY_EXAMPLES
@given(st.sampled_from(VERSIONS), st.data())
def test_any_request_is_read_the_same(version: int, data: st.DataObject) -> None:
    request = data.draw(produce_requests(version))
    assert read_equally(request.encode(version), version)


@MANY_EXAMPLES
@given(st.sampled_from(VERSIONS), st.data())
def test_a_changed_or_cut_request_is_read_the_same_or_refused_by_both(version: int, data: st.DataObject) -> None:
    changed = bytearray(data.draw(produce_requests(version)).encode(version))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(changed)))
        changed[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=5))
    read_equally(bytes(changed[: data.draw(st.integers(0, len(changed)))]), version)
    read_equally(bytes(changed), version)


BYTES = st.lists(
    st.one_of(
        st.sampled_from([b"\x00", b"\x01", b"\x02", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff"]),
        st.binary(max_size=9),
    )
).map(b"".join)


@MANY_EXAMPLES
@given(version=st.sampled_from(VERSIONS), data=BYTES)
@example(version=9, data=b"\x00\x00\x00\x00\x00\x00\x00\x02\x02a\x02\x00\x00\x00\x00\xff\xff\xff\xff\x0f")
@example(version=11, data=b"\x00\x00\x00\x00\x00\x00\x00\x02\x02\xfc\x02\x00\x00\x00\x00\x01\x00\x00\x00")
@example(version=9, data=b"\x00\x00\x00\x00\x00\x00\x00\x82\x80\x80\x80\x70\x02a\x02\x00\x00\x00\x00\x01\x00\x00\x00")
def test_arbitrary_bytes_are_read_the_same_or_refused_by_both(version: int, data: bytes) -> None:
    read_equally(data, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_anywhere_is_refused(version: int) -> None:
    data = a_request(topics=2, partitions=3, records=9).encode(version)
    for cut in range(len(data)):
        assert not read_equally(data[:cut], version)
    assert read_equally(data + b"behind it", version)


def test_a_request_is_verified_a_little_at_a_time() -> None:
    data = a_request(topics=3, partitions=30, records=9).encode(LAST_VERSION)
    reader = reader_of(data, LAST_VERSION)
    turns = 1
    while not reader.verify(10):
        turns += 1
    assert 9 <= turns <= 12
    assert list(partitions_of(reader)) == list(partitions_of(reader_of(data, LAST_VERSION)))


def test_a_partition_that_is_named_again_is_shown_where_it_is_named_last() -> None:
    def topic(name: str, *indexes: int) -> TopicProduceData:
        partitions = [PartitionProduceData(index=index, records=b"r") for index in indexes]
        return TopicProduceData(name=name, topic_id=id_of(name), partition_data=partitions)

    request = ProduceRequest(topic_data=[topic("a", 0, 1, 0), topic("b", 0), topic("a", 1)])
    reader = verified(request.encode(LAST_VERSION), LAST_VERSION)
    assert [(name, index) for name, index, _ in partitions_of(reader)] == [(id_of("a"), 0), (id_of("b"), 0), (id_of("a"), 1)]


def test_elements_that_show_nothing_are_passed_one_at_a_time() -> None:
    count = 1000
    named_again = [PartitionProduceData(index=7, records=b"r")] * count
    request = ProduceRequest(topic_data=[*[TopicProduceData(name="e")] * count, TopicProduceData(name="t", partition_data=named_again)])
    reader = verified(request.encode(LAST_VERSION), LAST_VERSION)
    kinds = []
    while (kind := reader.advance()) != END:
        kinds.append(kind)
    assert kinds.count(PARTITION) == 1
    assert len(kinds) == 2 * count


def test_as_many_elements_as_may_be_are_read_and_one_more_is_too_many() -> None:
    def nameless(count: int) -> bytes:
        return b"\0\1\0\0\0\0" + count.to_bytes(4, "big") + bytes(6 * count)  # version 0: topics without a name and partitions

    reader_of(nameless(MAX_ELEMENTS), 0).verify(2 * MAX_ELEMENTS)
    with pytest.raises(TooManyElements):
        reader_of(nameless(MAX_ELEMENTS + 1), 0)


def test_the_name_is_one_object_as_long_as_the_topic_is_the_same() -> None:
    reader = reader_of(a_request(topics=2, partitions=3).encode(LAST_VERSION), LAST_VERSION)
    names = []
    while advance_to(reader, PARTITION):
        names.append(reader.topic)
    assert len({id(name) for name in names}) == 2


# -- the response ----------------------------------------------------------------------------------------------------------

INT64 = st.integers(-1, 2**63 - 1)
MESSAGES = st.none() | TEXTS


@st.composite
def responses(draw: st.DrawFn, version: int) -> ProduceResponse:
    leaders = st.tuples(st.integers(-1, 5), st.integers(-1, 5)) if version >= 10 else st.just((-1, -1))
    partition = st.builds(
        lambda index, code, base, time, start, errors, message, leader: PartitionProduceResponse(
            index=index,
            error_code=code,
            base_offset=base,
            log_append_time_ms=time,
            log_start_offset=start,
            record_errors=[BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=text) for at, text in errors],
            error_message=message,
            current_leader=LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
        ),
        st.integers(0, 2**31 - 1),
        st.integers(-1, 200),
        INT64,
        INT64,
        INT64,
        st.one_of(st.just([]), st.lists(st.tuples(st.integers(0, 2**31 - 1), MESSAGES), max_size=3)),
        MESSAGES,
        leaders,
    )
    names = draw(st.lists(NAMES, max_size=5, unique=True))
    topics = [
        TopicProduceResponse(name=name, topic_id=id_of(name), partition_responses=draw(st.lists(partition, min_size=1, max_size=10)))
        for name in names
    ]
    nodes = st.builds(NodeEndpoint, node_id=st.integers(0, 9), host=TEXTS, port=st.integers(1, 9), rack=MESSAGES)
    return ProduceResponse(
        responses=topics,
        throttle_time_ms=draw(st.integers(0, 2**31 - 1)),
        node_endpoints=draw(st.lists(nodes, max_size=3)) if version >= 10 else [],
    )


def written(response: ProduceResponse, version: int, correlation_id: int) -> bytes:
    answer = ProduceAnswer(version, correlation_id)
    for topic in response.responses:
        answer.begin_topic(key_of(topic, is_id=version >= 13))
        for data in topic.partition_responses:
            numbers = data.index, data.error_code, data.base_offset, data.log_append_time_ms, data.log_start_offset
            leader = data.current_leader.leader_id, data.current_leader.leader_epoch
            errors = [(error.batch_index, error.batch_index_error_message) for error in data.record_errors]
            if errors or data.error_message is not None or leader != (-1, -1):
                answer.put_failed(*numbers, errors, data.error_message, *leader)
            else:
                answer.put(*numbers)
    return answer.finish(response.throttle_time_ms, [(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints])


def encoded(response: ProduceResponse, version: int, correlation_id: int) -> bytes:
    return ResponseHeader(correlation_id=correlation_id).encode(api(ApiKey.PRODUCE).response_header_version(version)) + response.encode(
        version
    )


@pytest.mark.slow
@MANY_EXAMPLES
@given(st.sampled_from(VERSIONS), st.data())
def test_any_response_is_written_as_the_generated_encoder_writes_it(version: int, data: st.DataObject) -> None:
    response = data.draw(responses(version))
    assert written(response, version, 77) == encoded(response, version, 77)


FLEXIBLE = ProduceResponse.SCHEMA.flexible.first
"""From this version on a count has one to five bytes, before it four."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "count"),
    [
        *((version, count) for version in VERSIONS for count in (0, 1, 125, 126, 127, 128)),
        *((version, count) for version in (FLEXIBLE - 1, FLEXIBLE, LAST_VERSION) for count in (16_382, 16_383)),
    ],
)
def test_counts_of_every_length_are_written(version: int, count: int) -> None:
    def partitions(count: int) -> list[PartitionProduceResponse]:
        return [PartitionProduceResponse(index=index, base_offset=5) for index in range(count)]

    many = ProduceResponse(
        responses=[TopicProduceResponse(name="t", topic_id=id_of("t"), partition_responses=partitions(count))] if count else []
    )
    assert written(many, version, 1) == encoded(many, version, 1)
    topics = [
        TopicProduceResponse(name=f"t{number}", topic_id=id_of(f"t{number}"), partition_responses=partitions(1)) for number in range(count)
    ]
    topics.append(TopicProduceResponse(name="last", topic_id=id_of("last"), partition_responses=partitions(130)))
    response = ProduceResponse(responses=topics)
    assert written(response, version, 1) == encoded(response, version, 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_put_can_be_corrected_until_the_response_is_finished(version: int) -> None:
    answer = ProduceAnswer(version, 5)
    answer.begin_topic(id_of("t") if version >= 13 else b"t")
    places = [answer.put(index, 0, 100 + index, -1, 17) for index in range(300)]
    answer.correct(places[0], 7, 100)
    answer.correct(places[299], 6, -1)
    data = [PartitionProduceResponse(index=index, base_offset=100 + index, log_start_offset=17) for index in range(300)]
    data[0].error_code = 7
    data[299].error_code = 6
    data[299].base_offset = -1
    response = ProduceResponse(
        responses=[TopicProduceResponse(name="t", topic_id=id_of("t"), partition_responses=data)], throttle_time_ms=9
    )
    assert answer.finish(9, ()) == encoded(response, version, 5)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [3, 200])
def test_what_is_said_later_stands_where_a_place_was_kept(version: int, count: int) -> None:
    errors = [(0, "a record"), (3, None)]
    late, at_once = ProduceAnswer(version, 1), ProduceAnswer(version, 1)
    places = []
    for topic in (id_of("one"), id_of("two")) if version >= 13 else (b"one", b"two"):
        for answer in (late, at_once):
            answer.begin_topic(topic)
        for index in range(count):
            if index % 2:
                at_once.put(index, 0, 7 + index, 8, 9)
                late.put(index, 0, 7 + index, 8, 9)
            elif index % 4:
                at_once.put(index, 0, 5, 6, 7)
                places.append((late.put_later(index), (0, 5, 6, 7, (), None, -1, -1)))
            else:
                at_once.put_failed(index, 87, -1, -1, 4, errors, "a text", -1, -1)
                places.append((late.put_later(index), (87, -1, -1, 4, errors, "a text", -1, -1)))
    for place, said in reversed(places):
        late.fill(place, *said)
    assert late.finish(0, ()) == at_once.finish(0, ())


def test_a_topic_that_is_begun_again_goes_on_and_one_without_partitions_is_not_written() -> None:
    def an_answer(*begun: Any) -> bytes:
        answer = ProduceAnswer(LAST_VERSION, 5)
        for entry in begun:
            if isinstance(entry, bytes):
                answer.begin_topic(entry)
            else:
                answer.put(entry, 0, 1, 2, 3)
        return answer.finish(0, ())

    assert an_answer(b"a", 1, bytearray(b"a").decode().encode(), 2, b"empty", b"b", 3) == an_answer(b"a", 1, 2, b"b", 3)
    assert an_answer(b"a", b"b", b"a", 1) == an_answer(b"a", 1)
    assert an_answer(b"a", 1, b"b", b"a", 2) == an_answer(b"a", 1, 2)


def test_a_leader_that_a_version_cannot_name_is_not_dropped_silently() -> None:
    answer = ProduceAnswer(9, 5)
    answer.begin_topic(b"t")
    with pytest.raises(UnsupportedField):
        answer.put_failed(0, 6, -1, -1, -1, (), None, 3, 4)
