"""Whatever bytes arrive: a message or a ProtocolError, nothing else, and memory in proportion to what arrived."""

import tracemalloc
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.cursors.produce import ProduceReader
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.header import RequestHeader
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import ProduceRequest, TopicProduceData
from ottla.protocol.schema.api_versions import DECLARED_APIS
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import api
from ottla.protocol.schema.wire import (
    ANY_ELEMENTS,
    MAX_ELEMENTS,
    MAX_HEADER_TAGS,
    MAX_STRING_BYTES,
    InvalidLength,
    InvalidTaggedField,
    InvalidVarint,
    ProtocolError,
    TooManyElements,
    Truncated,
    UnexpectedNull,
    skip_tagged_fields,
    uvarint,
)
from tests.support.golden_frames import GoldenFrame, all_golden_frames


@cache
def bodies() -> tuple[tuple[GoldenFrame, bytes], ...]:
    """One recorded frame of each (api, version, side), without its header."""
    found: dict[tuple[ApiKey, int, bool], tuple[GoldenFrame, bytes]] = {}
    for frame in all_golden_frames():
        _, offset = frame.header_class.decode(frame.data, frame.header_version)
        key = (frame.api.key, frame.version, frame.is_request)
        if len(found.get(key, (frame, b""))[1]) < len(frame.data) - offset:
            found[key] = (frame, frame.data[offset:])
    return tuple(found.values())


def decode_or_refuse(cls: type[Message], data: bytes, version: int) -> Message | None:
    try:
        message, end = cls.decode(data, version)
    except ProtocolError:
        return None
    assert 0 <= end <= len(data)
    return message


@st.composite
def message_versions(draw: st.DrawFn) -> tuple[type[Message], int]:
    found = api(draw(st.sampled_from(sorted(DECLARED_APIS))))
    cls = found.request if draw(st.booleans()) else found.response
    return cls, draw(st.integers(found.versions.first, found.versions.last))


# Bytes that steer: short counts and lengths, nulls, and the largest of all.
BYTES = st.lists(
    st.one_of(
        st.sampled_from([b"\x00", b"\x01", b"\x02", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff"]),
        st.binary(max_size=9),
    )
).map(b"".join)


@settings(max_examples=400, deadline=None)
@given(message_versions(), BYTES)
def test_arbitrary_bytes_give_a_message_or_a_protocol_error(which: tuple[type[Message], int], data: bytes) -> None:
    cls, version = which
    message = decode_or_refuse(cls, data, version)
    if message is not None:
        again, _ = cls.decode(message.encode(version), version)
        assert again == message or "nan" in repr(message)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_changed_recorded_frame_gives_a_message_or_a_protocol_error(data: st.DataObject) -> None:
    frame, body = data.draw(st.sampled_from(bodies()))
    changed = bytearray(body)
    for _ in range(data.draw(st.integers(1, 3))):
        if not changed:
            break
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=5))
    decode_or_refuse(frame.body_class, bytes(changed), frame.version)


def test_every_recorded_frame_cut_anywhere_is_refused_or_shorter() -> None:
    for frame, body in bodies():
        _, end = frame.body_class.decode(body, frame.version)
        step = max(1, end // 40)
        for cut in range(0, end, step):
            with pytest.raises(ProtocolError):
                frame.body_class.decode(body[:cut], frame.version)


@pytest.mark.parametrize(
    ("cls", "version"),
    [
        (found.request, version)
        for key in sorted(DECLARED_APIS)
        for found in [api(key)]
        for version in {found.versions.first, found.versions.last}
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value),
)
def test_a_huge_count_allocates_nothing(cls: type[Message], version: int) -> None:
    # A count of two thousand million at every place where one may stand; what is decoded at all is small.
    cls.decoder(version)
    for prefix in range(24):
        for huge in (b"\x7f\xff\xff\xff", b"\xfe\xff\xff\xff\x07"):
            data = bytes(prefix) + huge + bytes(8)
            tracemalloc.start()
            decode_or_refuse(cls, data, version)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 100_000


def topics_without_a_name(count: int) -> bytes:
    return count.to_bytes(4, "big") + bytes(2 * count) + b"\x00"  # Metadata 4


@pytest.mark.slow
def test_a_request_of_as_many_elements_as_may_be_is_read_and_one_more_is_too_many() -> None:
    request, _ = MetadataRequest.decode(topics_without_a_name(MAX_ELEMENTS), 4)
    assert len(request.topics or ()) == MAX_ELEMENTS
    with pytest.raises(TooManyElements):
        MetadataRequest.decode(topics_without_a_name(MAX_ELEMENTS + 1), 4)


def test_elements_of_all_arrays_together_are_too_many() -> None:
    partitions = [FetchPartition()] * (MAX_ELEMENTS // 2)
    data = FetchRequest(topics=[FetchTopic(topic="t", partitions=partitions)] * 2).encode(4)
    with pytest.raises(TooManyElements):
        FetchRequest.decode(data, 4)
    keys_without_a_letter = bytes(1) + uvarint(10_000_001) + bytes(10_000_001)
    FindCoordinatorRequest.decoder(4)
    tracemalloc.start()
    with pytest.raises(TooManyElements):
        FindCoordinatorRequest.decode(keys_without_a_letter, 4)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_what_a_controller_says_of_a_large_cluster_is_read_if_the_sender_may_say_it() -> None:
    partition = LeaderAndIsrPartitionState(replicas=(1,) * MAX_ELEMENTS, isr=(1,) * MAX_ELEMENTS)
    data = LeaderAndIsrRequest(topic_states=[LeaderAndIsrTopicState(partition_states=[partition])]).encode(5)
    request, _ = LeaderAndIsrRequest.decode(data, 5, 0, ANY_ELEMENTS)
    assert len(request.topic_states[0].partition_states[0].isr) == MAX_ELEMENTS
    for decode in (LeaderAndIsrRequest.decode, lambda *where: list(LeaderAndIsrRequest.decode_steps(*where))):
        with pytest.raises(TooManyElements):
            decode(data, 5, 0)


def tagged_fields_of_no_size(count: int) -> bytes:
    return uvarint(count) + b"\x7e\x00" * count


def with_tagged_fields(request: Message, version: int, count: int) -> bytes:
    """The request with so many unknown tagged fields at its end, where it has none."""
    return request.encode(version)[:-1] + tagged_fields_of_no_size(count)


@pytest.mark.slow
@pytest.mark.parametrize(("request_", "version"), [(MetadataRequest(topics=[]), 9), (FetchRequest(), 17), (LeaderAndIsrRequest(), 5)])
def test_tagged_fields_count_like_elements_in_every_request(request_: Message, version: int) -> None:
    """The limit itself is that of the test behind this one."""
    cls, limit = type(request_), 5000
    most = with_tagged_fields(request_, version, limit)
    assert cls.decode(most, version, 0, limit)[0].unknown_tagged_fields == {0x7E: b""}
    with pytest.raises(TooManyElements):
        cls.decode(with_tagged_fields(request_, version, limit + 1), version, 0, limit)


@pytest.mark.slow
def test_elements_and_tagged_fields_together_are_too_many() -> None:
    topics = MetadataRequest(topics=[MetadataRequestTopic(name="")] * (MAX_ELEMENTS // 2))
    MetadataRequest.decode(with_tagged_fields(topics, 9, MAX_ELEMENTS // 2), 9)
    with pytest.raises(TooManyElements):
        MetadataRequest.decode(with_tagged_fields(topics, 9, MAX_ELEMENTS // 2 + 1), 9)


def test_a_header_has_few_tagged_fields() -> None:
    most = tagged_fields_of_no_size(MAX_HEADER_TAGS)
    assert skip_tagged_fields(most, 0) == len(most)
    with pytest.raises(TooManyElements):
        skip_tagged_fields(tagged_fields_of_no_size(MAX_HEADER_TAGS + 1), 0)


@pytest.mark.parametrize(
    ("cls", "version", "data", "error"),
    [
        (MetadataRequest, 1, b"\x00\x00\x00", Truncated),
        (MetadataRequest, 1, b"\x00\x00\x00\x05\x00", InvalidLength),
        (MetadataRequest, 1, b"\x00\x00\x00\x01\x00\x05abc", Truncated),
        (MetadataRequest, 1, b"\x00\x00\x00\x01\xff\xff", UnexpectedNull),
        (MetadataRequest, 1, b"\x00\x00\x00\x01\xff\xfe", InvalidLength),
        (MetadataRequest, 0, b"\xff\xff\xff\xff", UnexpectedNull),
        (MetadataRequest, 9, b"\xff\xff\xff\xff\xff\x01", InvalidVarint),
        (MetadataRequest, 9, b"\xff\xff\xff\xff\x0f", InvalidLength),
        (MetadataRequest, 9, b"\x02\x81\x80\x02" + bytes(40_000), InvalidLength),
        (MetadataRequest, 9, b"\x02\x00\x00\x00\x00\x00\x00", UnexpectedNull),
        (MetadataRequest, 9, b"\x01\x01\x01\x01\x01\x07\x7fab", InvalidLength),
        (FetchRequest, 17, bytes(21) + b"\x01\x01\x01\x01\x00\x03\x02ab", InvalidTaggedField),
        (RequestHeader, 1, b"\x00\x03\x00\x01\x00\x00\x00\x01\x00\x04ab", Truncated),
    ],
)
def test_each_kind_of_damage_has_its_error(cls: type[Message], version: int, data: bytes, error: type[ProtocolError]) -> None:
    with pytest.raises(ProtocolError) as caught:
        cls.decode(data, version)
    assert type(caught.value) is error


@pytest.mark.parametrize(
    "request_",
    [
        MetadataRequest(topics=[MetadataRequestTopic(name="a?b")]),
        ProduceRequest(topic_data=[TopicProduceData(name="a?b", partition_data=[])]),
        RequestHeader(request_api_key=3, request_api_version=1, correlation_id=1, client_id="a?b"),
    ],
    ids=lambda request: type(request).__name__,
)
def test_what_is_not_utf_8_is_replaced_as_java_replaces_it(request_: Message) -> None:
    version = min(request_.SCHEMA.versions.last, 12)  # later ones have no names
    plain = request_.encode(version)

    decoded, end = type(request_).decode(plain.replace(b"?", b"\xfc"), version)

    assert end == len(plain)
    assert decoded.encode(version) == plain.replace(b"?", "\ufffd".encode()).replace(b"\x04a", b"\x06a").replace(b"\x03a", b"\x05a")


LONG_STRINGS = {
    b"\xff" * (MAX_STRING_BYTES // 3) + b"a": True,
    b"a" * (MAX_STRING_BYTES - 3) + b"\xff": True,
    b"\xff" * (MAX_STRING_BYTES // 3) + b"\xff": False,
    b"a" * (MAX_STRING_BYTES - 2) + b"\xff": False,
}
"""Strings of a request, and whether one still fits into an answer when U+FFFD has replaced each byte that is not UTF-8."""


def named(request: Message, version: int, name: bytes) -> memoryview:
    """The request with this name instead of its topic `a?b`."""
    return memoryview(bytearray(request.encode(version).replace(b"\x00\x03a?b", len(name).to_bytes(2, "big") + name)))


def decode_metadata(name: bytes) -> None:
    MetadataRequest.decode(named(MetadataRequest(topics=[MetadataRequestTopic(name="a?b")]), 1, name), 1)


def decode_metadata_in_steps(name: bytes) -> None:
    list(MetadataRequest.decode_steps(named(MetadataRequest(topics=[MetadataRequestTopic(name="a?b")]), 1, name), 1))


def read_produce(name: bytes) -> None:
    ProduceReader(named(ProduceRequest(topic_data=[TopicProduceData(name="a?b", partition_data=[])]), 3, name), 0, 3).verify(10)


@pytest.mark.parametrize("read", [decode_metadata, decode_metadata_in_steps, read_produce])
def test_a_string_that_no_answer_could_repeat_is_refused(read: Callable[[bytes], None]) -> None:
    for name, fits in LONG_STRINGS.items():
        if fits:
            read(name)
        else:
            with pytest.raises(InvalidLength, match=r"has 3276[89] bytes as UTF-8"):
                read(name)
