"""A client that has used up a quota: its answer says for how long it has to wait, leaves at once, and nothing more is read meanwhile."""

from __future__ import annotations

from broker.network.connection import Connection
from broker.network.request_channel import Answer, Pending
from broker.network.throttle import NoThrottle, QuotaType
from broker.security.client import Client
from tests.support.network import Bench, framed, other, produce


class Quota:
    """Says `times_ms`, one after the other, then 0; `counted` has what was counted."""

    counts_time = False

    def __init__(self, *times_ms: int) -> None:
        self.times_ms = list(times_ms)
        self.counted: list[tuple[str, QuotaType, int]] = []

    def record(self, client: Client, quota: QuotaType, amount: int) -> int:
        self.counted.append((client.client_host, quota, amount))
        return self.times_ms.pop(0) if self.times_ms else 0


def counting(frame: memoryview, connection: Connection) -> Answer:
    """Answers with the throttle time."""
    return b"%d ms" % connection.throttle(QuotaType.PRODUCE, len(frame))


def test_nobody_waits_without_a_quota() -> None:
    bench = Bench(counting, throttle=NoThrottle())
    client = bench.connect()
    client.send(framed(b"one", b"two"))
    bench.turns.run()
    assert client.answers == [b"0 ms", b"0 ms"]
    assert client.transport.reading
    assert bench.turns.timers == 0


def test_what_is_counted_is_told_of_whom_it_is() -> None:
    quota = Quota()
    Bench(counting, throttle=quota).connect().send(framed(b"four"))
    assert quota.counted == [("host", QuotaType.PRODUCE, 4)]


def test_the_answer_leaves_at_once_and_nothing_more_is_read_until_the_time_is_over() -> None:
    bench = Bench(counting, throttle=Quota(500))
    client = bench.connect()
    client.send(framed(b"one"))
    bench.turns.run()
    assert client.answers == [b"500 ms"]
    assert not client.transport.reading
    bench.turns.pass_time(0.499)
    assert not client.transport.reading
    bench.turns.pass_time(0.002)
    assert client.transport.reading
    client.send(framed(b"two"))
    bench.turns.run()
    assert client.answers == [b"500 ms", b"0 ms"]


def test_requests_that_were_read_already_wait_and_keep_their_order() -> None:
    bench = Bench(counting, throttle=Quota(500, 0, 300))
    client = bench.connect()
    client.send(framed(b"a", b"b", b"c", b"d") + framed(b"cut in the middle")[:9])
    bench.turns.run()
    assert bench.handled == [b"a"]
    bench.turns.pass_time(0.5)
    assert bench.handled == [b"a", b"b", b"c"]
    bench.turns.pass_time(0.3)
    assert bench.handled == [b"a", b"b", b"c", b"d"]
    client.send(framed(b"cut in the middle")[9:])
    bench.turns.run()
    assert client.answers == [b"500 ms", b"0 ms", b"300 ms", b"0 ms", b"0 ms"]


def test_answers_to_requests_that_were_handled_before_leave_meanwhile() -> None:
    waiting: list[Pending] = []

    def handle(frame: memoryview, connection: Connection) -> Answer:
        if frame[2:] == b"later":
            waiting.append(Pending(appended=True))
            return waiting[-1]
        return counting(frame, connection)

    bench = Bench(handle, throttle=Quota(500))
    client = bench.connect()
    client.send(framed(produce(b"later"), produce(b"now")))
    bench.turns.run()
    assert client.answers == []
    waiting[0].complete(b"later")
    bench.turns.run()
    assert client.answers == [b"later", b"500 ms"]
    assert not client.transport.reading


def test_the_longer_of_two_times_counts() -> None:
    bench = Bench(lambda frame, connection: b"", throttle=None)
    client = bench.connect()
    client.connection.mute(500)
    client.connection.mute(200)
    bench.turns.pass_time(0.3)
    assert client.connection.is_muted
    client.connection.mute(1000)
    bench.turns.pass_time(0.9)
    assert client.connection.is_muted
    bench.turns.pass_time(0.1)
    assert not client.connection.is_muted
    assert client.transport.reading
    assert bench.turns.timers == 0


def test_a_connection_that_waits_for_its_time_is_not_idle() -> None:
    bench = Bench(counting, throttle=Quota(10_000))
    client = bench.connect()
    client.send(framed(b"one"))
    bench.turns.run()
    bench.now_ns = 9_000_000_000
    bench.processor.expire_idle(1_000)
    assert not client.transport.aborted
    bench.turns.pass_time(10)
    bench.now_ns = 9_500_000_000
    bench.processor.expire_idle(1_000)
    assert not client.transport.aborted
    bench.now_ns = 11_000_000_000
    bench.processor.expire_idle(1_000)
    assert client.transport.aborted


def test_a_client_that_leaves_while_it_waits_leaves_no_timer() -> None:
    bench = Bench(counting, throttle=Quota(500))
    client = bench.connect()
    client.send(framed(b"one"))
    client.connection.connection_lost(None)
    assert bench.turns.timers == 0
    bench.turns.pass_time(1)


def test_a_stopping_broker_does_not_wait_for_it() -> None:
    bench = Bench(counting, throttle=Quota(500))
    client = bench.connect()
    client.send(framed(other(b"one"), other(b"two")))
    bench.turns.run()
    client.connection.drain()
    assert client.answers == [b"500 ms"]
    assert client.transport.closing


def test_other_connections_of_the_processor_are_read_meanwhile() -> None:
    bench = Bench(counting, throttle=Quota(500))
    muted, free = bench.connect(), bench.connect()
    muted.send(framed(b"one"))
    free.send(framed(b"two"))
    bench.turns.run()
    assert (muted.transport.reading, free.transport.reading) == (False, True)
    assert free.answers == [b"0 ms"]


def test_a_connection_that_is_gone_is_not_muted() -> None:
    bench = Bench(counting)
    client = bench.connect()
    client.connection.connection_lost(None)
    client.connection.mute(500)
    assert bench.turns.timers == 0
