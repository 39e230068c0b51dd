"""Very large requests have a memory of their own, and one that comes in slowly does not keep it from others for ever."""

from __future__ import annotations

from ottla.broker.network.frame_memory import HUGE_BYTES
from ottla.broker.network.limits import NS_PER_BYTE, SENDING_NS, NetworkLimits
from ottla.broker.network.request_channel import Pending
from tests.support.network import Bench, framed

HUGE = framed(bytes(HUGE_BYTES))
IN_TIME_NS = SENDING_NS + len(HUGE) * NS_PER_BYTE
NO_IDLE_LIMIT = -1


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


def test_a_slow_one_gives_way_when_another_waits() -> None:
    bench = a_bench()
    slow, waiting = bench.connect(), bench.connect()
    slow.send(HUGE[:-1])
    bench.now_ns = IN_TIME_NS + 1
    bench.processor.expire_idle(NO_IDLE_LIMIT)
    assert not slow.transport.closing
    sent = waiting.send(HUGE)
    bench.processor.expire_idle(NO_IDLE_LIMIT)
    assert slow.transport.closing
    assert not waiting.transport.closing
    assert bench.lines == [
        "local:1-host:2-0 on listener PLAINTEXT: a large request arrives too slowly, and others wait for its memory; closing the connection"
    ]
    slow.connection.connection_lost(None)
    bench.turns.run()
    waiting.send_all(HUGE[sent:])
    assert waiting.answers == [b"%d" % HUGE_BYTES]


def test_one_that_comes_in_at_a_mebibyte_a_second_is_left_in_peace() -> None:
    bench = a_bench()
    first, second = bench.connect(), bench.connect()
    first.send(HUGE[:-1])
    second.send(HUGE)
    bench.now_ns = IN_TIME_NS
    bench.processor.expire_idle(NO_IDLE_LIMIT)
    assert not first.transport.closing
    assert not second.transport.closing
