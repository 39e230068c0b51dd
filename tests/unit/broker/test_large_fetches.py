"""A Fetch of thousands of partitions between others: who is served when, and what it leaves behind."""

from typing import Any

import pytest

from ottla.broker.handlers.data.fetch import LARGE_BYTES
from ottla.broker.handlers.data.fetch_stages import PARTITIONS_PER_STEP
from ottla.broker.network.request_channel import CLOSE, Pending
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tests.support.golden_replay import request_frame
from tests.support.handler_bench import HandlerBench, on_a_loop
from tests.support.network import Bench, Client
from tests.support.pauses import a_turn, every_pause_waits
from tests.support.replicas import TOPIC, TOPIC_ID, state

PARTITIONS = 2100
VERSION = 17
LAST_BY_NAME = 12
SMALL = request_frame(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0)


def leading(partitions: int) -> HandlerBench:
    """Broker 0 leads so many, without other replicas."""
    handlers = HandlerBench()
    handlers.replicas.say(*(state(isr=[0], replicas=[0], index=index) for index in range(partitions)))
    handlers.know(**{f"p{index}": 0 for index in range(partitions)})
    return handlers


class World:
    """Connections without sockets before real handlers, on a loop that is turned by hand; a turn is worth one step."""

    def __init__(self, partitions: int = 0) -> None:
        self.handlers = leading(partitions)
        self.network = Bench(self.handlers.dispatcher.handle)
        every_pause_waits()

    def connect(self) -> Client:
        return self.network.connect()

    async def turn(self) -> None:
        self.network.turns.turn()
        await a_turn()

    async def turn_until_answered(self, client: Client, count: int) -> int:
        """How many turns that took."""
        turns = 0
        while len(client.answers) < count:
            await self.turn()
            turns += 1
        return turns


def a_request(count: int = PARTITIONS, **more: Any) -> FetchRequest:
    asked = [FetchPartition(partition=index, partition_max_bytes=1000) for index in range(count)]
    more.setdefault("max_wait_ms", 0)
    more.setdefault("session_epoch", -1)
    return FetchRequest(min_bytes=1, topics=[FetchTopic(topic_id=TOPIC_ID, partitions=asked)], **more)


def large(**more: Any) -> bytes:
    frame = request_frame(a_request(**more), ApiKey.FETCH, VERSION)
    assert len(frame) > LARGE_BYTES
    return frame


@pytest.mark.slow
@on_a_loop
async def test_others_are_answered_in_the_next_turn_meanwhile() -> None:
    world = World(PARTITIONS)
    hostile, other = world.connect(), world.connect()
    hostile.send(large())
    turns = served = 0
    while not hostile.transport.sent:
        other.send(SMALL)
        await world.turn()
        served += 1
        assert len(other.answers) == served
        turns += 1
    assert turns > 2 * PARTITIONS // PARTITIONS_PER_STEP


@on_a_loop
async def test_a_topic_without_a_name_is_not_taken_for_the_one_before_it() -> None:
    handlers = leading(PARTITIONS_PER_STEP)
    named = [FetchPartition(partition=index, partition_max_bytes=1000) for index in range(PARTITIONS_PER_STEP)]
    topics = [FetchTopic(topic=TOPIC, partitions=named), FetchTopic(topic="", partitions=named[:1])]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=-1, topics=topics)
    answered = handlers.ask(request, ApiKey.FETCH, LAST_BY_NAME)
    while answered.waits:
        await a_turn()
    codes = [each.error_code for each in answered.fetched]
    assert codes == [0] * PARTITIONS_PER_STEP + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@on_a_loop
async def test_the_answer_is_the_same_in_turns_and_at_once() -> None:
    world = World(100)
    client = world.connect()
    client.send(large())
    await world.turn_until_answered(client, 1)
    handlers = leading(100)
    answer: Any = handlers.raw(large()[4:])
    assert isinstance(answer, Pending)
    while not answer.completed:
        await a_turn()
    assert client.answers == [b"".join(answer.answer)]  # type: ignore[arg-type]  # there are no records


@pytest.mark.slow
@on_a_loop
async def test_a_large_session_waits_is_woken_and_costs_what_has_changed() -> None:
    world = World(PARTITIONS)
    client = world.connect()
    client.send(large(session_epoch=0))
    await world.turn_until_answered(client, 1)
    ((session_id, session),) = world.handlers.services.data.fetch_sessions.sessions.items()
    assert session.size == PARTITIONS
    waits = {"max_wait_ms": 500, "session_id": session_id}
    client.send(request_frame(FetchRequest(session_epoch=1, min_bytes=1, **waits), ApiKey.FETCH, VERSION))
    while world.handlers.services.data.fetch_purgatory.delayed == 0:
        await world.turn()
    assert all(asked.is_idle for asked in session)
    world.handlers.replicas.append(1, index=77)
    assert await world.turn_until_answered(client, 2) < 5
    client.send(request_frame(FetchRequest(session_epoch=2, min_bytes=1, **waits), ApiKey.FETCH, VERSION))
    assert await world.turn_until_answered(client, 3) < 5
    forgotten = [ForgottenTopic(topic_id=TOPIC_ID, partitions=list(range(PARTITIONS)))]
    request = FetchRequest(session_epoch=3, min_bytes=1, forgotten_topics_data=forgotten, **waits)
    client.send(request_frame(request, ApiKey.FETCH, VERSION))
    await world.turn_until_answered(client, 4)
    assert not world.handlers.services.data.fetch_sessions.sessions
    assert not any(partition.waiters.waiting for partition in world.handlers.replicas.manager)


@pytest.mark.slow
@on_a_loop
async def test_a_client_that_leaves_in_between_leaves_nothing() -> None:
    world = World(PARTITIONS)
    for turns in (0, 1, 5, 42, 77, 1000):
        client = world.connect()
        client.send(large(max_wait_ms=500))
        for _ in range(turns):
            await world.turn()
        client.connection.connection_lost(None)
        for _ in range(200):
            await world.turn()
        channel = world.network.channel
        assert (channel.queue_size, channel.queued_bytes) == (0, 0)
        assert world.handlers.services.data.fetch_purgatory.delayed == 0
        for partition in world.handlers.replicas.manager:
            assert all(waiter.completed for waiter in partition.waiters.waiting)
    other = world.connect()
    other.send(large())
    await world.turn_until_answered(other, 1)


@on_a_loop
async def test_one_that_cannot_be_read_closes_its_connection() -> None:
    handlers = HandlerBench()
    answer: Any = handlers.raw(large()[4:-1])
    assert isinstance(answer, Pending)
    while not answer.completed:
        await a_turn()
    assert answer.answer is CLOSE
    assert len(handlers.connection.reasons) == 1
