"""Requests are handled for a while in a turn of the loop; connections that are read later have their turn in the next ones."""

import asyncio
from itertools import count

import pytest

from ottla.broker.network.limits import FULL_WINDOW_BYTES, LARGE_READS, NS_PER_BYTE, RECEIVE_BUFFER_BYTES, TURN_NS
from ottla.broker.network.request_channel import Answer, Pending
from ottla.pauses import begin_slices, is_over
from tests.support.handler_bench import on_a_loop
from tests.support.network import BETWEEN_BROKERS, Bench, framed

NAMES = [b"%d" % number for number in range(10)]
AN_URGENT_ONE = BETWEEN_BROKERS.to_bytes(2, "big")


def a_slow_bench(requests_per_turn: int) -> Bench:
    """Each request takes so long that only a few fit into a turn."""

    def handle(frame: memoryview, _: object) -> Answer:
        bench.now_ns += TURN_NS // requests_per_turn + 1
        return bytes(frame[:1])

    bench = Bench(handle)
    bench.now_ns = 1
    return bench


def test_connections_that_are_read_late_in_a_turn_are_handled_in_the_next_ones_in_order() -> None:
    bench = a_slow_bench(3)
    clients = [bench.connect() for _ in NAMES]
    for client, name in zip(clients, NAMES, strict=True):
        client.send(framed(name))
    handled = [len(bench.handled)]
    for _ in range(4):
        bench.turns.turn()
        handled.append(len(bench.handled))
    assert handled == [3, 6, 9, 10, 10]
    assert bench.handled == NAMES
    bench.turns.run()
    assert [client.answers for client in clients] == [[name] for name in NAMES]
    assert all(client.transport.reading for client in clients)


def test_an_impossible_length_that_is_read_late_in_a_turn_is_refused_in_the_next_one() -> None:
    bench = a_slow_bench(1)
    first, second = (bench.connect() for _ in range(2))
    first.send(framed(b"1"))
    second.send((2**31 - 1).to_bytes(4, "big") + bytes(RECEIVE_BUFFER_BYTES // 2))
    assert bench.channel.frame_memory.taken == 0
    bench.turns.run()
    assert second.transport.aborted


def test_what_is_read_while_others_wait_comes_behind_them() -> None:
    bench = a_slow_bench(1)
    first, second, third = (bench.connect() for _ in range(3))
    first.send(framed(b"1"))
    second.send(framed(b"2"))
    bench.turns.turn()
    third.send(framed(b"3"))
    first.send(framed(b"4"))
    bench.turns.run()
    assert bench.handled == [b"1", b"2", b"3", b"4"]


def test_little_is_read_of_a_connection_when_the_time_is_used_up() -> None:
    bench = a_slow_bench(1)
    first, second, third = (bench.connect() for _ in range(3))
    first.send(framed(b"1"))
    second.send(framed(b"2"))
    taken = third.send(framed(b"3" * 3 * FULL_WINDOW_BYTES))
    assert taken == FULL_WINDOW_BYTES
    assert not third.transport.reading


@pytest.mark.parametrize("size", [1, 3 * FULL_WINDOW_BYTES, 3 * RECEIVE_BUFFER_BYTES])
def test_requests_of_any_size_arrive_whole_however_few_fit_into_a_turn(size: int) -> None:
    bench = a_slow_bench(1)
    busy, client = bench.connect(), bench.connect()
    sent = framed(b"x" * size, b"y" * size)
    taken = 0
    for _ in range(10_000):
        busy.send(framed(b"b"))
        taken += client.send(sent[taken : taken + 70_000])
        bench.turns.turn()
        if taken == len(sent):
            break
    bench.turns.run()
    assert [frame for frame in bench.handled if frame != b"b"] == [b"x" * size, b"y" * size]
    assert client.answers == [b"x", b"y"]


def test_a_large_request_arrives_faster_than_its_client_may_be_slow_however_busy_the_broker_is() -> None:
    bench = a_slow_bench(1)
    busy, also_busy, client = (bench.connect() for _ in range(3))
    sent = framed(b"x" * 8 * RECEIVE_BUFFER_BYTES)
    began_ns, taken = bench.now_ns, 0
    while taken < len(sent):
        for each in (busy, also_busy):
            each.send(framed(b"b"))
        taken += client.send(sent[taken:])
        bench.turns.turn()
        assert bench.now_ns - began_ns < len(sent) * NS_PER_BYTE
    bench.turns.run()
    assert client.answers == [b"x"]


def test_a_connection_that_is_lost_while_it_waits_for_its_turn_is_not_handled() -> None:
    bench = a_slow_bench(1)
    first, second = bench.connect(), bench.connect()
    first.send(framed(b"1"))
    second.send(framed(b"2"))
    second.connection.connection_lost(None)
    bench.turns.run()
    assert bench.handled == [b"1"]


def test_connections_that_are_lost_together_release_what_they_hold_over_several_turns() -> None:
    def withdraw() -> None:
        bench.now_ns += TURN_NS // 3 + 1

    bench = Bench(lambda frame, connection: Pending(on_closed=withdraw))
    bench.now_ns = 1
    clients = [bench.connect() for _ in NAMES]
    for client in clients:
        client.send(framed(b"wait"))
    bench.turns.run()
    for client in clients:
        client.connection.connection_lost(None)
    lost = [len(bench.lost)]
    for _ in range(4):
        bench.turns.turn()
        lost.append(len(bench.lost))
    assert lost == [3, 6, 9, 10, 10]


def test_large_requests_that_wait_for_their_turn_are_received_by_a_few_connections_in_each() -> None:
    bench = a_slow_bench(1)
    clients = [bench.connect() for _ in range(3 * LARGE_READS)]
    for client in clients:
        client.send(framed(bytes(8 * RECEIVE_BUFFER_BYTES))[: RECEIVE_BUFFER_BYTES + 1])
    bench.turns.run()
    busy = bench.connect()
    busy.send(framed(b"1"))
    assert [client.send(b"x") for client in clients] == [1] * len(clients)
    reading = []
    for _ in range(4):
        reading.append(sum(client.transport.reading for client in clients))
        bench.turns.turn()
    assert reading == [0, LARGE_READS, 2 * LARGE_READS, 3 * LARGE_READS]


def test_an_answer_that_is_complete_is_sent_however_much_is_read_in_each_turn() -> None:
    pending = Pending()

    def handle(frame: memoryview, _: object) -> Answer:
        if frame == b"late":
            return pending
        bench.now_ns += TURN_NS + 1
        return bytes(frame)

    bench = Bench(handle)
    bench.now_ns = 1
    waiting, busy = bench.connect(), bench.connect()
    waiting.send(framed(b"late"))
    bench.turns.run()
    pending.complete(b"done")
    for _ in range(2):
        busy.send(framed(b"busy"))
        bench.turns.turn()
    assert waiting.answers == [b"done"]


def test_no_processor_waits_for_the_connections_of_another_one() -> None:
    bench = a_slow_bench(1)
    clients = [bench.connect(), bench.connect()]
    bench.change_processor()
    clients.append(bench.connect())
    for _ in range(29):  # the first request is handled when it is read
        for client, name in zip(clients, NAMES, strict=False):
            client.send(framed(name))
        bench.turns.turn()
    assert {name: bench.handled.count(name) for name in NAMES[:3]} == {b"0": 10, b"1": 10, b"2": 10}


def test_a_queued_request_is_handled_however_much_urgent_ones_are_read_in_each_turn() -> None:
    pending = Pending(occupies_slot=True)

    def handle(frame: memoryview, _: object) -> Answer:
        if frame == b"long":
            return pending
        bench.now_ns += TURN_NS + 1
        return bytes(frame)

    bench = Bench(handle, slots=1)
    bench.now_ns = 1
    holder, queued, between_brokers = (bench.connect() for _ in range(3))
    holder.send(framed(b"long"))
    queued.send(framed(b"next"))
    bench.turns.run()
    pending.complete(b"done")
    for _ in range(3):
        between_brokers.send(framed(AN_URGENT_ONE))
        bench.turns.turn()
    assert b"next" in bench.handled


@on_a_loop
async def test_what_is_read_of_a_connection_at_once_shares_a_slice_that_other_connections_have_no_part_in() -> None:
    begin_slices(asyncio.get_running_loop(), count(1).__next__, 10)
    steps: list[int] = []

    def handle(frame: memoryview, _: object) -> Answer:
        steps.append(0)
        while not is_over():
            steps[-1] += 1
        return bytes(frame[:1])

    bench = Bench(handle)
    for client in (bench.connect(), bench.connect()):
        client.send(framed(b"1", b"2"))
    first, second, third, fourth = steps
    assert first == third > 1
    assert second == fourth == 0


def test_requests_that_one_connection_sends_together_take_no_longer_than_a_turn() -> None:
    bench = a_slow_bench(3)
    client = bench.connect()
    client.send(framed(*NAMES))
    handled = [len(bench.handled)]
    for _ in range(3):
        bench.turns.turn()
        handled.append(len(bench.handled))
    assert handled == [3, 6, 9, 10]
    bench.turns.run()
    assert client.answers == NAMES
