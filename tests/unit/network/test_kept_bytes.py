"""Bytes of small requests that wait or are unfinished: all connections together keep a bounded number of them."""

from __future__ import annotations

import asyncio
import socket
from itertools import count, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.network.frame_memory import HUGE_BYTES, MUCH_BYTES, Level
from ottla.broker.network.limits import (
    FULL_WINDOW_BYTES,
    PATIENCE_NS,
    RECEIVE_BUFFER_BYTES,
    TURN_BYTES,
    TURN_NS,
    UNHANDLED_DIVISOR,
    UNHANDLED_FREE_BYTES,
    NetworkLimits,
)
from ottla.broker.network.request_channel import Answer, Pending
from ottla.pauses import begin, begin_slices
from tests.support.handler_bench import on_a_loop
from tests.support.network import BETWEEN_BROKERS, Bench, Client, framed, other, produce

POLL = other(b"poll")
MANY = framed(POLL, *[other(bytes(998))] * 300)
"""More than one read, of which the first request waits."""
LIMIT = HUGE_BYTES // UNHANDLED_DIVISOR
BEHIND = RECEIVE_BUFFER_BYTES
CONNECTIONS = 4 * LIMIT // BEHIND


class Polls:
    """A bench whose polls wait until the test answers them. `kind` makes them something else that waits."""

    def __init__(self, **kind: bool) -> None:
        self.polls: list[Pending] = []
        self._kind = kind
        self.bench = Bench(self._handle, limits=NetworkLimits(large_requests_max_bytes=HUGE_BYTES))

    def _handle(self, frame: memoryview, _: object) -> Answer:
        if bytes(frame[2:6]) != b"poll":
            return bytes(frame)
        self.polls.append(Pending(**self._kind))
        return self.polls[-1]

    @property
    def held(self) -> int:
        """The bytes that count."""
        return self.bench.channel.unhandled_bytes

    def attackers(self, stream: bytes = MANY) -> list[Client]:
        """Connections that send as much as the broker reads."""
        clients = [self.bench.connect() for _ in range(CONNECTIONS)]
        for client in clients:
            client.send(stream)
        return clients

    def end_late(self) -> None:
        """Nobody transfers anything for longer than the patience."""
        self.bench.turns.run()
        self.bench.now_ns += PATIENCE_NS + 1
        begin(self.bench.processor.end_late())


def closed(clients: list[Client]) -> int:
    return sum(client.transport.closing for client in clients)


def leave(polls: Polls, clients: list[Client]) -> None:
    for client in clients:
        client.connection.connection_lost(None)
    polls.bench.turns.run()


def test_what_waits_behind_waiting_requests_is_bounded_and_given_back() -> None:
    polls = Polls()
    clients = polls.attackers()
    most = LIMIT + BEHIND + CONNECTIONS * FULL_WINDOW_BYTES
    assert LIMIT < polls.held <= most
    assert sum(client.connection.kept_bytes for client in clients) == polls.held
    leave(polls, clients)
    assert polls.held == 0


def test_it_is_given_back_when_it_is_handled() -> None:
    polls = Polls()
    client = polls.bench.connect()
    sent = client.send(MANY)
    assert polls.held == RECEIVE_BUFFER_BYTES - len(framed(POLL))
    polls.polls[0].complete(b"news")
    client.send_all(MANY[sent:])
    assert client.answers == [b"news", *[other(bytes(998))] * 300]
    assert polls.held == 0


def test_those_that_keep_much_behind_a_waiting_request_are_closed_when_it_is_many() -> None:
    polls = Polls()
    small = polls.bench.connect()
    small.send(framed(POLL, other()))
    clients = polls.attackers()
    begin(polls.bench.processor.end_late())
    assert closed(clients) == 0
    polls.end_late()
    assert 0 < closed(clients) < len(clients)  # those that were read in small windows keep little
    assert not small.transport.closing
    assert "take memory that others need; closing the connection" in polls.bench.lines[0]
    leave(polls, [client for client in clients if client.transport.closing])
    assert polls.held <= LIMIT
    wide = polls.bench.connect()
    assert wide.send(MANY) == RECEIVE_BUFFER_BYTES


@on_a_loop
async def test_those_that_keep_too_much_are_closed_a_slice_in_each_turn() -> None:
    polls = Polls()
    clients = polls.attackers()
    polls.bench.turns.run()
    keeping = sum(client.connection.kept_bytes > FULL_WINDOW_BYTES for client in clients)
    polls.bench.now_ns += PATIENCE_NS + 1
    begin_slices(asyncio.get_running_loop(), count(1).__next__, 4)
    begin(polls.bench.processor.end_late())
    turns = [closed(clients)]
    for _ in range(CONNECTIONS):
        await asyncio.sleep(0)
        turns.append(closed(clients))
    most = max(after - before for before, after in pairwise([0, *turns]))
    assert 0 < most <= 4
    assert turns[-1] == keeping > 2 * most


def test_while_it_is_little_only_those_are_closed_whose_client_has_left() -> None:
    """Nothing is read of them, so that nothing else shows it."""
    polls = Polls()
    clients = [polls.bench.connect() for _ in range(UNHANDLED_FREE_BYTES // BEHIND + 2)]
    polls.bench.channel.most_unhandled_bytes = 2 * UNHANDLED_FREE_BYTES
    ours, theirs = socket.socketpair()
    with ours:
        for client in clients:
            client.transport._extra["socket"] = ours
            client.send(MANY)
        polls.end_late()
        assert closed(clients) == 0
        theirs.close()
        polls.end_late()
        assert closed(clients) == len(clients)


@pytest.mark.parametrize("kind", ["appended", "occupies_slot", "in_turns"])
def test_nobody_is_closed_whose_request_the_broker_will_answer(kind: str) -> None:
    """It is an append that waits for replicas, or one that is worked on."""
    polls = Polls(**{kind: True})
    clients = polls.attackers()
    polls.end_late()
    assert closed(clients) == 0


def test_nobody_is_closed_whose_large_request_is_not_read_before_replicas_have_appended_ones() -> None:
    polls = Polls(appended=True)
    clients = polls.attackers(framed(produce(b"poll"), other(bytes(2 * RECEIVE_BUFFER_BYTES))))
    assert not clients[0].transport.reading
    assert clients[0].connection.kept_bytes > FULL_WINDOW_BYTES
    polls.end_late()
    assert not clients[0].transport.closing


def test_nobody_is_closed_who_waits_for_a_throttle_time() -> None:
    polls = Polls()
    clients = polls.attackers()
    for client in clients:
        client.connection.mute(60_000)
    polls.end_late()
    assert closed(clients) == 0


def test_those_that_do_not_read_their_answers_are_closed() -> None:
    polls = Polls()
    clients = [polls.bench.connect(takes=0) for _ in range(CONNECTIONS)]
    answers = framed(*[other(bytes(98))] * (RECEIVE_BUFFER_BYTES // 104))
    assert len(answers) < TURN_BYTES
    for client in clients:
        client.send(answers)
    polls.bench.turns.run()
    polls.end_late()
    assert polls.held > LIMIT
    assert closed(clients) > 0


def test_memory_is_given_back_once_for_each_time_that_much_was_freed() -> None:
    level = Level()
    most = 3 * MUCH_BYTES
    assert [level.has_fallen(kept) for kept in (0, most, most - MUCH_BYTES + 1, MUCH_BYTES, MUCH_BYTES, 1, 0)] == [
        False, False, False, True, False, False, True,
    ]  # fmt: skip


# -- unfinished requests ---------------------------------------------------------------------------------------------------

UNFINISHED = framed(other(bytes(200_000)))[:-1]


def test_unfinished_ones_need_room_when_they_are_many_and_give_it_to_honest_ones() -> None:
    polls = Polls()
    memory = polls.bench.channel.frame_memory
    clients = polls.attackers(UNFINISHED)
    while not memory.is_wanted:
        clients += polls.attackers(UNFINISHED)
    assert polls.held <= LIMIT + HUGE_BYTES + len(clients) * FULL_WINDOW_BYTES
    honest = polls.bench.connect()
    request = framed(other(bytes(100_000)))
    sent = honest.send(request)
    assert sent == FULL_WINDOW_BYTES
    polls.end_late()
    leave(polls, [client for client in clients if client.transport.closing])
    honest.send_all(request[sent:])
    assert honest.answers == [other(bytes(100_000))]
    leave(polls, clients)
    assert (polls.held, memory.taken) == (0, 0)


def test_one_that_comes_by_drops_gives_way() -> None:
    polls = Polls()
    clients = polls.attackers(UNFINISHED[:150_000])
    polls.bench.turns.run()
    for _ in range(3):
        polls.bench.now_ns += PATIENCE_NS - 1
        for client in clients:
            client.send(b"-")
        polls.bench.turns.run()
    assert polls.held > LIMIT
    begin(polls.bench.processor.end_late())
    assert closed(clients) > 0


def test_one_between_brokers_needs_no_room() -> None:
    polls = Polls()
    polls.attackers(UNFINISHED)
    broker = polls.bench.connect()
    urgent = bytes([0, BETWEEN_BROKERS]) + bytes(100_000)
    broker.send_all(framed(urgent))
    assert polls.bench.handled == [urgent]


def test_one_between_brokers_needs_no_room_although_it_comes_in_pieces() -> None:
    polls = Polls()
    clients = polls.attackers(UNFINISHED)
    while not polls.bench.channel.frame_memory.is_wanted:
        clients += polls.attackers(UNFINISHED)
    broker = polls.bench.connect()
    urgent = bytes([0, BETWEEN_BROKERS]) + bytes(100)
    stream = framed(urgent)
    broker.send_all(stream[:5])
    broker.send_all(stream[5:])
    assert polls.bench.handled == [urgent]


def a_scarce_bench(handler: Polls | None = None) -> Bench:
    """One that reads in small windows, and wants room for every unfinished request."""
    bench = handler.bench if handler is not None else Bench()
    bench.channel.most_unhandled_bytes = -1
    return bench


def test_one_that_has_room_is_read_to_its_end_and_no_further() -> None:
    bench = a_scarce_bench()
    client = bench.connect()
    assert len(client.connection.get_buffer(-1)) == FULL_WINDOW_BYTES
    client.send(framed(other(bytes(100_000)))[:10])
    assert len(client.connection.get_buffer(-1)) == 100_006 - 10


def test_room_is_given_back_with_the_answer_and_behind_an_append() -> None:
    polls = Polls(appended=True)
    bench = a_scarce_bench(polls)
    client = bench.connect()
    requests = framed(other(bytes(10_000)), produce(b"poll"), other(bytes(10_000)))
    client.send_all(requests[:9_000])
    memory = bench.channel.frame_memory
    assert memory.taken == 10_006
    client.send_all(requests[9_000:10_106])
    assert memory.taken == 10_006  # that of the second large one
    client.send(requests[10_106:])
    bench.turns.run()
    assert memory.taken == 0
    assert polls.held > 0
    polls.polls[0].complete(b"stored")
    bench.turns.run()
    assert client.answers == [other(bytes(10_000)), b"stored", other(bytes(10_000))]
    assert (memory.taken, polls.held) == (0, 0)


def test_a_request_with_room_is_read_to_its_end_at_once() -> None:
    """Otherwise a busy broker takes longer than its client may."""
    bench = a_scarce_bench()
    client = bench.connect()
    request = framed(other(bytes(200_000)))
    client.send(request[:FULL_WINDOW_BYTES])
    assert len(client.connection.get_buffer(-1)) == len(request) - FULL_WINDOW_BYTES
    bench.channel.is_spent = True
    assert len(client.connection.get_buffer(-1)) == FULL_WINDOW_BYTES, "thousands of them may be ready in one turn"


def test_a_request_keeps_its_room_when_the_time_of_a_turn_is_used_up() -> None:
    """Otherwise it would wait behind all others again, after each piece."""
    bench = a_scarce_bench()
    bench.now_ns = 1
    client, request = bench.connect(), framed(other(bytes(200_000)))
    client.send(request[:FULL_WINDOW_BYTES])
    bench.now_ns += TURN_NS + 1
    memory = bench.channel.frame_memory
    client.send(request[FULL_WINDOW_BYTES:10_000])
    assert not client.transport.reading
    assert memory.taken == len(request)
    bench.turns.run()
    assert memory.taken == len(request)
    client.send_all(request[10_000:])
    assert client.answers == [other(bytes(200_000))]
    assert (memory.taken, bench.channel.unhandled_bytes) == (0, 0)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_with_little_memory_any_stream_yields_the_same_answers(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.one_of(st.integers(2, 40), st.integers(2, 20_000), st.sampled_from([262_140, 300_000])), max_size=8))
    bodies = [other(bytes([number]) * (size - 2)) for number, size in enumerate(sizes)]
    stream = framed(*bodies)
    bench = a_scarce_bench()
    client = bench.connect()
    position = 0
    while position < len(stream):
        chunk = data.draw(st.one_of(st.integers(1, 9), st.integers(1, 5000), st.integers(1, 400_000)))
        client.send_all(stream[position : position + chunk])
        position += chunk
    assert client.answers == bodies
    assert (bench.channel.unhandled_bytes, bench.channel.frame_memory.taken, bench.channel.frame_memory.parts) == (0, 0, 0)
