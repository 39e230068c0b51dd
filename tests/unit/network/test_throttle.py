"""A client that has used up a quota: its answer says for how long it has to wait, leaves at once, and nothing more is read meanwhile."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest

from ottla.broker.network.connection import Connection
from ottla.broker.network.request_channel import Answer, Pending
from ottla.broker.quotas.client_quotas import ClientQuotas, Windows
from ottla.broker.quotas.quota_bounds import ABSENT
from ottla.broker.quotas.quota_type import QuotaType
from ottla.broker.security.principals import Principal
from ottla.pauses import begin
from tests.support.network import Bench, FunctionHandler, Handle, framed, other, produce

WINDOWS = Windows(11, 1000)
SECOND_NS = 1_000_000_000


class Limited:
    """Connections of a user with a quota of 1000 bytes per second. A request costs as many bytes as its number says."""

    def __init__(self, **bounds: float) -> None:
        self.bench = Bench(self._handle)
        self.bench.now_ns = SECOND_NS
        self.quotas = ClientQuotas(WINDOWS, WINDOWS, Windows(2, 30_000), lambda: self.bench.now_ns)
        self.bench.processor.quotas = self.quotas
        self.quotas.set(("ANONYMOUS", ABSENT), {QuotaType[name.upper()]: bound for name, bound in (bounds or {"produce": 1000.0}).items()})
        self.pending: list[Pending] = []

    def _handle(self, frame: memoryview, connection: Connection) -> Answer:
        text = bytes(frame[2:])
        if text == b"later":
            self.pending.append(Pending(appended=True))
            return self.pending[-1]
        return b"%d ms" % connection.throttle(QuotaType.PRODUCE, int(text))

    def handle_by(self, function: Handle) -> None:
        """Have requests handled by another function."""
        handler = self.bench.processor.handler
        assert isinstance(handler, FunctionHandler)
        handler.function = function

    def pass_time(self, seconds: float) -> None:
        """Time passes, for timers and clocks."""
        self.bench.now_ns += round(seconds * SECOND_NS)
        self.bench.turns.pass_time(seconds)


def test_a_client_without_a_quota_does_not_wait() -> None:
    bench = Bench(lambda frame, connection: b"%d ms" % connection.throttle(QuotaType.PRODUCE, len(frame)))
    client = bench.connect()
    client.send(framed(b"one", b"two"))
    bench.turns.run()
    assert client.answers == [b"0 ms", b"0 ms"]
    assert client.transport.reading
    assert bench.turns.timers == 0


def test_the_answer_leaves_at_once_and_nothing_more_is_read_until_the_time_is_over() -> None:
    limited = Limited()
    client = limited.bench.connect()
    client.send(framed(produce(b"10500")))
    limited.bench.turns.run()
    assert client.answers == [b"500 ms"]
    assert not client.transport.reading
    assert limited.quotas.delayed[QuotaType.PRODUCE] == 1
    limited.pass_time(0.499)
    assert not client.transport.reading
    limited.pass_time(0.002)
    assert client.transport.reading
    assert limited.quotas.delayed[QuotaType.PRODUCE] == 0
    client.send(framed(produce(b"0")))
    limited.bench.turns.run()
    assert client.answers == [b"500 ms", b"0 ms"]


def test_requests_that_were_read_already_wait_and_keep_their_order() -> None:
    limited = Limited()
    client = limited.bench.connect()
    requests = [produce(text) for text in (b"10500", b"0", b"300", b"0", b"00000000000000000")]
    client.send(framed(*requests)[:-9])
    limited.bench.turns.run()
    assert limited.bench.handled == requests[:1]
    limited.pass_time(0.5)
    assert limited.bench.handled == requests[:3]
    limited.pass_time(0.3)
    assert limited.bench.handled == requests[:4]
    client.send(framed(*requests)[-9:])
    limited.bench.turns.run()
    assert client.answers == [b"500 ms", b"0 ms", b"300 ms", b"0 ms", b"0 ms"]


def test_answers_to_requests_that_were_handled_before_leave_meanwhile() -> None:
    limited = Limited()
    client = limited.bench.connect()
    client.send(framed(produce(b"later"), produce(b"10500")))
    limited.bench.turns.run()
    assert client.answers == []
    limited.pending[0].complete(b"later")
    limited.bench.turns.run()
    assert client.answers == [b"later", b"500 ms"]
    assert not client.transport.reading


def test_the_longer_of_two_times_counts() -> None:
    bench = Bench(lambda frame, connection: b"")
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
    limited = Limited()
    bench = limited.bench
    client = bench.connect()
    client.send(framed(produce(b"10500"), produce(b"0")))
    bench.turns.run()
    bench.now_ns = SECOND_NS + 400_000_000
    begin(bench.processor.expire_idle(200))
    assert not client.transport.aborted
    bench.now_ns = SECOND_NS + 500_000_000
    bench.turns.pass_time(0.5)
    assert client.answers == [b"500 ms", b"0 ms"]
    bench.now_ns = SECOND_NS + 650_000_000
    begin(bench.processor.expire_idle(200))
    assert not client.transport.aborted
    bench.now_ns = SECOND_NS + 750_000_000
    begin(bench.processor.expire_idle(200))
    assert client.transport.aborted


def test_a_connection_that_waits_for_its_time_is_closed_when_it_is_idle_and_its_client_has_left() -> None:
    limited = Limited()
    client = limited.bench.connect()
    ours, theirs = socket.socketpair()
    client.transport._extra["socket"] = ours
    with ours:
        client.send(framed(produce(b"10500")))
        limited.bench.now_ns += 400_000_000
        begin(limited.bench.processor.expire_idle(200))
        assert not client.transport.aborted
        theirs.close()
        begin(limited.bench.processor.expire_idle(1000))
        assert not client.transport.aborted
        begin(limited.bench.processor.expire_idle(200))
        assert client.transport.aborted


def test_a_client_is_limited_once_it_is_authenticated() -> None:
    limited = Limited()
    client = limited.bench.connect()
    session = SimpleNamespace(is_authenticated=False)
    client.connection.client.sasl = session
    client.send(framed(produce(b"10500")))
    session.is_authenticated = True
    client.connection.client.principal = Principal("User", "ANONYMOUS")
    client.send(framed(produce(b"10500")))
    limited.bench.turns.run()
    assert client.answers == [b"0 ms", b"500 ms"]


def test_a_client_that_leaves_while_it_waits_leaves_no_timer() -> None:
    limited = Limited()
    client = limited.bench.connect()
    client.send(framed(produce(b"10500")))
    client.connection.connection_lost(None)
    assert limited.bench.turns.timers == 0
    assert limited.quotas.delayed == [0, 0, 0, 0]
    limited.pass_time(1)


def test_a_stopping_broker_does_not_wait_for_it() -> None:
    limited = Limited()
    client = limited.bench.connect()
    client.send(framed(other(b"10500"), other(b"0")))
    limited.bench.turns.run()
    client.connection.drain()
    assert client.answers == [b"500 ms"]
    assert client.transport.closing


def test_other_connections_of_the_processor_are_read_meanwhile() -> None:
    limited = Limited()
    muted, free = limited.bench.connect(), limited.bench.connect()
    free.connection.client.identify(b"another")
    limited.quotas.set(("ANONYMOUS", ABSENT), {})
    limited.quotas.set(("ANONYMOUS", "another"), {QuotaType.PRODUCE: 1e9})
    limited.quotas.set(("ANONYMOUS", None), {QuotaType.PRODUCE: 1000})
    muted.connection.client.identify(b"one")
    muted.send(framed(produce(b"10500")))
    free.send(framed(produce(b"10500")))
    limited.bench.turns.run()
    assert (muted.transport.reading, free.transport.reading) == (False, True)
    assert free.answers == [b"0 ms"]


def test_connections_of_one_user_share_the_quota() -> None:
    limited = Limited()
    first, second = limited.bench.connect(), limited.bench.connect()
    first.send(framed(produce(b"10000")))
    second.send(framed(produce(b"500")))
    limited.bench.turns.run()
    assert (first.answers, second.answers) == ([b"0 ms"], [b"500 ms"])


def test_a_connection_that_is_gone_is_not_muted() -> None:
    limited = Limited()
    client = limited.bench.connect()
    client.connection.connection_lost(None)
    client.connection.mute(500)
    assert client.connection.throttle(QuotaType.PRODUCE, 10_500) == 500
    assert limited.bench.turns.timers == 0
    assert limited.quotas.delayed == [0, 0, 0, 0]


def test_a_changed_quota_counts_from_the_next_request_on() -> None:
    limited = Limited()
    client = limited.bench.connect()
    client.send(framed(produce(b"9000")))
    limited.quotas.set(("ANONYMOUS", ABSENT), {QuotaType.PRODUCE: 500})
    client.send(framed(produce(b"0")))
    limited.bench.turns.run()
    assert client.answers == [b"0 ms", b"8000 ms"]
    limited.pass_time(8)
    limited.quotas.set(("ANONYMOUS", ABSENT), {})
    client.send(framed(produce(b"1000000")))
    limited.bench.turns.run()
    assert client.answers[2] == b"0 ms"


def test_a_clock_that_goes_on_meanwhile_does_not_lengthen_the_window() -> None:
    limited = Limited()

    def moving() -> int:
        limited.bench.now_ns += 5_000_000
        return limited.bench.now_ns

    limited.bench.processor.clock_ns = moving
    limited.quotas._clock_ns = moving
    client = limited.bench.connect()
    client.send(framed(produce(b"10500")))
    limited.bench.turns.run()
    assert client.answers == [b"500 ms"]


# Request time


@pytest.mark.parametrize(("work_ms", "time_ms"), [(100, 0), (105, 500), (1000, 1000)])
def test_the_work_of_a_handler_counts_and_its_throttle_time_is_at_most_a_window(work_ms: int, time_ms: int) -> None:
    limited = Limited(request=1)  # a percent of each second

    def handle(frame: memoryview, connection: Connection) -> Answer:
        limited.bench.now_ns += work_ms * 1_000_000
        return b"%d ms" % connection.throttle(QuotaType.REQUEST, 0)

    limited.handle_by(handle)
    client = limited.bench.connect()
    client.send(framed(b"one"))
    limited.bench.turns.run()
    assert client.answers == [b"%d ms" % time_ms]


def test_the_time_while_a_request_waits_does_not_count() -> None:
    limited = Limited(request=1)
    answers: list[Pending] = []

    def handle(frame: memoryview, connection: Connection) -> Answer:
        limited.bench.now_ns += 90_000_000
        answers.append(Pending())
        return answers[-1]

    limited.handle_by(handle)
    client = limited.bench.connect()
    client.send(framed(b"one"))
    limited.bench.now_ns += 60 * SECOND_NS
    assert client.connection.throttle(QuotaType.REQUEST, 0) == 0
    client.connection.begin_work()
    limited.bench.now_ns += 20_000_000
    client.connection.end_work()
    limited.bench.now_ns += SECOND_NS // 2
    client.connection.add_work(40_000_000)
    assert client.connection.throttle(QuotaType.REQUEST, 0) > 0


def test_an_exempt_request_costs_no_request_time() -> None:
    limited = Limited(request=1)

    def handle(frame: memoryview, connection: Connection) -> Answer:
        limited.bench.now_ns += SECOND_NS
        connection.exempt()
        return b"%d ms" % connection.throttle(QuotaType.PRODUCE, 1)

    limited.handle_by(handle)
    client = limited.bench.connect()
    client.send(framed(b"one"))
    limited.bench.turns.run()
    assert client.answers == [b"0 ms"]
    assert limited.quotas.exempt_request_time.per_second(limited.quotas.now_ms()) == pytest.approx(
        100 / 31
    )  # the window began a second ago
