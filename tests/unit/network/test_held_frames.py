"""A large request that has arrived counts in the memory of requests until it is handled, whatever it waits for."""

from __future__ import annotations

from ottla.broker.network.frame_memory import HUGE_BYTES
from ottla.broker.network.limits import PATIENCE_NS, TURN_NS, NetworkLimits
from ottla.broker.network.request_channel import Answer, Pending
from ottla.pauses import begin
from tests.support.network import Bench, framed, other, produce

LARGE_BYTES = 1024 * 1024


def others_want_memory(bench: Bench) -> None:
    """Two requests of other clients take more than all the memory, so that one waits."""
    memory = bench.channel.frame_memory
    assert memory.take(bench.connect().connection, 2**40)
    assert not memory.take(bench.connect().connection, 1)


def test_requests_that_wait_for_a_slot_take_no_more_than_the_queue_may_have() -> None:
    working: list[Pending] = []

    def handler(frame: memoryview, _: object) -> Answer:
        if len(frame) > LARGE_BYTES:
            return b"large"
        working.append(Pending(occupies_slot=True))
        return working[-1]

    bench = Bench(handler, slots=1, limits=NetworkLimits(queued_max_request_bytes=2 * LARGE_BYTES + 100))
    bench.connect().send(framed(other()))
    clients = [bench.connect() for _ in range(5)]
    request = framed(other(bytes(LARGE_BYTES)))
    sent = [client.send(request) for client in clients]
    assert [count == len(request) for count in sent] == [True, True, False, False, False]
    working[0].complete(b"done")
    bench.turns.run()
    for client, count in zip(clients, sent, strict=True):
        client.send_all(request[count:])
        assert client.answers == [b"large"]
    memory = bench.channel.frame_memory
    assert (memory.taken, memory.kept, memory.parts) == (0, 0, 0)


def test_one_whose_client_reads_no_answers_counts_after_it_has_waited_for_a_slot_and_gives_way() -> None:
    appended, working = Pending(appended=True), Pending(occupies_slot=True)
    answers: dict[bytes, Answer] = {produce(b"append"): appended, other(b"work"): working}
    bench = Bench(lambda frame, _: answers.get(bytes(frame), b"large"), slots=1, limits=NetworkLimits(large_requests_max_bytes=HUGE_BYTES))
    silent = bench.connect(takes=0)
    request = framed(produce(bytes(LARGE_BYTES)))
    silent.send(framed(produce(b"append")))
    silent.send(request[:-1])
    bench.connect().send(framed(other(b"work")))
    assert silent.send(request[-1:]) == 1
    memory = bench.channel.frame_memory
    assert (memory.parts, memory.kept) == (0, len(request) - 4)
    appended.complete(b"done")
    bench.turns.run()
    working.complete(b"done")
    bench.turns.run()
    assert bench.handled == [produce(b"append"), other(b"work")]
    assert (memory.parts, memory.kept) == (len(request), 0)
    others_want_memory(bench)
    begin(bench.processor.end_late())
    assert not silent.transport.closing
    bench.now_ns += PATIENCE_NS + 1
    begin(bench.processor.end_late())
    assert silent.transport.closing
    silent.connection.connection_lost(None)
    bench.turns.run()
    assert (memory.parts, memory.kept) == (0, 0)


def test_small_requests_that_wait_for_their_client_count_nowhere() -> None:
    appended, working = Pending(appended=True), Pending(occupies_slot=True)
    answers: dict[bytes, Answer] = {produce(b"append"): appended, other(b"work"): working}
    bench = Bench(lambda frame, _: answers.get(bytes(frame), b"small"), slots=1, limits=NetworkLimits(large_requests_max_bytes=HUGE_BYTES))
    silent = bench.connect(takes=0)
    silent.send(framed(produce(b"append")))
    bench.connect().send(framed(other(b"work")))
    silent.send(framed(produce(b"small"), produce(b"begun"))[:-1])
    appended.complete(b"done")
    bench.turns.run()
    working.complete(b"done")
    bench.turns.run()
    assert bench.channel.frame_memory.parts == bench.channel.frame_memory.kept == 0
    others_want_memory(bench)
    bench.now_ns += 2 * PATIENCE_NS
    begin(bench.processor.end_late())
    assert not silent.transport.closing
    silent.transport.take(1000)
    silent.send_all(framed(produce(b"begun"))[-1:])
    assert silent.answers == [b"done", b"small", b"small"]


def test_one_that_was_left_for_the_next_turn_gives_way_if_its_client_reads_no_answers() -> None:
    appended = Pending(appended=True)
    answers: dict[bytes, Answer] = {produce(b"append"): appended}
    bench = Bench(lambda frame, _: answers.get(bytes(frame), b"answer"), limits=NetworkLimits(large_requests_max_bytes=HUGE_BYTES))
    bench.now_ns = 1
    silent = bench.connect(takes=0)
    request = framed(produce(bytes(LARGE_BYTES)))
    silent.send(framed(produce(b"append")))
    silent.send(request[:-1])
    bench.turns.run()
    bench.connect().send(framed(other()))
    bench.now_ns += TURN_NS + 1
    silent.send(request[-1:])
    appended.complete(b"done")
    bench.turns.run()
    assert silent.answers == []
    memory = bench.channel.frame_memory
    assert memory.parts == len(request) - 1
    others_want_memory(bench)
    bench.now_ns += 2 * PATIENCE_NS
    begin(bench.processor.end_late())
    assert silent.transport.closing
