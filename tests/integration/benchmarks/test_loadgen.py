"""The load generator against a small listener of our own: counting, windows, rates, and every way a broker can disappoint it."""

import random
import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial

import crc32c
import pytest

from benchmarks.loadgen.prepared import TAKEN, Patch, Prepared, checksum_over
from benchmarks.loadgen.runner import Interval, Load, LoadFailedError, run_load
from benchmarks.loads.batches import batch_of_size
from benchmarks.loads.frames import Asked, answer_frame, fetch_error_offsets, fetch_partitions
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

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
            if not response:
                continue
            connection.sendall(len(response).to_bytes(4, "big") + response)


@contextmanager
def a_listener(answer: Answer) -> Iterator[tuple[int, list[bytes]]]:
    """(port, requests as they came, without their length) of a listener that answers every request so.

    None closes the connection, and nothing is sent for an answer without bytes.
    """
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

    assert all(interval.at_s >= 0.1 * number - 0.001 for number, interval in enumerate(intervals[:4], 1))  # late on a busy machine
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


def a_session(request: bytes) -> bytes:
    """An answer with the id of a session behind its error code."""
    return echoed(request[:8] + b"\x01\x02\x03\x04")


def bodies(seen: Sequence[bytes]) -> list[bytes]:
    return [request[8:] for request in seen]


def test_a_counter_is_written_into_its_frame_and_moves_on_with_every_request() -> None:
    counting = Prepared(a_frame(b"...." + b"x"), (ERROR_PLACE,), patches=(Patch(12, 0, first=7, step=3),))
    with a_listener(echoed) as (port, seen):
        run_load("127.0.0.1", port, a_load(frames=[counting], connections=1))

    numbers = [int.from_bytes(body[:4], "big") for body in bodies(seen)[:200]]
    assert numbers == [7 + 3 * at for at in range(200)]


def test_counters_stay_positive() -> None:
    counting = Prepared(a_frame(b"...."), (ERROR_PLACE,), patches=(Patch(12, 0, first=2**31 - 2, step=3),))
    with a_listener(echoed) as (port, seen):
        run_load("127.0.0.1", port, a_load(frames=[counting], connections=1))

    assert [int.from_bytes(body, "big") for body in bodies(seen)[:2]] == [2**31 - 2, 1]


def test_frames_of_one_connection_may_share_a_counter() -> None:
    frames = [Prepared(a_frame(b"...." + name), (ERROR_PLACE,), patches=(Patch(12, 0),)) for name in (b"a", b"b")]
    with a_listener(echoed) as (port, seen):
        run_load("127.0.0.1", port, a_load(frames=frames, connections=1))

    assert [(int.from_bytes(body[:4], "big"), body[4:]) for body in bodies(seen)[:4]] == [(0, b"a"), (1, b"b"), (2, b"a"), (3, b"b")]


def test_a_checksum_over_a_counter_is_mended() -> None:
    padding = random.Random(3).randbytes(60_000)

    def crc(number: int) -> int:
        return crc32c.crc32c(number.to_bytes(4, "big") + padding)

    patch = Patch(16, 0, first=5, step=0x01234567, checksum=checksum_over(12, crc))
    with a_listener(lambda request: echoed(request[:8])) as (port, seen):
        run_load("127.0.0.1", port, a_load(frames=[Prepared(a_frame(bytes(8) + padding), (ERROR_PLACE,), patches=(patch,))], connections=1))

    sent = bodies(seen)[:300]
    assert len({body[4:8] for body in sent}) == 300
    assert all(int.from_bytes(body[:4], "big") == crc32c.crc32c(body[4:]) for body in sent)


def test_what_opens_a_connection_is_sent_first_and_its_answer_is_used_by_what_follows() -> None:
    opening = [Prepared(a_frame(b"open" + bytes([at])), (ERROR_PLACE,), takes=6) for at in range(2)]
    frames = [Prepared(a_frame(b"...." + bytes([at])), (ERROR_PLACE,), patches=(Patch(12, TAKEN),)) for at in range(2)]
    with a_listener(lambda request: a_session(request) if request[8:12] == b"open" else echoed(request)) as (port, seen):
        run_load("127.0.0.1", port, a_load(frames=frames, opening=opening))

    assert sorted(body for body in bodies(seen) if body[:4] == b"open") == [b"open\0", b"open\1"]
    others = [body for body in bodies(seen) if body[:4] != b"open"]
    assert len(others) >= 500
    assert {body[:4] for body in others} == {b"\x01\x02\x03\x04"}


def test_an_error_in_what_opens_a_connection_fails_the_load() -> None:
    opening = [Prepared(a_frame(b"open"), (ERROR_PLACE,))] * 2

    def answer(request: bytes) -> bytes:
        return echoed(request, error_code=70 if request[8:] == b"open" else 0)

    with a_listener(answer) as (port, _), pytest.raises(LoadFailedError, match="first code 70"):
        run_load("127.0.0.1", port, a_load(opening=opening))


def test_a_frame_with_patches_is_not_dealt_to_two_connections() -> None:
    shared = Prepared(a_frame(b"...."), patches=(Patch(12, 0),))
    with a_listener(echoed) as (port, _), pytest.raises(LoadFailedError, match="dealt to two connections"):
        run_load("127.0.0.1", port, a_load(frames=[shared, shared]))


def test_requests_without_an_answer_count_once_they_are_sent() -> None:
    silent = Prepared(a_frame(b"silent"), is_answered=False)
    frames = [silent, silent, silent, Prepared(a_frame(b"answered"), (ERROR_PLACE,))]
    answered = 0

    def answer(request: bytes) -> bytes | None:
        nonlocal answered
        if request[8:] == b"silent":
            return b""
        answered += 1
        return echoed(request)

    with a_listener(answer) as (port, seen):
        measured = run_load("127.0.0.1", port, a_load(frames=frames, connections=1, in_flight=1))

    assert measured.responses >= 500
    assert measured.latency_ns.count == pytest.approx(measured.responses / 4, abs=3)
    assert bodies(seen)[:8] == [b"silent", b"silent", b"silent", b"answered"] * 2


def test_a_connection_that_is_sent_nothing_that_is_answered_is_refused() -> None:
    frames = [Prepared(a_frame(b"silent"), is_answered=False), Prepared(a_frame(b"answered"))]
    with a_listener(echoed) as (port, _), pytest.raises(LoadFailedError, match="nothing that is answered"):
        run_load("127.0.0.1", port, a_load(frames=frames))


def test_with_a_limited_lead_all_connections_send_about_as_many_requests() -> None:
    def answer(request: bytes) -> bytes:
        if request[8:] == b"slow":
            time.sleep(0.001)
        return echoed(request)

    with a_listener(answer) as (port, seen):
        run_load("127.0.0.1", port, a_load(frames=[a_frame(b"slow"), a_frame(b"quick")], in_flight=1, lead=5, total=100))

    counts = [bodies(seen).count(name) for name in (b"slow", b"quick")]
    assert abs(counts[0] - counts[1]) <= 6
    assert min(counts) >= 40


@pytest.mark.parametrize("is_discarding", [False, True])
def test_an_answer_that_is_shorter_than_a_good_one_fails_the_load(is_discarding: bool) -> None:
    frames = [Prepared(a_frame(b"short"), (ERROR_PLACE,), least_answer_bytes=400)]
    with a_listener(partial(echoed, padding=300)) as (port, _), pytest.raises(LoadFailedError, match="first code -3: shorter than a good"):
        run_load("127.0.0.1", port, a_load(frames=frames, connections=1, discard_bodies=is_discarding))


def test_error_codes_far_behind_are_looked_at_though_bodies_are_discarded() -> None:
    frames = [Prepared(a_frame(b""), (6 + 40_000,))]

    def answer(request: bytes) -> bytes:
        return request[4:8] + bytes(2 + 40_000) + b"\0\x1d" + bytes(1_000_000)

    with a_listener(answer) as (port, _), pytest.raises(LoadFailedError, match="first code 29"):
        run_load("127.0.0.1", port, a_load(frames=frames, connections=1, discard_bodies=True, total=20))


@pytest.mark.parametrize("error_code", [0, 3])
def test_the_answer_to_a_frame_that_is_shown_is_decoded_whole(error_code: int) -> None:
    asked = [Asked(at, 0, 100_000) for at in range(3)]
    prepared = Prepared(fetch_partitions("orders", bytes(16), asked, 11), fetch_error_offsets("orders", 11), is_shown=True)
    partitions = [
        PartitionData(partition_index=at, error_code=error_code * (at == 2), high_watermark=0, records=a_batch()) for at in range(3)
    ]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=partitions)])
    answer = answer_frame(ApiKey.FETCH, response, 11)[4:]
    expected = pytest.raises(LoadFailedError, match="error code 3") if error_code else nullcontext()

    with a_listener(lambda request: request[4:8] + answer) as (port, _), expected:
        run_load("127.0.0.1", port, a_load(frames=[prepared], connections=1, discard_bodies=True, total=20))


def a_batch() -> memoryview:
    return memoryview(batch_of_size(90_000, 10, 1_700_000_000_000))
