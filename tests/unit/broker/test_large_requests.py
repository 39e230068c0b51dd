"""A request with thousands of elements between others: who is served when, in which order, and what it leaves behind."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.cluster.control_requests import ControlRequests
from ottla.broker.handlers.data.produce import AT_ONCE
from ottla.broker.network.request_channel import Pending
from ottla.broker.security.authorizer import Authorizer
from ottla.controller.admin.metadata_waits import MetadataWaits
from ottla.pauses import begin_slices
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.protocol.schema.wire import MAX_ELEMENTS
from tests.support.golden_replay import request_frame
from tests.support.grants import Grants
from tests.support.handler_bench import HandlerBench, on_a_loop
from tests.support.network import Bench, Client
from tests.support.pauses import a_turn
from tests.support.replicas import TOPIC_ID, brokers, metadata

ELEMENTS = 3000


def large(api_key: ApiKey = ApiKey.LIST_OFFSETS) -> bytes:
    if api_key == ApiKey.PRODUCE:
        data = [PartitionProduceData(index=index, records=b"") for index in range(ELEMENTS)]
        topics = [TopicProduceData(name="none", partition_data=data)]
        return request_frame(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), api_key, 9)
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(ELEMENTS)]
    asked = [ListOffsetsTopic(name="none", partitions=partitions)]
    return request_frame(ListOffsetsRequest(replica_id=-1, topics=asked), api_key, 7)


SMALL = request_frame(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0)


class World:
    """Connections without sockets before real handlers, on a loop that is turned by hand; a turn is worth one step."""

    def __init__(self, slice_ns: int = 0, authorizer: Authorizer | None = None) -> None:
        handlers = HandlerBench()
        self.dispatcher = handlers.dispatcher
        self.network = Bench(handlers.dispatcher.handle, authorizer=authorizer)
        self.services: Any = handlers.services
        begin_slices(asyncio.get_running_loop(), slice_ns=slice_ns)

    def connect(self) -> Client:
        return self.network.connect()

    async def turn(self) -> None:
        self.network.turns.turn()
        await a_turn()

    async def rest(self) -> None:
        for _ in range(500):
            await self.turn()

    async def answered(self, client: Client, count: int) -> int:
        """Turn until the client has so many answers; how many turns that took."""
        turns = 0
        while len(client.answers) < count:
            await self.turn()
            turns += 1
        return turns


@pytest.mark.slow
@on_a_loop
async def test_others_are_answered_in_the_next_turn_meanwhile() -> None:
    for api_key, steps in ((ApiKey.LIST_OFFSETS, 2 * ELEMENTS), (ApiKey.PRODUCE, ELEMENTS // AT_ONCE)):
        world = World()
        hostile, other = world.connect(), world.connect()
        hostile.send(large(api_key))
        turns = served = 0
        while not hostile.transport.sent:
            if turns % 10 == 0:
                other.send(SMALL)
                await world.turn()
                served += 1
                assert len(other.answers) == served
            await world.turn()
            turns += 1
        assert turns > steps


@on_a_loop
async def test_the_answer_is_the_same_as_at_once() -> None:
    for api_key in (ApiKey.LIST_OFFSETS, ApiKey.PRODUCE):
        world = World()
        client = world.connect()
        client.send(large(api_key))
        await world.answered(client, 1)
        handlers = HandlerBench()
        handlers.dispatcher.large_bytes = 10**9
        at_once = handlers.raw(large(api_key)[4:])
        assert client.answers == [at_once]


@on_a_loop
async def test_answers_leave_in_the_order_of_the_requests() -> None:
    world = World(slice_ns=10**6)
    client = world.connect()
    client.send_all(SMALL + large() + SMALL + large() + SMALL)
    await world.answered(client, 5)
    sizes = [len(answer) for answer in client.answers]
    assert sizes[0] == sizes[2] == sizes[4] < sizes[1] == sizes[3]


@on_a_loop
async def test_a_client_that_leaves_before_its_turn_leaves_nothing() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.send(large())
    await world.turn()
    second.send(large())
    channel = world.network.channel
    assert (channel.queue_size, channel.queued_bytes) == (1, len(large()) - 4)
    second.connection.connection_lost(None)
    assert (channel.queue_size, channel.queued_bytes) == (0, 0)
    await world.answered(first, 1)


@on_a_loop
async def test_requests_that_wait_for_their_turn_count_as_queued_until_it_comes() -> None:
    world = World(slice_ns=10**6)
    world.network.channel.max_requests = 2
    clients = [world.connect() for _ in range(3)]
    for client in clients:
        client.send(large())
    assert world.network.channel.full
    for client in clients:
        await world.answered(client, 1)
    assert (world.network.channel.queue_size, world.network.channel.queued_bytes, world.network.channel.full) == (0, 0, False)


@on_a_loop
async def test_a_connection_that_drains_waits_for_what_has_begun_only() -> None:
    world = World()
    begun, waiting = world.connect(), world.connect()
    begun.send(large())
    await world.turn()
    waiting.send(large())
    for client in (begun, waiting):
        client.connection.drain()
    assert waiting.transport.closing
    assert not begun.transport.closing
    await world.answered(begun, 1)
    await world.turn()
    assert begun.transport.closing


@on_a_loop
async def test_a_large_request_that_cannot_be_read_closes_its_connection() -> None:
    world = World(slice_ns=10**6)
    client = world.connect()
    broken = large()[4:-3]
    client.send(struct.pack(">i", len(broken)) + broken)
    await world.rest()
    assert client.transport.closing
    assert any("cannot be read (LIST_OFFSETS v7)" in line for line in world.network.lines)


@on_a_loop
async def test_a_large_request_needs_no_slot() -> None:
    world = World()
    client = world.connect()
    client.send(large())
    await world.turn()
    assert world.network.channel.slots_in_use == 0
    (pending,) = client.connection._waiting or ()
    assert isinstance(pending, Pending)
    assert pending.is_worked_on_in_turns


@on_a_loop
async def test_what_the_controller_says_waits_for_no_client_and_lets_others_be_answered() -> None:
    world = World()
    services = world.services
    services.cluster.controller = SimpleNamespace(broker_epoch=1)
    services.cluster.control_requests = ControlRequests(services.data.replica_manager, cast("Any", None), MetadataWaits())
    topic = metadata("many", TOPIC_ID, **{f"p{index}": 1 for index in range(ELEMENTS)})
    update = UpdateMetadataRequest(controller_epoch=1, broker_epoch=1, live_brokers=brokers(0, 1), topic_states=[topic])
    hostile, controller, other = world.connect(), world.connect(), world.connect()
    hostile.send(large())
    await world.turn()
    controller.send(request_frame(update, ApiKey.UPDATE_METADATA, 8))
    turns = served = 0
    while not controller.transport.sent:
        if turns % 100 == 0:
            other.send(SMALL)
            await world.turn()
            served += 1
            assert len(other.answers) == served
        await world.turn()
        turns += 1
    assert turns > ELEMENTS
    assert not hostile.transport.sent, "it has more elements, and both take turns"
    assert len(services.metadata.topics["many"].partitions) == ELEMENTS


@on_a_loop
async def test_a_large_request_whose_handler_waits_lets_the_next_one_be_served() -> None:
    world = World(slice_ns=10**6)
    route = world.dispatcher.route_of(ApiKey.LIST_OFFSETS, 7)
    assert route is not None
    serve, go = route.handler, asyncio.Event()

    async def later() -> ListOffsetsResponse:
        await go.wait()
        return ListOffsetsResponse()

    route.handler = lambda request, context: later()
    first, second = world.connect(), world.connect()
    first.send(large())
    await world.rest()
    route.handler = serve
    second.send(large())
    await world.answered(second, 1)
    assert not first.transport.sent
    go.set()
    await world.dispatcher.drain()
    await world.answered(first, 1)


@on_a_loop
async def test_who_may_not_act_as_a_broker_waits_like_every_client_and_is_refused() -> None:
    world = World(authorizer=Grants())
    hostile, liar = world.connect(), world.connect()
    hostile.send(large())
    await world.turn()
    liar.send(request_frame(leaders(ELEMENTS), ApiKey.LEADER_AND_ISR, 5))
    assert world.network.channel.queue_size == 1
    while not hostile.transport.sent:
        await world.turn()
    assert not liar.transport.sent
    await world.answered(liar, 1)
    response = LeaderAndIsrResponse.decode(liar.answers[0], 5, 5)[0]
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    codes = [each.error_code for topic in response.topics for each in topic.partition_errors]
    assert codes == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * ELEMENTS


def test_only_who_may_act_as_a_broker_may_send_any_number_of_elements() -> None:
    @on_a_loop
    async def scenario() -> None:
        for authorizer, is_closed in ((Grants(), True), (Grants((Operation.CLUSTER_ACTION, ResourceType.CLUSTER)), False)):
            world = World(slice_ns=10**6, authorizer=authorizer)
            world.dispatcher.max_elements = ELEMENTS
            world.services.cluster.controller = SimpleNamespace(broker_epoch=2)
            client = world.connect()
            client.send(request_frame(leaders(ELEMENTS), ApiKey.LEADER_AND_ISR, 5))
            await world.rest()
            assert client.transport.closing == is_closed
            assert [f"more than {MAX_ELEMENTS} elements" in line for line in world.network.lines] == [True] * is_closed
            assert len(client.answers) == (not is_closed)

    scenario()


def leaders(count: int) -> LeaderAndIsrRequest:
    """For an earlier incarnation of the broker."""
    states = [LeaderAndIsrPartitionState(partition_index=index) for index in range(count)]
    return LeaderAndIsrRequest(broker_epoch=1, topic_states=[LeaderAndIsrTopicState(topic_name="t", partition_states=states)])
