"""A store process answers every request once, stops what is forgotten, and holds nothing longer than it is asked to."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.remote.store_messages import Answer, LogLine, MessageReader, Op, Request, encoded, error_of, hello
from ottla.broker.remote.store_worker import PAGE_OBJECTS, StoreWorker, serve
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.ports import RemoteObjectMissing, RemoteStoreError, SegmentFiles, StoredObject
from tests.support.remote_fakes import MemoryStore
from tests.support.remote_stores import an_entry, directory_settings

ENTRY = an_entry(0, 99, 100)
RECORDS = bytes(range(100))
FILES = SegmentFiles("/log", "/index", "/timeindex", None, b"", b"")


class Files:
    """The files of a segment."""

    def read_file(self, path: str) -> bytes:
        return RECORDS


class Panic(BaseException):
    """As a panic of Rust arrives."""


class Broker:
    """The other end of the connection."""

    def __init__(self, worker: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.worker = worker
        self.reader = reader
        self.writer = writer
        self.messages = MessageReader(hello())
        self.received: deque[Any] = deque()

    def send(self, number: int, op: Op, *arguments: Any) -> None:
        self.writer.write(encoded(Request(number, op, arguments)))

    async def next(self) -> Any:
        while not self.received:
            data = await asyncio.wait_for(self.reader.read(65_536), 30)
            assert data, "the worker has ended"
            self.received += self.messages.feed(data)
        return self.received.popleft()

    async def ask(self, number: int, op: Op, *arguments: Any) -> Any:
        """The value of the answer. Raises its error."""
        self.send(number, op, *arguments)
        answer = await self.next()
        assert (type(answer), answer.number) == (Answer, number)
        if answer.failure is not None:
            raise error_of(answer.failure)
        return answer.value


def run(monkeypatch: pytest.MonkeyPatch, store: MemoryStore, story: Callable[[Broker], Awaitable[None]]) -> None:
    """Runs a story with a worker in the process of the test, whose store is this one."""
    monkeypatch.setattr(StoreWorker, "_opened", lambda self, settings, secret: store)

    async def told() -> None:
        ours, theirs = socket.socketpair()
        worker = asyncio.ensure_future(serve(theirs))
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        writer.write(hello())
        broker = Broker(worker, reader, writer)
        await broker.ask(1, Op.OPEN, directory_settings(Path("/nowhere")), b"secret")
        await story(broker)
        writer.close()
        await asyncio.wait_for(worker, 30)

    asyncio.run(told())


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(Files())  # type: ignore[arg-type]  # it only reads


def test_a_call_returns_what_the_store_returns(monkeypatch: pytest.MonkeyPatch, store: MemoryStore) -> None:
    async def story(broker: Broker) -> None:
        store.custom = b"custom"
        assert await broker.ask(2, Op.CALL, "copy", ENTRY, FILES) == b"custom"
        assert await broker.ask(3, Op.CALL, "fetch", ENTRY, 10, 20) == RECORDS[10:20]
        assert await broker.ask(4, Op.CALL, "owner", "me") == "me"
        assert await broker.ask(5, Op.CALL, "delete", ENTRY) is None
        with pytest.raises(RemoteObjectMissing):
            await broker.ask(6, Op.CALL, "fetch", ENTRY, 10, 20)

    run(monkeypatch, store, story)


@pytest.mark.parametrize("name", ["close", "list", "__init__", "_filesystem", "parts"])
def test_nothing_is_called_that_is_no_method_of_a_store(monkeypatch: pytest.MonkeyPatch, store: MemoryStore, name: str) -> None:
    async def story(broker: Broker) -> None:
        with pytest.raises(RemoteStoreError, match="no method"):
            await broker.ask(2, Op.CALL, name)

    run(monkeypatch, store, story)


@pytest.mark.parametrize("error", [Panic("out of bounds"), KeyboardInterrupt(), SystemExit(1), GeneratorExit(), ValueError("wrong")])
def test_every_error_is_answered(monkeypatch: pytest.MonkeyPatch, store: MemoryStore, error: BaseException) -> None:
    async def fail(call: str, entry: SegmentEntry) -> None:
        raise error

    async def story(broker: Broker) -> None:
        store.before = fail
        with pytest.raises(RemoteStoreError, match=type(error).__name__):
            await broker.ask(2, Op.HOLD, ENTRY, 0, 10)
        assert await broker.ask(3, Op.PING) is None

    run(monkeypatch, store, story)


def test_an_answer_that_cannot_be_sent_is_an_error(monkeypatch: pytest.MonkeyPatch, store: MemoryStore) -> None:
    async def story(broker: Broker) -> None:
        store.clock_ms = lambda: 0  # type: ignore[assignment]  # no pickle has it
        with pytest.raises(RemoteStoreError):
            await broker.ask(2, Op.CALL, "now_ms")

    run(monkeypatch, store, story)


def test_a_chunk_is_held_until_it_is_forgotten(monkeypatch: pytest.MonkeyPatch, store: MemoryStore) -> None:
    async def story(broker: Broker) -> None:
        await broker.ask(2, Op.CALL, "copy", ENTRY, FILES)
        await broker.ask(3, Op.HOLD, ENTRY, 10, 20)
        for number in (4, 5):
            assert await broker.ask(number, Op.READ, 3) == RECORDS[10:20]
        broker.send(6, Op.FORGET, 3)
        with pytest.raises(RemoteStoreError, match="not held"):
            await broker.ask(7, Op.READ, 3)

    run(monkeypatch, store, story)


def test_what_is_forgotten_while_it_is_fetched_is_not_held_and_has_no_answer(monkeypatch: pytest.MonkeyPatch, store: MemoryStore) -> None:
    has_begun, gate = asyncio.Event(), asyncio.Event()

    async def wait(call: str, entry: SegmentEntry) -> None:
        has_begun.set()
        await gate.wait()

    async def story(broker: Broker) -> None:
        store.before = wait
        broker.send(2, Op.HOLD, ENTRY, 0, 10)
        await asyncio.wait_for(has_begun.wait(), 30)
        broker.send(4, Op.FORGET, 2)
        await broker.ask(3, Op.PING)
        gate.set()
        with pytest.raises(RemoteStoreError, match="not held"):
            await broker.ask(5, Op.READ, 2)

    run(monkeypatch, store, story)


def test_a_deletion_waits_for_the_copy_that_was_forgotten_before_it(monkeypatch: pytest.MonkeyPatch, store: MemoryStore) -> None:
    has_begun = asyncio.Event()

    async def leave_slowly(call: str, entry: SegmentEntry) -> None:
        if call == "copy":
            has_begun.set()
            try:
                await asyncio.sleep(60)
            finally:
                for _ in range(20):
                    await asyncio.sleep(0)
                store.calls.append(("left", 0))

    async def story(broker: Broker) -> None:
        store.before = leave_slowly
        broker.send(2, Op.CALL, "copy", ENTRY, FILES)
        await asyncio.wait_for(has_begun.wait(), 30)
        broker.send(3, Op.FORGET, 2)
        await broker.ask(4, Op.CALL, "delete", ENTRY)
        assert store.calls == [("copy", 0), ("left", 0), ("delete", 0)]

    run(monkeypatch, store, story)


def test_a_listing_comes_in_pages_and_ends_when_it_is_forgotten(monkeypatch: pytest.MonkeyPatch, store: MemoryStore) -> None:
    store.names = {f"{at:05d}": at for at in range(2 * PAGE_OBJECTS + 1)}
    ended: list[str] = []
    all_ended = asyncio.Event()
    listed = store.list

    async def noting(prefix: str) -> AsyncIterator[StoredObject]:
        try:
            async for each in listed(prefix):
                yield each
        finally:
            ended.append(prefix)
            if len(ended) == 2:
                all_ended.set()

    async def story(broker: Broker) -> None:
        store.list = noting  # type: ignore[method-assign]  # it notes the end
        found, is_last = await broker.ask(2, Op.LIST, "")
        while not is_last:
            page, is_last = await broker.ask(3, Op.NEXT, 2)
            found += page
        assert found == [StoredObject(name, at) for name, at in store.names.items()]
        with pytest.raises(RemoteStoreError, match="not begun"):
            await broker.ask(4, Op.NEXT, 2)
        await broker.ask(5, Op.LIST, "0")
        broker.send(6, Op.FORGET, 5)
        with pytest.raises(RemoteStoreError, match="not begun"):
            await broker.ask(7, Op.NEXT, 5)
        await asyncio.wait_for(all_ended.wait(), 30)
        assert ended == ["", "0"]

    run(monkeypatch, store, story)


def test_lines_of_the_log_are_sent_to_the_broker(monkeypatch: pytest.MonkeyPatch, store: MemoryStore) -> None:
    async def story(broker: Broker) -> None:
        await asyncio.get_running_loop().run_in_executor(None, logging.getLogger("ottla.storage").warning, "%s is full", "the disk")
        assert await broker.next() == LogLine("ottla.storage", logging.WARNING, "the disk is full")

    run(monkeypatch, store, story)


def test_a_broker_of_another_version_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        ours, theirs = socket.socketpair()
        worker = asyncio.ensure_future(serve(theirs))
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        writer.write(b"x" * 1000)
        await asyncio.wait_for(worker, 30)
        writer.close()
        assert await reader.read() in (b"", hello())

    asyncio.run(story())
    assert "OtherVersion" in capsys.readouterr().err


@pytest.mark.slow
def test_a_process_whose_parent_has_ended_does_not_begin() -> None:
    command = [sys.executable, "-P", "-m", "ottla.broker.remote.store_worker", "1", str(os.getppid())]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
