"""The load generator against a small listener of our own: counting, windows, rates, and every way a broker can disappoint it."""

import shutil
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from benchmarks.loadgen.runner import Interval, Load, LoadFailedError, run_load

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on the PATH: install gcc")

ERROR_PLACE = 4  # right after the correlation id
Answer = Callable[[bytes], bytes | None]


def a_frame(body: bytes) -> bytes:
    return struct.pack(">ihhi", 8 + len(body), 0, 9, 0) + body


def echoed(request: bytes, error_code: int = 0, padding: int = 0) -> bytes:
    """The request's correlation id, an error code, and the body of the request."""
    return request[4:8] + struct.pack(">h", error_code) + request[8:] + bytes(padding)


def serve_connection(connection: socket.socket, answer: Answer, seen: list[bytes]) -> None:
    with connection, connection.makefile("rb") as stream, suppress(OSError):  # the generator hangs up when it has seen enough
        while len(prefix := stream.read(4)) == 4:
            request = stream.read(int.from_bytes(prefix, "big"))
            seen.append(request)
            response = answer(request)
            if response is None:
                return
            connection.sendall(len(response).to_bytes(4, "big") + response)


@contextmanager
def a_listener(answer: Answer) -> Iterator[tuple[int, list[bytes]]]:
    """(port, requests as they came, without their length) of a listener that answers every request so; None closes the connection."""
    seen: list[bytes] = []
    threads: list[threading.Thread] = []

    def accept(listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=serve_connection, args=(connection, answer, seen)))
            threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        acceptor = threading.Thread(target=accept, args=(listening,))
        acceptor.start()
        try:
            yield listening.getsockname()[1], seen
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            acceptor.join(10)
            for thread in threads:
                thread.join(10)


def a_load(**changes: object) -> Load:
    usual: dict[str, object] = {
        "frames": [a_frame(b"first"), a_frame(b"second"), a_frame(b"third")],
        "connections": 2,
        "in_flight": 3,
        "warm_up_s": 0.0,
        "duration_s": 20.0,
        "total": 500,
        "error_offsets": (ERROR_PLACE,),
    }
    return Load(**{**usual, **changes})  # type: ignore[arg-type]  # the builder takes any field by name


def test_a_closed_loop_counts_every_answer_and_its_bytes() -> None:
    with a_listener(echoed) as (port, _):
        measured = run_load("127.0.0.1", port, a_load(frames=[a_frame(b"x" * 90)]))

    assert measured.responses == measured.answered == measured.latency_ns.count
    assert 500 <= measured.responses < 510
    assert measured.bytes_received == measured.responses * (4 + 4 + 2 + 90)
    assert measured.bytes_sent >= measured.responses * 102
    assert measured.latency_ns.maximum > 0


def test_frames_are_dealt_round_robin_and_every_request_of_a_connection_has_the_next_correlation_id() -> None:
    with a_listener(echoed) as (port, seen):
        run_load("127.0.0.1", port, a_load(connections=1))

    assert [request[8:] for request in seen[:6]] == [b"first", b"second", b"third"] * 2
    assert [int.from_bytes(request[4:8], "big") for request in seen[:100]] == list(range(100))


def test_requests_larger_than_the_socket_buffers_arrive_whole() -> None:
    body = bytes(range(256)) * 8192
    with a_listener(lambda request: request[4:8] + b"\0\0") as (port, seen):
        run_load("127.0.0.1", port, a_load(frames=[a_frame(body)], total=20))

    assert all(request[8:] == body for request in seen[:20])


@pytest.mark.parametrize("padding", [0, 300, 1 << 20])
def test_discarded_bodies_are_counted_but_not_read(padding: int) -> None:
    with a_listener(partial(echoed, padding=padding)) as (port, _):
        measured = run_load("127.0.0.1", port, a_load(frames=[a_frame(b"x")], total=50, discard_bodies=True))

    assert measured.bytes_received == measured.responses * (4 + 4 + 2 + 1 + padding)


def test_an_open_loop_sends_at_its_rate_and_waits_for_every_answer() -> None:
    with a_listener(echoed) as (port, _):
        measured = run_load("127.0.0.1", port, a_load(rate=400.0, duration_s=0.5, total=0))

    assert abs(measured.responses - 200) <= 2
    assert measured.answered >= measured.responses


def test_connections_take_turns_on_an_open_loop() -> None:
    frames = [a_frame(bytes([number])) for number in range(20)]
    with a_listener(echoed) as (port, seen):
        run_load("127.0.0.1", port, a_load(frames=frames, connections=20, rate=400.0, duration_s=0.5, total=0))

    times_seen = [sum(request[8] == number for request in seen) for number in range(20)]
    assert max(times_seen) - min(times_seen) <= 1


def test_intervals_add_up_to_the_window() -> None:
    intervals: list[Interval] = []
    with a_listener(echoed) as (port, _):
        load = a_load(rate=400.0, duration_s=0.5, total=0, interval_s=0.1)
        measured = run_load("127.0.0.1", port, load, on_interval=intervals.append)

    assert [round(interval.at_s, 1) for interval in intervals[:4]] == [0.1, 0.2, 0.3, 0.4]
    assert 0 < sum(interval.latency_ns.count for interval in intervals) <= measured.responses
    assert max(interval.latency_ns.maximum for interval in intervals) <= measured.latency_ns.maximum


def test_the_probe_is_asked_at_both_ends_of_the_window() -> None:
    readings = iter([10.0, 12.5])
    with a_listener(echoed) as (port, _):
        measured = run_load("127.0.0.1", port, a_load(), probe=lambda: next(readings))

    assert measured.broker_cpu_s == 2.5


def test_an_error_code_in_an_answer_fails_the_load_and_is_named() -> None:
    with a_listener(partial(echoed, error_code=29)) as (port, _), pytest.raises(LoadFailedError, match="first code 29"):
        run_load("127.0.0.1", port, a_load())


def test_an_answer_too_short_for_its_error_code_fails_the_load() -> None:
    with a_listener(lambda request: request[4:8]) as (port, _), pytest.raises(LoadFailedError, match="first code -2"):
        run_load("127.0.0.1", port, a_load())


def test_an_answer_to_another_request_fails_the_load() -> None:
    with a_listener(lambda _: bytes.fromhex("7fffffff0000")) as (port, _), pytest.raises(LoadFailedError, match="wrong correlation id"):
        run_load("127.0.0.1", port, a_load())


def test_a_closed_connection_fails_the_load() -> None:
    with a_listener(lambda _: None) as (port, _), pytest.raises(LoadFailedError, match=r"closed the connection|receive"):
        run_load("127.0.0.1", port, a_load())


def test_nobody_listening_fails_the_load() -> None:
    with a_listener(echoed) as (port, _):
        pass

    with pytest.raises(LoadFailedError, match="connect"):
        run_load("127.0.0.1", port, a_load())


def test_many_connections_are_opened_no_faster_than_they_are_accepted() -> None:
    with a_listener(echoed) as (port, seen):
        measured = run_load("127.0.0.1", port, a_load(connections=60, in_flight=1, total=300))

    assert sum(request[:2] == b"\x00\x12" for request in seen) == 2
    assert measured.responses >= 300
