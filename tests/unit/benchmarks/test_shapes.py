"""Frames of many partitions, versions and sessions, the numbers that are written into them, and the loads that are made of them."""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from benchmarks.loadgen.prepared import TAKEN, Patch, Prepared, dealt
from benchmarks.loadgen.runner import Load
from benchmarks.loads import frames
from benchmarks.loads.admin import Topic
from benchmarks.loads.batches import batch_of_size
from benchmarks.loads.frames import Asked, Session
from benchmarks.loads.shapes import (
    FETCH_GROUPS,
    FETCH_VERSIONS,
    MIXED,
    OLD,
    PRODUCE_VERSIONS,
    STEADY,
    Shape,
    closed_loops,
    produced_idempotently,
)
from benchmarks.loads.stage import CONTENTS, Stock
from benchmarks.parts.shapes import KEYS, PART
from benchmarks.turns.sizes import NORMAL, QUICK, Pace
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.header import RequestHeader
from ottla.protocol.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from ottla.protocol.records.batch import crc_is_valid, parse_header
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import api

NOW = 1_700_000_000_000
TOPIC = Topic("orders", bytes(range(16)), 4)
PACE = Pace(warm_up_limit_s=0, warm_up_s=0, duration_s=1, max_bytes=0, prefill_bytes=32 << 20)
Request = TypeVar("Request", bound=Message)


def key_and_version(frame: bytes) -> tuple[ApiKey, int]:
    key, version = struct.unpack_from(">hh", frame, 4)
    return ApiKey(key), version


def request_in(frame: bytes, kind: type[Request]) -> Request:
    """The request of a frame that holds nothing else."""
    key, version = key_and_version(frame)
    _, at = RequestHeader.decode(frame, api(key).request_header_version(version), 4)
    request, end = kind.decode(frame, version, at)
    assert end == len(frame) == int.from_bytes(frame[:4], "big") + 4
    return request


def patched(prepared: Prepared, numbers: Mapping[int, int]) -> bytes:
    """The frame as the generator sends it while counters have these values."""
    made = bytearray(prepared.frame)
    for patch in prepared.patches:
        number = numbers[patch.counter]
        made[patch.offset : patch.offset + 4] = number.to_bytes(4, "big")
        if patch.checksum is not None:
            crc = patch.checksum.of_zero
            for bit, change in enumerate(patch.checksum.of_bits):
                crc ^= change if number >> bit & 1 else 0
            made[patch.checksum.offset : patch.checksum.offset + 4] = crc.to_bytes(4, "big")
    return bytes(made)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("partitions", [1, 10, 50])
def test_the_error_codes_of_all_partitions_of_a_produce_answer_are_looked_at(version: int, partitions: int) -> None:
    answered = [PartitionProduceResponse(index=at, error_code=at + 1, base_offset=7, log_append_time_ms=NOW) for at in range(partitions)]
    response = ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=answered)])

    answer = frames.answer_frame(ApiKey.PRODUCE, response, version)

    places = frames.produce_error_offsets("orders", partitions, version)
    assert [int.from_bytes(answer[at : at + 2], "big") for at in places] == list(range(1, partitions + 1))
    assert frames.produce_answer_bytes("orders", partitions, version) == len(answer) + 4


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_the_error_codes_of_a_fetch_answer_stand_where_the_generator_looks_in_every_version(version: int) -> None:
    partition = PartitionData(partition_index=1, error_code=1, high_watermark=5, records=None)
    topic = FetchableTopicResponse(topic="orders", topic_id=TOPIC.topic_id, partitions=[partition])

    answer = frames.answer_frame(ApiKey.FETCH, FetchResponse(error_code=70, responses=[topic]), version)

    found = [answer[at : at + 2] for at in frames.fetch_error_offsets("orders", version)]
    assert found == ([b"\0\1"] if version < 7 else [b"\0\x46", b"\0\1"])


def test_the_id_of_a_session_is_taken_from_its_place_in_the_answer() -> None:
    answer = frames.answer_frame(ApiKey.FETCH, FetchResponse(session_id=0x01020304))

    at = frames.session_id_offset()
    assert answer[at : at + 4] == b"\1\2\3\4"


def test_id_and_epoch_of_a_session_are_written_into_their_places() -> None:
    def fetch(session: Session) -> bytes:
        return frames.fetch_partitions("", TOPIC.topic_id, [Asked(1, 2, 3)], session=session)

    id_at, epoch_at = frames.session_offsets(fetch)
    made = patched(Prepared(fetch(Session(0, 1)), patches=(Patch(id_at, TAKEN), Patch(epoch_at, 0))), {TAKEN: 77, 0: 12})

    request = request_in(made, FetchRequest)
    assert (request.session_id, request.session_epoch, request.topics[0].partitions[0].fetch_offset) == (77, 12, 2)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("sequence", [0, 1, 150, 0x12345678, 2**31 - 1])
def test_a_sequence_number_is_written_into_every_batch_with_a_checksum_that_fits(version: int, sequence: int) -> None:
    batches = {2: batch_of_size(16384, 150, NOW), 5: batch_of_size(500, 150, NOW, "zstd")}
    prepared = produced_idempotently("orders", batches, 4711, 3, records=150, version=version)

    request = request_in(patched(prepared, {3: sequence, 4: 9}), ProduceRequest)

    sent = [bytes(data.records or b"") for data in request.topic_data[0].partition_data]
    headers = [parse_header(batch) for batch in sent]
    assert all(crc_is_valid(batch) for batch in sent)
    assert [(header.producer_id, header.producer_epoch, header.base_sequence) for header in headers] == [(4711, 0, sequence), (4711, 0, 9)]
    assert [(patch.counter, patch.first, patch.step) for patch in prepared.patches] == [(3, 0, 150), (4, 0, 150)]


def test_frames_are_dealt_so_that_every_connection_gets_its_own_list() -> None:
    a, b, c = (Prepared(bytes([at])) for at in range(3))

    order = dealt([[a], [b, c]])

    assert order == [a, b, a, c]
    with pytest.raises(ValueError, match="does not divide"):
        dealt([[a, b, c], [a, b]])


class StandIn:
    """A stage without a broker: topics that are as full as is needed."""

    def __init__(self) -> None:
        self.bench = SimpleNamespace(plan=SimpleNamespace(size=NORMAL))
        self.made: list[str] = []
        self._ids: Iterator[int] = count(1000)

    def topics(self, names: Sequence[str], partitions: int) -> list[Topic]:
        self.made += names
        return [Topic(name, bytes(range(16)), partitions) for name in names]

    def keep(self, name: str, partitions: int) -> Topic:
        return Topic(name, bytes(range(16)), partitions)

    def once(self, _: str, make: Callable[[], Any]) -> Any:
        return make()

    def stock(self, key: str) -> Stock:
        contents = CONTENTS[key]
        segments = [[(0, 20), (20 * contents.records, 30)]] * contents.partitions
        return Stock(self.keep(key, contents.partitions), contents, contents.batch_bytes, segments)

    def fill(self, *_: object) -> None: ...

    def ends(self, topic: Topic) -> list[int]:
        return [18] * topic.partitions

    def producer_ids(self, wanted: int) -> list[int]:
        return [next(self._ids) for _ in range(wanted)]


def load_of(shape: Shape, stage: StandIn | None = None) -> Load:
    stand_in: Any = stage or StandIn()
    return shape.prepare(stand_in)(PACE)


def shape_of(key: str) -> Shape:
    return next(shape for shape in (*closed_loops(NORMAL), *STEADY) if shape.key == key)


def sent_by(load: Load) -> list[list[Prepared]]:
    """What each connection sends, in order."""
    made = load.prepared()
    return [made[at :: load.connections] if len(made) >= load.connections else [made[at % len(made)]] for at in range(load.connections)]


@pytest.mark.slow
@pytest.mark.parametrize("shape", [*closed_loops(NORMAL), *STEADY], ids=lambda shape: shape.key)
def test_every_frame_of_a_shape_is_a_request_whose_answers_are_checked(shape: Shape) -> None:
    load = load_of(shape)

    prepared = {id(each): each for each in (*load.opening, *load.prepared())}.values()
    for each in prepared:
        key, _ = key_and_version(each.frame)
        request_in(each.frame, api(key).request)
        assert not each.is_answered or (each.error_offsets and each.least_answer_bytes)
    for connection in sent_by(load):
        assert any(each.is_shown for each in connection) or load.connections > len(load.frames)


@pytest.mark.parametrize(("key", "partitions", "records"), [("produce-10x10", 10, 10), ("produce-50x2", 50, 2)])
def test_a_produce_of_many_partitions_names_them_all(key: str, partitions: int, records: int) -> None:
    (sent,) = load_of(shape_of(key)).prepared()

    data = request_in(sent.frame, ProduceRequest).topic_data[0].partition_data
    assert [each.index for each in data] == list(range(partitions))
    assert {parse_header(bytes(each.records or b"")).record_count for each in data} == {records}
    assert len(sent.error_offsets) == partitions


@pytest.mark.parametrize(("key", "partitions", "max_bytes"), [("fetch-10x16k", 10, 16 << 10), ("fetch-50x2k", 50, 2 << 10)])
def test_a_fetch_of_many_partitions_names_them_all_outside_of_any_session(key: str, partitions: int, max_bytes: int) -> None:
    for sent in load_of(shape_of(key)).prepared():
        request = request_in(sent.frame, FetchRequest)
        asked = request.topics[0].partitions
        assert (request.session_id, request.session_epoch) == (0, -1)
        assert [each.partition for each in asked] == list(range(partitions))
        assert {each.partition_max_bytes for each in asked} == {max_bytes}


def test_a_session_begins_with_all_partitions_and_goes_on_with_two() -> None:
    load = load_of(shape_of("fetch-session"))

    assert len(load.opening) == load.connections
    assert load.in_flight == 1
    for begun, continued in zip(load.opening, sent_by(load), strict=True):
        first = request_in(begun.frame, FetchRequest)
        assert (first.session_epoch, len(first.topics[0].partitions)) == (0, NORMAL.session_partitions)
        pairs = {tuple(each.partition for each in request_in(sent.frame, FetchRequest).topics[0].partitions) for sent in continued}
        assert len(pairs) == 1
        assert len(*pairs) == 2


def test_names_of_topics_are_of_every_length_and_differ() -> None:
    stage = StandIn()

    load_of(shape_of("produce-16k-v9-idempotent"), stage)

    lengths = [len(name) for name in stage.made]
    assert (min(lengths), max(lengths), len(set(stage.made))) == (3, 249, len(lengths))


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_producers_of_a_version_are_idempotent_where_that_is_said(version: int) -> None:
    plain, idempotent = (load_of(shape_of(f"produce-16k-v{version}{how}")).prepared() for how in ("", "-idempotent"))

    assert {key_and_version(each.frame) for each in (*plain, *idempotent)} == {(ApiKey.PRODUCE, version)}
    assert not any(each.patches for each in plain)
    assert len({each.patches[0].counter for each in idempotent}) == len(idempotent)


def test_every_connection_of_the_mixture_sends_another_shape() -> None:
    load = load_of(MIXED)

    first_of_each = [connection[0] for connection in sent_by(load)]
    assert len({id(each) for each in first_of_each}) == load.connections == 40
    requests = [(key_and_version(each.frame), each) for each in first_of_each]
    produced = [request_in(each.frame, ProduceRequest) for (key, _), each in requests if key is ApiKey.PRODUCE]
    batches = [bytes(request.topic_data[0].partition_data[0].records or b"") for request in produced]
    assert {request.acks for request in produced} == {-1, 0, 1}
    assert {parse_header(batch).attributes & 7 for batch in batches} == {0, 1, 2, 3, 4}
    assert {parse_header(batch).producer_id >= 0 for batch in batches} == {False, True}
    assert {version for (key, version), _ in requests if key is ApiKey.PRODUCE} == set(PRODUCE_VERSIONS)
    assert {version for (key, version), _ in requests if key is ApiKey.FETCH} == set(FETCH_VERSIONS)


def test_no_two_producers_of_the_mixture_share_a_counter() -> None:
    connections = sent_by(load_of(MIXED))

    used = [{patch.counter for sent in connection for patch in sent.patches} - {TAKEN} for connection in connections]
    assert sum(len(each) for each in used) == len(set().union(*used))


def test_every_shape_has_a_line_with_a_target_that_is_no_less_than_par() -> None:
    lines = {line.key: line for line in PART.lines(NORMAL)}

    for shape in closed_loops(NORMAL):
        ratio = lines[shape.key].ratio_at_least
        assert ratio is not None
        assert ratio >= (0.5 if shape in OLD else 1)  # records of old clients are converted
    assert all(len(keys) == len(FETCH_VERSIONS) and set(keys) <= set(KEYS) for keys in FETCH_GROUPS.values())
    assert [line.key for line in PART.lines(QUICK)] == list(lines)
