"""Answers in request order: what may overtake what, what stops reading, and what happens when a side goes away."""

import gc
from pathlib import Path

import pytest

from ottla.broker.network.connection import Connection
from ottla.broker.network.limits import ANSWER_WEIGHT, MAX_APPENDED, TURN_BYTES, NetworkLimits
from ottla.broker.network.request_channel import CLOSE, NO_RESPONSE, Answer, Pending
from ottla.pauses import begin
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.segment.file_region import FileRegion
from tests.support.network import Bench, framed, other, produce


class Later:
    """Answers every request with a Pending that the test completes."""

    def __init__(self, *, appended: bool = False, occupies_slot: bool = False) -> None:
        self.appended = appended
        self.occupies_slot = occupies_slot
        self.pendings: list[Pending] = []

    def __call__(self, frame: memoryview, connection: object) -> Answer:
        pending = Pending(appended=self.appended and frame[1] == 0, occupies_slot=self.occupies_slot)
        self.pendings.append(pending)
        return pending


def test_a_list_of_parts_is_one_answer_with_one_length() -> None:
    client = Bench(lambda frame, connection: [b"head", memoryview(b"body"), bytearray(b"tail")]).connect()
    client.send_all(framed(b"x"))
    assert client.answers == [b"headbodytail"]


def test_no_response_sends_nothing_and_the_next_request_goes_on() -> None:
    client = Bench(lambda frame, connection: NO_RESPONSE if frame[0] == 1 else bytes(frame)).connect()
    client.send_all(framed(b"\x01", b"two"))
    assert client.answers == [b"two"]


def test_close_lets_earlier_answers_out_and_handles_nothing_more() -> None:
    bench = Bench(lambda frame, connection: CLOSE if frame[0] == 1 else bytes(frame))
    client = bench.connect()
    client.send(framed(b"first", b"\x01", b"never"))
    assert client.answers == [b"first"]
    assert client.transport.closing
    assert not client.transport.aborted
    assert bench.handled == [b"first", b"\x01"]


def test_close_behind_a_pending_waits_for_its_answer() -> None:
    pending = Pending(appended=True)
    answers: list[Answer] = [pending, CLOSE]
    bench = Bench(lambda frame, connection: answers.pop(0))
    client = bench.connect()
    client.send(framed(produce(b"1"), produce(b"2"), produce(b"3")))
    assert not client.transport.closing
    assert len(bench.handled) == 2
    pending.complete(b"stored")
    bench.turns.run()
    assert client.answers == [b"stored"]
    assert client.transport.closing


@pytest.fixture
def region(tmp_path: Path) -> FileRegion:
    """Records that are sent from their file."""
    path = tmp_path / "segment.log"
    path.write_bytes(bytes(200_000))
    return FileRegion(RealFileSystem().open(str(path), read_only=True), 0, 200_000)


def test_a_close_while_records_are_sent_does_not_wait_for_an_answer_behind_them(region: FileRegion) -> None:
    answers: list[Answer] = [[b"records", region], Pending(appended=True)]
    bench = Bench(lambda frame, connection: answers.pop(0))
    client = bench.connect(takes=0)
    client.send(framed(other(), produce()))
    client.connection.close()
    assert not client.transport.closing
    client.transport.take(1_000_000)
    bench.turns.run()
    assert client.answers == [b"records" + region.read()]
    assert client.transport.closing


def test_a_close_behind_a_pending_waits_also_while_records_are_sent(region: FileRegion) -> None:
    pending = Pending(appended=True)
    answers: list[Answer] = [[b"records", region], pending, CLOSE]
    bench = Bench(lambda frame, connection: answers.pop(0))
    client = bench.connect(takes=0)
    client.send(framed(other(), produce(), produce()))
    bench.turns.run()
    client.transport.take(1_000_000)
    bench.turns.run()
    assert not client.transport.closing
    pending.complete(b"stored")
    bench.turns.run()
    assert client.answers == [b"records" + region.read(), b"stored"]
    assert client.transport.closing


def test_the_next_produce_is_handled_while_one_waits_for_its_replicas() -> None:
    later = Later(appended=True)
    bench = Bench(later)
    client = bench.connect()
    client.send(framed(produce(b"1"), produce(b"2"), produce(b"3")))
    assert len(bench.handled) == 3
    for i in (2, 0, 1):
        later.pendings[i].complete(b"answer %d" % i)
        bench.turns.run()
    assert client.answers == [b"answer 0", b"answer 1", b"answer 2"]


def test_anything_but_a_produce_waits_until_the_produce_is_answered() -> None:
    later = Later(appended=True)
    bench = Bench(later)
    client = bench.connect()
    client.send(framed(produce(), other()))
    assert bench.handled == [produce()]
    assert not client.transport.reading
    later.pendings[0].complete(b"stored")
    bench.turns.run()
    assert bench.handled == [produce(), other()]
    assert client.transport.reading


def test_a_produce_waits_behind_a_request_that_is_not_in_the_log() -> None:
    later = Later(appended=True)
    bench = Bench(later)
    bench.connect().send(framed(other(), produce()))
    assert bench.handled == [other()]


def test_half_a_produce_behind_an_appended_one_is_still_read() -> None:
    later = Later(appended=True)
    bench = Bench(later)
    client = bench.connect()
    stream = framed(produce(b"1"), produce(b"2" * 100))
    client.send(stream[:20])
    assert client.transport.reading
    client.send(stream[20:])
    assert len(bench.handled) == 2


def test_an_immediate_answer_waits_behind_a_produce_that_is_pending() -> None:
    pending = Pending(appended=True)
    answers: list[Answer] = [pending, b"second", NO_RESPONSE, [b"th", b"ird"]]
    bench = Bench(lambda frame, connection: answers.pop(0))
    client = bench.connect()
    client.send(framed(*[produce()] * 4))
    assert client.answers == []
    pending.complete(b"first")
    bench.turns.run()
    assert client.answers == [b"first", b"second", b"third"]
    assert client.transport.writes == 1


def test_the_produces_that_wait_for_replicas_are_bounded() -> None:
    later = Later(appended=True)
    bench = Bench(later)
    client = bench.connect()
    client.send(framed(*[produce()] * (MAX_APPENDED + 10)))
    assert len(bench.handled) == MAX_APPENDED
    assert not client.transport.reading
    later.pendings[0].complete(b"")
    bench.turns.run()
    assert len(bench.handled) == MAX_APPENDED + 1


def test_a_connection_that_waits_reads_once_more_and_then_not() -> None:
    later = Later()
    bench = Bench(later)
    client = bench.connect()
    client.send(framed(other(b"1")))
    assert client.transport.reading  # nobody sends anything: pausing would be a system call for nothing
    client.send(framed(other(b"2")))
    assert not client.transport.reading
    later.pendings[0].complete(b"1")
    bench.turns.run()
    assert client.transport.reading
    assert bench.handled == [other(b"1"), other(b"2")]


def test_completing_answers_never_writes_or_handles_inside_the_call() -> None:
    later = Later()
    bench = Bench(later)
    client = bench.connect()
    client.send(framed(other(b"1"), other(b"2")))
    later.pendings[0].complete(b"1")
    assert client.transport.writes == 0
    assert len(bench.handled) == 1


def test_only_the_first_completion_counts() -> None:
    later = Later()
    bench = Bench(later)
    client = bench.connect()
    client.send(framed(other()))
    later.pendings[0].complete(b"first")
    later.pendings[0].complete(b"second")
    bench.turns.run()
    later.pendings[0].complete(CLOSE)
    bench.turns.run()
    assert client.answers == [b"first"]
    assert not client.transport.closing


def test_a_client_that_leaves_tells_the_pendings_once_and_takes_nothing_along() -> None:
    told = []
    pendings = [Pending(appended=True, on_closed=lambda: told.append(1)), Pending(appended=True, on_closed=lambda: told.append(2))]
    waiting = list(pendings)
    bench = Bench(lambda frame, connection: waiting.pop(0))
    client = bench.connect()
    client.send(framed(produce(), produce()))
    pendings[0].complete(b"done")
    client.transport.close()
    client.connection.connection_lost(None)
    assert told == [2]
    assert pendings[1].on_closed is None
    pendings[1].complete(b"too late")
    bench.turns.run()
    assert bench.processor.connections == set()
    assert bench.lost == [client.connection]


def test_what_is_kept_for_a_client_between_two_requests_goes_with_its_connection() -> None:
    told = []
    pending = Pending(on_closed=lambda: told.append("request"))
    bench = Bench(lambda frame, connection: pending)
    client = bench.connect()
    info = client.connection.client
    info.on_lost = lambda: told.append("client")
    client.send(framed(other()))
    assert not info.is_lost
    client.connection.connection_lost(None)
    assert info.is_lost
    assert info.on_lost is None
    assert told == ["request", "client"]


@pytest.mark.slow
def test_a_connection_that_is_gone_is_garbage_without_the_collector() -> None:
    later = Later()
    bench = Bench(later)
    client = bench.connect()
    client.send(framed(other(b"1"), other(b"2")))
    client.connection.connection_lost(None)
    number = id(client.connection)
    bench.lost.clear()
    client.transport.protocol = None
    gc.collect()
    gc.disable()
    try:
        del client
        assert not [each for each in gc.get_objects() if id(each) == number and isinstance(each, Connection)]
    finally:
        gc.enable()


def test_a_reader_that_does_not_read_is_not_read_either() -> None:
    bench = Bench(lambda frame, connection: bytes(TURN_BYTES))
    client = bench.connect(takes=1000)
    stream = framed(*[other()] * 50)
    client.send(stream)
    assert len(bench.handled) == 1
    assert not client.transport.reading
    assert len(client.transport.buffered) <= TURN_BYTES + 4
    client.transport.take(10 * TURN_BYTES)
    bench.turns.run()
    assert len(bench.handled) > 1


def test_small_answers_of_one_read_are_gathered_up_to_a_bound() -> None:
    bench = Bench(lambda frame, connection: bytes(100_000))
    client = bench.connect(takes=0)
    client.send(framed(*[other()] * 100))
    assert len(client.transport.buffered) <= TURN_BYTES + 100_000
    client.transport.take(10**9)
    bench.turns.run()
    assert len(client.answers) == 100


def test_a_client_that_sends_a_lot_at_once_lets_others_have_their_turn() -> None:
    bench = Bench()
    greedy, modest = bench.connect(), bench.connect()
    greedy.send(framed(*[other()] * 1000))
    handled = len(bench.handled)
    assert handled == TURN_BYTES // ANSWER_WEIGHT
    modest.send(framed(other(b"modest")))
    assert bench.handled[-1] == other(b"modest")
    bench.turns.run()
    assert len(bench.handled) == 1001
    assert greedy.answers == [other()] * 1000


def test_large_parts_in_memory_are_bounded_too() -> None:
    bench = Bench(lambda frame, connection: [b"head", bytes(100_000)])
    client = bench.connect(takes=0)
    client.send(framed(*[other()] * 100))
    assert len(client.transport.buffered) <= TURN_BYTES + 100_012


def test_an_answer_that_is_none_closes_the_connection_and_not_the_others(caplog: pytest.LogCaptureFixture) -> None:
    pendings = [Pending(), Pending()]
    waiting = list(pendings)
    bench = Bench(lambda frame, connection: waiting.pop(0))
    bad, good = bench.connect(), bench.connect()
    bad.send(framed(other()))
    good.send(framed(other()))
    pendings[0].complete("text")
    pendings[1].complete(b"fine")
    bench.turns.run()
    assert bad.transport.aborted
    assert good.answers == [b"fine"]
    assert "TypeError" in caplog.text


def test_requests_queue_in_order_when_all_slots_are_taken() -> None:
    later = Later(occupies_slot=True)
    bench = Bench(later, slots=1)
    clients = [bench.connect() for _ in range(3)]
    for i, client in enumerate(clients):
        client.send(framed(other(b"%d" % i)))
    assert bench.handled == [other(b"0")]
    assert bench.channel.queue_size == 2
    assert bench.channel.idle_slots == 0
    for i in range(3):
        later.pendings[i].complete(b"%d" % i)
        bench.turns.run()
    assert bench.handled == [other(b"0"), other(b"1"), other(b"2")]
    assert [client.answers for client in clients] == [[b"0"], [b"1"], [b"2"]]
    assert bench.channel.idle_slots == 1


def test_what_brokers_ask_of_each_other_does_not_wait_for_a_slot() -> None:
    later = Later(occupies_slot=True)
    bench = Bench(later, slots=1)
    bench.connect().send(framed(other(b"create topics")))
    bench.connect().send(framed(other(b"waits")))
    controller = bench.connect()
    leader_and_isr = b"\x00\x04\x00\x07"
    controller.send(framed(leader_and_isr, leader_and_isr))
    assert bench.handled == [other(b"create topics"), leader_and_isr]  # the second when the first is answered
    later.pendings[1].complete(b"done")
    bench.turns.run()
    assert controller.answers == [b"done"]
    assert bench.handled[2:] == [leader_and_isr]
    for pending in later.pendings:
        pending.complete(b"")
    bench.turns.run()
    assert bench.handled[3:] == [other(b"waits")]


def test_one_connection_with_many_requests_does_not_keep_others_from_their_slot() -> None:
    later = Later(occupies_slot=True)
    bench = Bench(later, slots=1)
    greedy, modest = bench.connect(), bench.connect()
    greedy.send(framed(*[other(b"greedy")] * 5))
    modest.send(framed(other(b"modest")))
    later.pendings[0].complete(b"")
    bench.turns.run()
    assert bench.handled == [other(b"greedy"), other(b"modest")]


def test_bytes_in_the_queue_are_counted() -> None:
    later = Later(occupies_slot=True)
    bench = Bench(later, slots=1, limits=NetworkLimits(queued_max_request_bytes=10))
    first, second = bench.connect(), bench.connect()
    first.send(framed(other()))
    second.send(framed(other(b"12345678")))
    assert bench.channel.queued_bytes == 10
    assert bench.channel.full
    later.pendings[0].complete(b"")
    bench.turns.run()
    assert bench.channel.queued_bytes == 0
    assert not bench.channel.full


def test_a_queued_request_leaves_the_queue_with_its_connection() -> None:
    later = Later(occupies_slot=True)
    bench = Bench(later, slots=1)
    first, second, third = (bench.connect() for _ in range(3))
    for client in (first, second, third):
        client.send(framed(other()))
    second.connection.connection_lost(None)
    assert bench.channel.queue_size == 1
    later.pendings[0].complete(b"")
    bench.turns.run()
    assert len(bench.handled) == 2


def test_a_slot_is_held_until_the_handler_ends_even_when_its_client_left() -> None:
    later = Later(occupies_slot=True)
    bench = Bench(later, slots=1)
    client = bench.connect()
    client.send(framed(other()))
    client.connection.connection_lost(None)
    assert bench.channel.idle_slots == 0
    later.pendings[0].complete(b"")
    assert bench.channel.idle_slots == 1


def test_more_slots_let_queued_requests_run() -> None:
    later = Later(occupies_slot=True)
    bench = Bench(later, slots=1)
    for _ in range(3):
        bench.connect().send(framed(other()))
    bench.channel.resize(2)
    bench.turns.run()
    assert len(bench.handled) == 2


def test_draining_answers_what_is_owed_and_drops_what_only_waits() -> None:
    later = Later(occupies_slot=True)
    bench = Bench(later, slots=1)
    busy, queued, idle = (bench.connect() for _ in range(3))
    busy.send(framed(other(b"busy"), other(b"never")))
    queued.send(framed(other(b"queued")))
    for client in (busy, queued, idle):
        client.connection.drain()
    assert idle.transport.closing
    assert queued.transport.closing
    assert not busy.transport.closing
    later.pendings[0].complete(b"done")
    bench.turns.run()
    assert busy.answers == [b"done"]
    assert busy.transport.closing
    assert bench.handled == [other(b"busy")]


def test_draining_does_not_wait_for_a_long_poll_and_tells_it() -> None:
    told = []
    stored, poll = Pending(appended=True), Pending(on_closed=lambda: told.append("gone"))
    waiting = {b"\x00\x00": [stored], b"\x00\x03": [poll]}
    bench = Bench(lambda frame, connection: waiting[bytes(frame)].pop())
    polling, producing = bench.connect(), bench.connect()
    polling.send(framed(other()))
    producing.send(framed(produce()))
    polling.connection.drain()
    producing.connection.drain()
    assert polling.transport.closing
    polling.connection.connection_lost(None)
    assert told == ["gone"]
    assert not producing.transport.closing
    stored.complete(b"stored")
    bench.turns.run()
    assert producing.answers == [b"stored"]
    assert producing.transport.closing


def test_connections_expire_after_their_idle_time_and_not_before() -> None:
    bench = Bench()
    quiet, active = bench.connect(), bench.connect()
    bench.now_ns += 9_000 * 1_000_000
    active.send(framed(b"x"))
    bench.now_ns += 1_000 * 1_000_000
    begin(bench.processor.expire_idle(10_000))
    assert quiet.transport.aborted
    assert not active.transport.aborted
    bench.now_ns += 10**18
    begin(bench.processor.expire_idle(-1))
    assert not active.transport.aborted


def test_an_answer_that_leaves_counts_as_activity() -> None:
    later = Later()
    bench = Bench(later)
    client = bench.connect()
    client.send(framed(other()))
    bench.now_ns += 9_000 * 1_000_000
    later.pendings[0].complete(b"late")
    bench.turns.run()
    bench.now_ns += 9_000 * 1_000_000
    begin(bench.processor.expire_idle(10_000))
    assert not client.transport.aborted
