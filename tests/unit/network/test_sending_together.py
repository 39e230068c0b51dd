"""Answers to what was just read leave when every connection that had something to read is handled, and never out of order."""

import os
from pathlib import Path

import pytest

from ottla.broker.network.gather import INLINE_BYTES, UNCOPIED_BYTES
from ottla.broker.network.limits import MAX_UNSENT
from ottla.broker.network.request_channel import CLOSE, Answer, Pending
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.segment.file_region import FileRegion
from tests.support.network import Bench, framed, other, produce


def test_answers_wait_until_all_connections_that_were_read_are_handled() -> None:
    bench = Bench()
    clients = [bench.connect() for _ in range(3)]
    for client in clients:
        client.send(framed(b"asked"))
    assert bench.handled == [b"asked"] * 3
    assert [client.transport.writes for client in clients] == [0, 0, 0]
    bench.turns.run()
    assert [client.answers for client in clients] == [[b"asked"]] * 3


def test_nobody_waits_for_more_than_a_few_others() -> None:
    bench = Bench()
    clients = [bench.connect() for _ in range(2 * MAX_UNSENT + 1)]
    for client in clients:
        client.send(framed(b"asked"))
    assert [bool(client.answers) for client in clients] == [True] * 2 * MAX_UNSENT + [False]
    bench.turns.run()
    assert clients[-1].answers == [b"asked"]
    assert [client.transport.writes for client in clients] == [1] * len(clients)


def test_a_second_read_in_the_same_turn_is_answered_behind_the_first() -> None:
    bench = Bench()
    client = bench.connect()
    client.send(framed(b"one"))
    client.send(framed(b"two"))
    assert client.answers == [b"one"]
    bench.turns.run()
    assert client.answers == [b"one", b"two"]


def test_what_is_completed_meanwhile_leaves_behind_what_waits_to_be_sent() -> None:
    pendings: list[Pending] = []

    def handler(frame: memoryview, _: object) -> Answer:
        if frame[1]:
            return bytes(frame)
        pendings.append(Pending(appended=True))
        return pendings[-1]

    bench = Bench(handler)
    client = bench.connect()
    client.send(framed(other(b"at once"), produce()))
    pendings[0].complete(b"replicated")
    bench.turns.run()
    assert client.answers == [other(b"at once"), b"replicated"]


@pytest.mark.parametrize("ending", ["eof", "close", "drain", "CLOSE"])
def test_an_answer_is_sent_before_its_connection_is_closed(ending: str) -> None:
    bench = Bench(lambda frame, _: CLOSE if frame == b"\x01" else bytes(frame))
    client = bench.connect()
    client.send(framed(b"asked"))
    if ending == "eof":
        assert not client.connection.eof_received()  # the transport closes itself then
    elif ending == "close":
        client.connection.close()
    elif ending == "drain":
        client.connection.drain()
    else:
        client.send(framed(b"\x01"))
    assert client.answers == [b"asked"]
    assert client.transport.closing == (ending != "eof")
    bench.turns.run()
    assert client.transport.writes == 1


@pytest.mark.parametrize("is_lost", [True, False])
def test_nothing_is_written_to_a_connection_that_was_aborted_or_lost(is_lost: bool) -> None:
    bench = Bench()
    client = bench.connect()
    client.send(framed(b"asked"))
    client.connection.abort()
    if is_lost:
        client.connection.connection_lost(None)
    bench.turns.run()
    assert client.transport.writes == 0


def test_a_part_of_a_file_that_waits_to_be_sent_is_followed_by_what_is_asked_next(tmp_path: Path) -> None:
    data = os.urandom(3 * INLINE_BYTES)
    path = tmp_path / "segment.log"
    path.write_bytes(data)
    file = RealFileSystem().open(str(path), read_only=True)
    region = FileRegion(file, 0, len(data))
    bench = Bench(lambda frame, _: [b"<", region, b">"] if frame[1] == 1 else bytes(frame))
    client = bench.connect()
    client.send(framed(b"\x00\x01", b"\x00\x01"))
    client.send(framed(other(b"behind")))
    client.send(framed(b"\x00\x01"))
    bench.turns.run()
    whole = b"<" + data + b">"
    assert client.answers == [whole, whole, other(b"behind"), whole]


def test_answers_that_wait_to_be_sent_are_counted_as_the_response_queue() -> None:
    bench = Bench()
    client = bench.connect()
    client.send(framed(b"asked"))
    assert bench.processor.response_queue_size == 1
    bench.turns.run()
    assert bench.processor.response_queue_size == 0


def test_a_connection_that_cannot_be_sent_to_costs_nobody_else_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bad, good = bench.connect(), bench.connect()

    def refuse(_: object) -> None:
        raise RuntimeError("a bug")

    bad.transport.write = refuse  # type: ignore[method-assign]  # of this one transport
    bad.send(framed(b"asked"))
    good.send(framed(b"asked"))
    bench.turns.run()
    assert bad.transport.aborted
    assert good.answers == [b"asked"]
    assert [record.levelname for record in caplog.records] == ["ERROR"]


@pytest.mark.parametrize("length", [UNCOPIED_BYTES - 1, UNCOPIED_BYTES, 3 * UNCOPIED_BYTES])
@pytest.mark.parametrize("takes", [None, 1000])
def test_large_answers_in_memory_arrive_whole_between_others(length: int, takes: int | None) -> None:
    records = os.urandom(length)
    bench = Bench(lambda frame, _: [b"<", memoryview(records), b">"] if frame[1] == 1 else bytes(frame))
    client = bench.connect(takes=takes)
    client.send(framed(other(b"first"), b"\x00\x01", b"\x00\x01", other(b"last")))
    bench.turns.run()
    while client.transport.buffered:
        client.transport.take(50_000)
        bench.turns.run()
    assert client.answers == [other(b"first"), b"<" + records + b">", b"<" + records + b">", other(b"last")]
