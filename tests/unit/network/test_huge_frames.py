"""Very large requests have a memory of their own, and one that comes in slowly does not keep it from others for ever."""

from __future__ import annotations

from ottla.broker.network.frame_memory import HUGE_BYTES
from ottla.broker.network.limits import FIRST_BYTES, NS_PER_BYTE, PATIENCE_NS, RECEIVE_BUFFER_BYTES, TURN_NS, NetworkLimits
from ottla.broker.network.request_channel import Answer, Pending
from ottla.pauses import begin
from tests.support.network import Bench, framed, other, produce

HUGE = framed(bytes(HUGE_BYTES))


def a_bench() -> Bench:
    """There is room for one such request."""
    return Bench(lambda frame, _: b"%d" % len(frame), limits=NetworkLimits(large_requests_max_bytes=len(HUGE)))


def test_huge_frames_wait_for_each_other_and_large_ones_do_not() -> None:
    bench = a_bench()
    first, second, large = bench.connect(), bench.connect(), bench.connect()
    first.send(HUGE[:-1])
    sent = second.send(HUGE)
    assert sent < len(HUGE)
    large.send_all(framed(bytes(HUGE_BYTES // 2)))
    assert large.answers == [b"%d" % (HUGE_BYTES // 2)]
    first.send_all(HUGE[-1:])
    second.send_all(HUGE[sent:])
    assert first.answers == second.answers == [b"%d" % HUGE_BYTES]
    assert bench.channel.frame_memory.taken == 0


def test_one_that_waits_for_its_turn_keeps_its_room() -> None:
    waiting: list[Pending] = []

    def handler(frame: memoryview, _: object) -> Pending:
        waiting.append(Pending(in_turns=True, waiting_bytes=len(frame)))
        return waiting[-1]

    bench = Bench(handler, limits=NetworkLimits(large_requests_max_bytes=len(HUGE)))
    first, second = bench.connect(), bench.connect()
    first.send_all(HUGE)
    sent = second.send(HUGE)
    assert sent < len(HUGE)
    waiting[0].end_waiting()
    bench.turns.run()
    second.send_all(HUGE[sent:])
    assert len(waiting) == 2
    waiting[1].end_waiting()
    assert bench.channel.frame_memory.taken == 0


def late(bench: Bench, ns: int) -> None:
    """Time passes, and slow requests are looked for."""
    bench.turns.run()
    bench.now_ns += ns
    begin(bench.processor.end_late())


def test_a_slow_one_gives_way_when_another_waits() -> None:
    bench = a_bench()
    slow, waiting = bench.connect(), bench.connect()
    slow.send(HUGE[:-1])
    late(bench, PATIENCE_NS + 1)
    assert not slow.transport.closing
    sent = waiting.send(HUGE)
    late(bench, 0)
    assert slow.transport.closing
    assert not waiting.transport.closing
    assert bench.lines == [
        "local:1-host:2-0 on listener PLAINTEXT: a large request arrives too slowly, and others wait for memory; closing the connection"
    ]
    slow.connection.connection_lost(None)
    bench.turns.run()
    waiting.send_all(HUGE[sent:])
    assert waiting.answers == [b"%d" % HUGE_BYTES]


def test_one_that_comes_in_at_a_quarter_of_a_megabyte_a_second_is_left_in_peace() -> None:
    bench = a_bench()
    first, second = bench.connect(), bench.connect()
    sent = first.send(HUGE[:FIRST_BYTES])
    second.send(HUGE)
    for _ in range(len(HUGE) * NS_PER_BYTE // PATIENCE_NS + 1):
        late(bench, PATIENCE_NS)
        sent += first.send(HUGE[sent : sent + PATIENCE_NS // NS_PER_BYTE])
    bench.turns.run()
    assert first.answers == [b"%d" % HUGE_BYTES]
    assert not second.transport.closing


def test_one_that_comes_in_by_drops_gives_way_although_it_began_fast() -> None:
    bench = a_bench()
    first, second = bench.connect(), bench.connect()
    sent = first.send(HUGE[: HUGE_BYTES // 2])
    second.send(HUGE)
    for _ in range(40):
        late(bench, PATIENCE_NS // 10)
        sent += first.send(HUGE[sent : sent + 1])
    assert first.transport.closing
    assert not second.transport.closing


LARGE_BYTES = HUGE_BYTES // 2 - 1000
LARGE = framed(bytes(LARGE_BYTES))


def test_what_has_arrived_of_smaller_ones_counts_and_what_they_claim_does_not() -> None:
    bench = a_bench()
    clients = [bench.connect() for _ in range(50)]
    for client in clients:
        client.send(LARGE[:FIRST_BYTES])
    memory = bench.channel.frame_memory
    assert memory.parts == 50 * FIRST_BYTES
    assert memory.taken == 0
    clients[0].connection.connection_lost(None)
    assert memory.parts == 49 * FIRST_BYTES
    clients[1].send_all(LARGE[FIRST_BYTES:])
    assert clients[1].answers == [b"%d" % LARGE_BYTES]
    assert memory.parts == 48 * FIRST_BYTES


def test_unfinished_ones_take_no_more_than_the_memory_and_half_of_it() -> None:
    bench = a_bench()
    clients = [bench.connect() for _ in range(20)]
    arrived = sum(client.send(LARGE[:-1]) for client in clients)
    assert arrived < 3 * len(HUGE) // 2 + 20 * RECEIVE_BUFFER_BYTES
    memory = bench.channel.frame_memory
    assert memory.taken <= len(HUGE)
    small = bench.connect()
    small.send_all(framed(bytes(RECEIVE_BUFFER_BYTES // 2)))
    assert small.answers == [b"%d" % (RECEIVE_BUFFER_BYTES // 2)]


def test_many_at_once_all_arrive_though_none_has_room_for_itself() -> None:
    bench = a_bench()
    clients = [bench.connect() for _ in range(20)]
    left = [LARGE] * 20
    for _ in range(1000):
        left = [rest[client.send(rest[:100_000]) :] for client, rest in zip(clients, left, strict=True)]
        bench.turns.run()
        if not any(left):
            break
    assert [client.answers for client in clients] == [[b"%d" % LARGE_BYTES]] * 20
    assert bench.channel.frame_memory.parts == bench.channel.frame_memory.taken == 0


def test_stalled_ones_are_closed_for_an_honest_one_that_waits() -> None:
    bench = a_bench()
    stalled = [bench.connect() for _ in range(20)]
    for client in stalled:
        client.send(LARGE[:-1])
    honest = bench.connect()
    sent = honest.send(LARGE)
    assert sent < len(LARGE)
    for _ in range(20):
        late(bench, PATIENCE_NS + 1)
        for client in stalled:
            if client.transport.closing and client.connection not in bench.lost:
                client.connection.connection_lost(None)
        bench.turns.run()
        sent += honest.send(LARGE[sent:])
    assert honest.answers == [b"%d" % LARGE_BYTES]


def test_one_whose_client_is_throttled_or_waits_for_memory_is_not_late() -> None:
    bench = a_bench()
    slow, throttled, waiting = bench.connect(), bench.connect(), bench.connect()
    throttled.send(LARGE[:FIRST_BYTES])
    throttled.connection.mute(60_000)
    slow.send(HUGE[:FIRST_BYTES])
    waiting.send(HUGE)
    late(bench, PATIENCE_NS + 1)
    assert [client.transport.closing for client in (slow, throttled, waiting)] == [True, False, False]
    bench.turns.pass_time(60)
    late(bench, PATIENCE_NS)
    assert not throttled.transport.closing
    late(bench, 1)
    assert throttled.transport.closing


def test_one_that_cannot_be_handled_yet_stays_with_its_client_until_the_answers_before_it_are_read() -> None:
    bench = a_bench()
    client = bench.connect(takes=0)
    requests = framed(b"first") + LARGE
    sent = client.send(requests[:RECEIVE_BUFFER_BYTES])
    bench.turns.run()
    sent += client.send(requests[sent:])
    assert sent == RECEIVE_BUFFER_BYTES
    assert bench.channel.frame_memory.parts == sent - len(framed(b"first"))
    client.transport.take(len(requests))
    client.send_all(requests[sent:])
    assert client.answers == [b"5", b"%d" % LARGE_BYTES]
    assert bench.channel.frame_memory.parts == 0


def test_one_whose_client_reads_no_answers_gives_way_when_another_waits() -> None:
    bench = a_bench()
    silent, waiting = bench.connect(takes=0), bench.connect()
    silent.send((framed(b"first") + HUGE)[:RECEIVE_BUFFER_BYTES])
    waiting.send(HUGE)
    late(bench, PATIENCE_NS + 1)
    assert [client.transport.closing for client in (silent, waiting)] == [True, False]


def test_those_that_wait_for_a_slot_keep_their_room() -> None:
    pending = Pending(occupies_slot=True)
    bench = Bench(
        lambda frame, connection: pending if len(frame) < 10 else b"%d" % len(frame),
        slots=1,
        limits=NetworkLimits(large_requests_max_bytes=len(HUGE)),
    )
    bench.connect().send(framed(b"first"))
    clients = [bench.connect() for _ in range(20)]
    left = [LARGE] * 20
    for _ in range(200):
        left = [rest[client.send(rest[:100_000]) :] for client, rest in zip(clients, left, strict=True)]
        bench.turns.run()
    assert bench.channel.queue_size > 0
    assert 20 * len(LARGE) - sum(map(len, left)) < 2 * len(HUGE) + 20 * RECEIVE_BUFFER_BYTES
    gone, *others = clients
    gone.connection.connection_lost(None)
    pending.complete(b"done")
    for client, rest in zip(others, left[1:], strict=True):
        client.send_all(rest)
        assert client.answers == [b"%d" % LARGE_BYTES]
    memory = bench.channel.frame_memory
    assert memory.parts == memory.taken == memory.kept == bench.channel.queued_bytes == 0


def test_one_that_is_larger_than_the_memory_arrives_although_small_ones_always_wait_for_a_slot() -> None:
    bench = Bench(lambda frame, connection: Pending(occupies_slot=True), slots=1, limits=NetworkLimits(large_requests_max_bytes=1_000_000))
    for _ in range(2):
        bench.connect().send(framed(b"small"))
    assert bench.channel.frame_memory.kept == len(b"small")
    assert bench.connect().send(HUGE) == len(HUGE)


def test_one_behind_an_append_stays_with_its_client_until_replicas_have_that_and_a_produce_does_not() -> None:
    appended: list[Pending] = []

    def handler(frame: memoryview, _: object) -> Answer:
        if bytes(frame[2:]) == b"append":
            appended.append(Pending(appended=True))
            return appended[-1]
        return b"%d" % len(frame)

    bench = Bench(handler)
    waiting, producer = bench.connect(), bench.connect()
    for client, request in ((waiting, other), (producer, produce)):
        requests = framed(produce(b"append"), produce(b"append"), request(bytes(LARGE_BYTES)))
        sent = client.send(requests[:RECEIVE_BUFFER_BYTES])
        sent += client.send(requests[sent:])
        assert (sent == len(requests)) == (client is producer)
        assert bench.channel.frame_memory.parts == 0
    appended[0].complete(b"done")
    bench.turns.run()
    assert not waiting.transport.reading
    appended[1].complete(b"done")
    waiting.send_all(framed(other(bytes(LARGE_BYTES)))[RECEIVE_BUFFER_BYTES - len(framed(produce(b"append"), produce(b"append"))) :])
    assert waiting.answers == [b"done", b"done", b"%d" % (LARGE_BYTES + 2)]
    for pending in appended:
        pending.complete(b"done")
    bench.turns.run()
    assert producer.answers == waiting.answers
    assert bench.channel.frame_memory.parts == 0


def test_one_that_is_complete_counts_until_its_turn_and_is_not_late() -> None:
    bench = Bench(lambda frame, _: b"%d" % len(frame))
    client = bench.connect()
    bench.now_ns = 1
    client.send(LARGE[:-1])
    bench.connect().send(framed(b"1"))
    bench.now_ns += TURN_NS + 1
    client.send(LARGE[-1:])
    memory = bench.channel.frame_memory
    assert memory.parts == len(LARGE) - 1
    assert client.answers == []
    assert memory.take(bench.connect().connection, 2**40)
    assert not memory.take(bench.connect().connection, 1)
    bench.now_ns += 2 * PATIENCE_NS
    begin(bench.processor.end_late())
    assert not client.transport.closing
    bench.turns.run()
    assert client.answers == [b"%d" % LARGE_BYTES]
    assert memory.parts == 0
