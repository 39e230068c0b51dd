"""Requests of a connection that come together: the client gets the same answers, however its bytes came."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.network.limits import TURN_BYTES
from ottla.broker.network.request_channel import Answer, Pending
from tests.support.network import Bench, Client, framed, unframed

PRODUCE, FETCH, METADATA = 0, 1, 3


def a_request(kind: int, number: int, size: int = 12) -> bytes:
    """The first bytes of a header, and a number that the answer repeats."""
    return bytes((0, kind, 0, 9)) + number.to_bytes(4, "big") + bytes(size - 8)


def answer_to(frame: bytes) -> bytes:
    return frame[4:8] + bytes(frame[1:2]) * 3


def connect(answer_bytes: int = 0) -> Client:
    return Bench(lambda frame, connection: answer_to(bytes(frame)) + bytes(answer_bytes)).connect()


def answers_of(client: Client) -> list[bytes]:
    client.bench.turns.run()
    return unframed(bytes(client.transport.sent))


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.tuples(st.sampled_from([PRODUCE, FETCH, METADATA]), st.integers(8, 40)), max_size=20),
    st.lists(st.integers(1, 200), min_size=1, max_size=8),
)
def test_answers_are_the_same_and_in_order_wherever_the_bytes_are_cut(asked: list[tuple[int, int]], cuts: list[int]) -> None:
    requests = [a_request(kind, number, size) for number, (kind, size) in enumerate(asked)]
    client = connect()
    received = framed(*requests)
    position = number = 0
    while position < len(received):
        count = cuts[number % len(cuts)]
        client.send_all(received[position : position + count])
        position += count
        number += 1
    assert answers_of(client) == [answer_to(each) for each in requests]
    assert client.transport.reading


@pytest.mark.parametrize("kind", [PRODUCE, FETCH])
def test_a_request_too_short_for_a_header_reaches_the_handler(kind: int) -> None:
    bench = Bench()
    shortest = bytes((0, kind, 0, 9, 1, 2, 3))
    bench.connect().send_all(framed(b"\x00", shortest[:2], shortest))
    bench.turns.run()
    assert bench.handled == [b"\x00", shortest[:2], shortest]


def test_nothing_is_handled_while_requests_wait_for_a_slot() -> None:
    waiting = Pending(occupies_slot=True)
    bench = Bench(lambda frame, connection: waiting, slots=1)
    bench.connect().send_all(framed(a_request(METADATA, 1)))
    assert not bench.channel.inline
    other = bench.connect()
    other.send(framed(a_request(FETCH, 2), a_request(FETCH, 3)))
    assert bench.handled == [a_request(METADATA, 1)]
    bench._handler = lambda frame, connection: answer_to(bytes(frame))
    waiting.complete(b"now")
    assert answers_of(other) == [answer_to(a_request(FETCH, 2)), answer_to(a_request(FETCH, 3))]


def test_a_turn_has_an_end_and_the_rest_follows() -> None:
    client = connect(TURN_BYTES // 2)
    client.send(framed(*(a_request(FETCH, number) for number in range(8))))
    assert len(client.bench.handled) == 2
    assert [int.from_bytes(each[:4], "big") for each in answers_of(client)] == list(range(8))


def test_an_unforeseen_failure_closes_that_connection_alone(caplog: pytest.LogCaptureFixture) -> None:
    def answer(frame: memoryview, connection: object) -> Answer:
        if frame[1] == FETCH:
            raise RuntimeError("by the test")
        return answer_to(bytes(frame))

    client = Bench(answer).connect()
    other = client.bench.connect()
    client.send(framed(a_request(FETCH, 1)))
    assert client.transport.aborted
    assert "unexpected error in a request" in caplog.text
    other.send(framed(a_request(METADATA, 2)))
    assert answers_of(other) == [answer_to(a_request(METADATA, 2))]


def test_answers_that_wait_to_be_sent_leave_before_others_are_read() -> None:
    client = connect()
    client.send(framed(a_request(FETCH, 1)))
    client.send(framed(a_request(FETCH, 2)))
    assert answers_of(client) == [answer_to(a_request(FETCH, 1)), answer_to(a_request(FETCH, 2))]


def test_a_connection_that_reads_and_writes_is_not_idle() -> None:
    client = connect()
    client.bench.now_ns = 5
    client.send(framed(a_request(FETCH, 1)))
    assert (client.connection.received_ns, client.connection.last_active_ns) == (5, 5)
