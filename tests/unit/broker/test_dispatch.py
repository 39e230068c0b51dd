"""From a frame to an answer: what closes a connection, what is answered all the same, and what a fault of a handler costs."""

import asyncio
import logging
from random import Random
from typing import Any

import pytest

from ottla.broker.handlers.table import IMPLEMENTED, handlers_of
from ottla.broker.network.connection import Connection
from ottla.broker.network.request_channel import CLOSE, Answer
from ottla.broker.quotas.quota_type import QuotaType
from ottla.broker.request.malformed import name_of
from ottla.broker.serving.route import BETWEEN_BROKERS
from ottla.controller.errors import SessionExpired
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.header import RequestHeader
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.schema.api_versions import versions_in_3_9
from ottla.protocol.schema.wire import ProtocolError, skip_tagged_fields
from tests.support.connections import ClientConnection
from tests.support.golden_frames import all_golden_frames
from tests.support.golden_replay import decode, request_frame
from tests.support.grants import Grants
from tests.support.handler_bench import HandlerBench, on_a_loop
from tests.support.network import Bench, FunctionHandler, framed
from tests.support.replicas import TOPIC, state

SEEDED_FRAMES = 3000


def header(api_key: int, version: int, client_id: str | None = "c", header_version: int = 1) -> bytes:
    return RequestHeader(request_api_key=api_key, request_api_version=version, correlation_id=7, client_id=client_id).encode(header_version)


def list_offsets() -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[partition])])


def leading() -> HandlerBench:
    bench = HandlerBench()
    bench.replicas.say(state(isr=[0], replicas=[0]))
    bench.know(p0=0)
    return bench


def fail(bench: HandlerBench, key: ApiKey, version: int, error: Exception | None = None, answer: Any = None) -> None:
    """The handler of this request raises from now on, or returns what it is given."""
    route = bench.dispatcher.route_of(key, version)
    assert route is not None

    def handler(request: object, context: object) -> Any:
        if error is not None:
            raise error
        return answer

    route.handler = handler


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (b"", "0 bytes"),
        (b"\x00\x12", "2 bytes"),
        (header(9999, 0), "api 9999 v0 is not supported"),
        (header(ApiKey.VOTE, 0), "VOTE v0 is not supported"),
        (header(ApiKey.METADATA, 99), "METADATA v99 is not supported"),
        (header(ApiKey.ENVELOPE, 0) + b"\x00\x01\x00\x05host\x00", "ENVELOPE v0 is not supported"),
        (header(ApiKey.METADATA, -1), "METADATA v-1 is not supported"),
        (header(ApiKey.METADATA, 1)[:8] + b"\x7f\xff", "client id"),
        (header(ApiKey.METADATA, 12, header_version=2)[:-1], "cannot be read"),
        (header(ApiKey.METADATA, 12) + b"\x01\x05\xff\xff\xff\xff\x0f", "cannot be read"),
        (header(ApiKey.METADATA, 1) + b"\x7f\xff\xff\xff", "cannot be read"),
        (header(ApiKey.METADATA, 12, header_version=2) + b"garbage", "cannot be read"),
        (header(ApiKey.LIST_OFFSETS, 1) + b"\xff", "cannot be read (LIST_OFFSETS v1)"),
    ],
)
def test_what_cannot_be_read_closes_the_connection_and_is_said_in_one_line(frame: bytes, said: str) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = leading()
        assert bench.raw(frame) is CLOSE
        (reason,) = bench.connection.reasons
        assert said in reason
        assert "\n" not in reason

    scenario()


@pytest.mark.parametrize("version", [5, 99, -1, 32767])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(version: int) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = leading()
        answer = bench.raw(header(ApiKey.API_VERSIONS, version))
        assert isinstance(answer, bytes)
        response = decode(answer, ApiKey.API_VERSIONS, 0)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION  # type: ignore[attr-defined]  # an ApiVersionsResponse
        assert bench.connection.reasons == []
        assert bench.connection.counted == [(QuotaType.REQUEST, 0)]

    scenario()


@on_a_loop
async def test_bytes_behind_the_body_are_ignored_and_so_are_tags_and_a_missing_client_id() -> None:
    bench = leading()
    frame = request_frame(list_offsets(), ApiKey.LIST_OFFSETS, 1)[4:]
    assert bench.raw(frame + b"more") == bench.raw(frame)
    body = ApiVersionsRequest(client_software_name="a", client_software_version="1").encode(3)
    tagged = header(ApiKey.API_VERSIONS, 3) + b"\x02\x05\x01\xaa\x06\x02\xbb\xcc" + body
    plain = header(ApiKey.API_VERSIONS, 3) + b"\x00" + body
    assert bench.raw(tagged) == bench.raw(plain)
    anonymous = header(ApiKey.API_VERSIONS, 0, client_id=None)
    assert isinstance(bench.raw(anonymous), bytes)


@on_a_loop
async def test_a_request_between_brokers_is_urgent_if_its_sender_may_act_as_a_broker() -> None:
    dispatcher = leading().dispatcher

    def is_urgent(frame: bytes, connection: ClientConnection) -> bool:
        return dispatcher.is_urgent(memoryview(bytearray(frame)), 0, len(frame), connection)  # type: ignore[arg-type]  # all it needs of one

    broker = ClientConnection(Grants((Operation.CLUSTER_ACTION, ResourceType.CLUSTER)))
    client = ClientConnection(Grants((Operation.ALTER, ResourceType.CLUSTER)))
    for key in BETWEEN_BROKERS:
        assert is_urgent(header(key, 0), broker)
        assert is_urgent(header(key, 0), ClientConnection())
        assert not is_urgent(header(key, 0), client)
    assert not is_urgent(header(ApiKey.METADATA, 0), broker)
    assert not is_urgent(b"\x00", broker)


@on_a_loop
async def test_the_one_header_without_a_client_id_is_read() -> None:
    bench = leading()
    route = bench.dispatcher.route_of(ApiKey.CONTROLLED_SHUTDOWN, 0)
    assert route is not None
    read: list[object] = []

    def handle(request: object, _: object) -> object:
        read.append(request)
        return CLOSE

    route.handler = handle
    for broker_id in (-1, 0, 5, 32_767, 0x7FFFFFFF):
        request = ControlledShutdownRequest(broker_id=broker_id)
        frame = request_frame(request, ApiKey.CONTROLLED_SHUTDOWN, 0)[4:]
        assert len(frame) == 12
        bench.raw(frame)
        assert read.pop() == request


def test_a_tag_that_is_longer_than_the_request_is_refused() -> None:
    with pytest.raises(ProtocolError):
        skip_tagged_fields(memoryview(b"\x01\x00\x7f"), 0)


@pytest.mark.parametrize(("head", "name"), [(b"\x00\x00\x00\x09", "PRODUCE v9"), (b"\x27\x0f\xff\xff", "api 9999 v-1"), (b"ab", "2 bytes")])
def test_a_request_is_named_by_its_first_bytes(head: bytes, name: str) -> None:
    assert name_of(memoryview(head)) == name


@on_a_loop
async def test_a_fault_of_a_handler_is_an_error_of_the_answer_where_it_has_one() -> None:
    bench = leading()
    fail(bench, ApiKey.FIND_COORDINATOR, 2, RuntimeError("a fault"))
    asked = bench.ask(FindCoordinatorRequest(key="k"), ApiKey.FIND_COORDINATOR, 2)
    assert asked.response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(("error", "has_place"), [(RuntimeError("a fault"), True), (SessionExpired("/brokers/topics"), False)])
def test_a_fault_of_a_handler_is_logged_with_its_place_and_a_store_that_is_away_in_one_line(
    error: Exception, has_place: bool, caplog: pytest.LogCaptureFixture
) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = leading()
        fail(bench, ApiKey.LIST_OFFSETS, 5, error)
        assert bench.ask(list_offsets(), ApiKey.LIST_OFFSETS, 5).control is CLOSE

    with caplog.at_level(logging.ERROR):
        scenario()
    (record,) = caplog.records
    assert (record.exc_info is not None) == has_place
    assert record.getMessage().startswith("LIST_OFFSETS v5 of local:1-host:2-0")
    assert ("SessionExpired" in record.getMessage()) == (not has_place)


def test_a_response_that_cannot_be_written_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = leading()
        unspeakable = FindCoordinatorResponse(coordinators=[], node_id=2**40)
        fail(bench, ApiKey.FIND_COORDINATOR, 2, answer=unspeakable)
        assert bench.ask(FindCoordinatorRequest(key="k"), ApiKey.FIND_COORDINATOR, 2).control is CLOSE

        async def later() -> FindCoordinatorResponse:
            return unspeakable

        fail(bench, ApiKey.FIND_COORDINATOR, 1, answer=later())
        asked = bench.ask(FindCoordinatorRequest(key="k"), ApiKey.FIND_COORDINATOR, 1)
        await bench.dispatcher.drain()
        assert asked.control is CLOSE

    with caplog.at_level(logging.ERROR):
        scenario()
    assert [record.getMessage() for record in caplog.records] == [
        "a FindCoordinatorResponse cannot be written in version 2",
        "a FindCoordinatorResponse cannot be written in version 1",
    ]


@on_a_loop
async def test_work_that_waits_holds_a_slot_and_is_answered_when_it_is_done() -> None:
    bench = leading()
    go = asyncio.Event()

    async def later() -> FindCoordinatorResponse:
        await go.wait()
        return FindCoordinatorResponse(node_id=4)

    fail(bench, ApiKey.FIND_COORDINATOR, 2, answer=later())
    asked = bench.ask(FindCoordinatorRequest(key="k"), ApiKey.FIND_COORDINATOR, 2)
    await asyncio.sleep(0)
    assert asked.waits
    assert asked.pending.occupies_slot
    go.set()
    await bench.dispatcher.drain()
    assert asked.response.node_id == 4


@on_a_loop
async def test_work_that_merely_waits_leaves_its_slot_and_ends_with_its_client() -> None:
    bench = leading()

    async def later() -> FindCoordinatorResponse:
        await asyncio.sleep(0)
        bench.services.running.on_wait()
        await asyncio.Event().wait()
        raise AssertionError

    fail(bench, ApiKey.FIND_COORDINATOR, 2, answer=later())
    asked = bench.ask(FindCoordinatorRequest(key="k"), ApiKey.FIND_COORDINATOR, 2)
    assert asked.pending.occupies_slot
    await asyncio.sleep(0.001)
    assert not asked.pending.occupies_slot
    assert asked.pending.on_closed is not None
    asked.pending.on_closed()
    await bench.dispatcher.drain()
    assert asked.control is CLOSE


@on_a_loop
async def test_handlers_that_still_wait_end_with_the_broker() -> None:
    bench = leading()

    async def later() -> None:
        await asyncio.Event().wait()

    fail(bench, ApiKey.FIND_COORDINATOR, 2, answer=later())
    asked = bench.ask(FindCoordinatorRequest(key="k"), ApiKey.FIND_COORDINATOR, 2)
    await asyncio.sleep(0)
    await bench.dispatcher.close()
    assert asked.control is CLOSE


@on_a_loop
async def test_work_that_fails_later_is_answered_too() -> None:
    bench = leading()

    async def later() -> FindCoordinatorResponse:
        raise RuntimeError("a fault")

    fail(bench, ApiKey.FIND_COORDINATOR, 2, answer=later())
    asked = bench.ask(FindCoordinatorRequest(key="k"), ApiKey.FIND_COORDINATOR, 2)
    await bench.dispatcher.drain()
    assert asked.response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@on_a_loop
async def test_a_frame_handler_that_fails_is_not_tried_again_the_ordinary_way() -> None:
    bench = leading()
    tried = []
    route = bench.dispatcher.route_of(ApiKey.PRODUCE, 9)
    assert route is not None

    def frame_handler(*_: object) -> None:
        tried.append("frame")
        raise IndexError("a fault behind the append")

    route.frame_handler = frame_handler
    route.handler = lambda request, context: tried.append("ordinary")
    assert bench.produce().control is CLOSE
    assert tried == ["frame"]
    assert bench.connection.reasons == []  # no fault of the client


@on_a_loop
async def test_what_a_frame_handler_leaves_is_decoded_for_the_handler_of_messages() -> None:
    bench = leading()
    route = bench.dispatcher.route_of(ApiKey.FIND_COORDINATOR, 2)
    assert route is not None
    asked = []

    def handler(request: FindCoordinatorRequest, _: object) -> FindCoordinatorResponse:
        asked.append(request.key)
        return FindCoordinatorResponse(node_id=7)

    route.frame_handler, route.handler = lambda *_: None, handler
    assert bench.ask(FindCoordinatorRequest(key="k"), ApiKey.FIND_COORDINATOR, 2).response.node_id == 7
    assert asked == ["k"]


@pytest.mark.slow
def test_frames_with_random_damage_are_answered_or_refused_and_never_a_fault(caplog: pytest.LogCaptureFixture) -> None:
    """Recorded requests of the APIs that need nothing but replicas, with a few bytes changed."""
    keys = {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.API_VERSIONS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DELETE_RECORDS,
    }
    seeds = [frame.data for frame in all_golden_frames() if frame.is_request and frame.api.key in keys]
    random = Random(1)

    @on_a_loop
    async def scenario() -> None:
        bench = leading()
        for _ in range(SEEDED_FRAMES):
            frame = bytearray(random.choice(seeds))
            for _ in range(random.randint(1, 4)):
                frame[random.randrange(4, len(frame))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
            if random.random() < 0.2:
                del frame[random.randrange(len(frame)) :]
            bench.raw(bytes(frame))
        await bench.dispatcher.drain()

    with caplog.at_level(logging.ERROR):
        scenario()
    assert [record.getMessage() for record in caplog.records] == []


def test_every_implemented_version_has_a_handler() -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = HandlerBench()
        for key in IMPLEMENTED:
            first, last = versions_in_3_9(key)
            for version in range(first, last + 1):
                route = bench.dispatcher.route_of(key, version)
                assert route is not None
                assert (route.api_key, route.version) == (key, version)
                of_messages, of_frames = handlers_of(key)
                assert route.frame_handler is of_frames
                assert of_messages is None or route.handler is of_messages
                assert of_messages is not None or of_frames is not None

    scenario()


# Throttle times


@on_a_loop
async def test_every_answer_says_for_how_long_its_client_has_to_wait() -> None:
    bench = leading()
    bench.connection.throttle_time_ms = 250
    assert bench.ask(FindCoordinatorRequest(key_type=9), ApiKey.FIND_COORDINATOR, 3).response.throttle_time_ms == 250
    assert bench.produce(version=9).response.throttle_time_ms == 250
    assert bench.fetch(0, version=12, max_wait_ms=0).response.throttle_time_ms == 250
    # Older versions have no place for it.
    assert bench.ask(ListOffsetsRequest(), ApiKey.LIST_OFFSETS, 1).response.throttle_time_ms == 0
    quotas = [quota for quota, _ in bench.connection.counted]
    assert quotas == [QuotaType.REQUEST, QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.REQUEST]


@on_a_loop
async def test_the_client_id_of_the_latest_request_is_that_of_the_client() -> None:
    bench = leading()
    bench.raw(header(ApiKey.API_VERSIONS, 0, client_id="one"))
    assert bench.connection.client.client_id == "one"
    bench.raw(header(ApiKey.API_VERSIONS, 0, client_id=None))
    assert bench.connection.client.client_id is None


@on_a_loop
async def test_a_handler_may_be_swapped_between_two_requests_of_one_read() -> None:
    def authenticated(frame: memoryview, connection: Connection) -> Answer:
        return b"second"

    def authenticate(frame: memoryview, connection: Connection) -> Answer:
        connection.handler = FunctionHandler(authenticated)
        return b"first"

    bench = Bench(authenticate)
    client = bench.connect()
    client.send(framed(b"one", b"two"))
    bench.turns.run()
    assert client.answers == [b"first", b"second"]


@on_a_loop
async def test_of_a_long_name_of_a_clients_software_the_beginning_is_kept() -> None:
    bench = HandlerBench()
    asked = bench.ask(ApiVersionsRequest(client_software_name="n" * 5_000, client_software_version="1" * 5_000), ApiKey.API_VERSIONS, 3)
    assert asked.response.error_code == ErrorCode.NONE
    client = bench.connection.client
    assert (client.client_software_name, client.client_software_version) == ("n" * 128, "1" * 128)
