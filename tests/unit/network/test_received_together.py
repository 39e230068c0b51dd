"""What `handle_several` answers of a read, and what it leaves: the client gets the same answers, however its requests came."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.network.answer_writer import TURN_BYTES
from broker.network.request_channel import Pending, Several
from tests.support.network import Bench, Client, framed, unframed

PRODUCE, FETCH, METADATA = 0, 1, 3


def a_request(kind: int, number: int, size: int = 12) -> bytes:
    """The first bytes of a header, and a number that the answer repeats."""
    return bytes((0, kind, 0, 9)) + number.to_bytes(4, "big") + bytes(size - 8)


def answer_to(frame: bytes) -> bytes:
    return frame[4:8] + bytes(frame[1:2]) * 3


class Together:
    """A `handle_several` that does as many of one kind as it was told to, in the form it was told to."""

    def __init__(self, plan: list[tuple[int, bool]], *, answer_bytes: int = 0) -> None:
        """`plan`: how many at once (0: None), and whether each is by itself; over and over."""
        self.plan = plan
        self.calls = 0
        self.done = 0
        self.answer_bytes = answer_bytes

    def __call__(self, view: memoryview, position: int, end: int, connection: object) -> Several | None:
        most, by_itself = self.plan[self.calls % len(self.plan)]
        self.calls += 1
        frames: list[bytes] = []
        kind = view[position + 5]
        while len(frames) < most and position + 4 <= end:
            after = position + 4 + int.from_bytes(view[position : position + 4], "big")
            if after > end or view[position + 5] != kind:
                break
            frames.append(bytes(view[position + 4 : after]))
            position = after
        if not frames:
            return None
        self.done += len(frames)
        answers: list[Any] = [answer_to(frame) + bytes(self.answer_bytes) for frame in frames]
        if by_itself:
            return answers, len(frames), position, 0
        together = framed(*answers)
        return [together], len(frames), position, len(together)


def connect(together: Together) -> Client:
    bench = Bench(lambda frame, connection: answer_to(bytes(frame)))
    bench.processor.handle_several = together
    return bench.connect()


def answers_of(client: Client) -> list[bytes]:
    client.bench.turns.run()
    return unframed(bytes(client.transport.sent))


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.tuples(st.sampled_from([PRODUCE, FETCH, METADATA]), st.integers(8, 40)), max_size=20),
    st.lists(st.integers(1, 200), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=5),
)
def test_answers_are_the_same_and_in_order_wherever_the_bytes_are_cut(
    asked: list[tuple[int, int]], cuts: list[int], plan: list[tuple[int, bool]]
) -> None:
    requests = [a_request(kind, number, size) for number, (kind, size) in enumerate(asked)]
    client = connect(Together(plan))
    received = framed(*requests)
    position = number = 0
    while position < len(received):
        count = cuts[number % len(cuts)]
        client.send_all(received[position : position + count])
        position += count
        number += 1
    assert answers_of(client) == [answer_to(each) for each in requests]
    assert client.transport.reading


def test_a_fetch_is_given_to_it_alone_and_a_produce_only_with_another_behind() -> None:
    together = Together([(9, False)])
    client = connect(together)
    for kind, calls in ((METADATA, 0), (PRODUCE, 0), (FETCH, 1)):
        client.send_all(framed(a_request(kind, 1)))
        assert together.calls == calls
    client.send_all(framed(a_request(PRODUCE, 1), a_request(PRODUCE, 2)))
    assert together.calls == 2
    assert len(answers_of(client)) == 5


@pytest.mark.parametrize("kind", [PRODUCE, FETCH])
def test_a_request_too_short_for_a_header_is_handled_by_itself(kind: int) -> None:
    together = Together([(9, False)])
    bench = Bench()
    bench.processor.handle_several = together
    client = bench.connect()
    shortest = bytes((0, kind, 0, 9, 1, 2, 3))
    client.send_all(framed(b"\x00", shortest[:2], shortest))
    bench.turns.run()
    assert bench.handled == [b"\x00", shortest[:2], shortest]
    assert together.calls == 0


def test_nothing_is_handled_together_while_requests_wait_for_a_slot() -> None:
    together = Together([(9, False)])
    waiting = Pending(occupies_slot=True)
    bench = Bench(lambda frame, connection: waiting, slots=1)
    bench.connect().send_all(framed(a_request(METADATA, 1)))
    assert not bench.channel.inline
    bench.processor.handle_several = together
    other = bench.connect()
    other.send(framed(a_request(FETCH, 2), a_request(FETCH, 3)))
    assert together.calls == 0
    bench._handler = lambda frame, connection: answer_to(bytes(frame))
    waiting.complete(b"now")
    assert answers_of(other) == [answer_to(a_request(FETCH, 2)), answer_to(a_request(FETCH, 3))]


def test_a_turn_has_an_end_and_the_rest_follows() -> None:
    together = Together([(3, False)], answer_bytes=TURN_BYTES // 2)
    client = connect(together)
    client.send_all(framed(*(a_request(FETCH, number) for number in range(8))))
    assert [int.from_bytes(each[:4], "big") for each in answers_of(client)] == list(range(8))
    assert together.calls == 3


def test_an_unforeseen_failure_closes_that_connection_alone(caplog: pytest.LogCaptureFixture) -> None:
    def fail(*arguments: object) -> Several | None:
        raise RuntimeError("by the test")

    client = connect(Together([(9, False)]))
    other = client.bench.connect()
    client.bench.processor.handle_several = fail
    client.send(framed(a_request(FETCH, 1)))
    assert client.transport.aborted
    assert "a request failed in an unforeseen way" in caplog.text
    other.send(framed(a_request(METADATA, 2)))
    assert answers_of(other) == [answer_to(a_request(METADATA, 2))]


def test_answers_that_wait_to_be_sent_leave_before_others_are_read() -> None:
    client = connect(Together([(9, False)]))
    client.send(framed(a_request(FETCH, 1)))
    client.send(framed(a_request(FETCH, 2)))
    assert answers_of(client) == [answer_to(a_request(FETCH, 1)), answer_to(a_request(FETCH, 2))]


def test_a_connection_that_reads_and_writes_is_not_idle() -> None:
    client = connect(Together([(9, False)]))
    client.bench.now_ns = 5
    client.send(framed(a_request(FETCH, 1)))
    assert (client.connection.received_ns, client.connection.last_active_ns) == (5, 5)
