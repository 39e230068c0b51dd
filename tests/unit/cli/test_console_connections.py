"""A client of the console that does not send its request, or does not take its answer, is disconnected; one that waits for it is not."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress

import pytest
import uvicorn
import uvloop
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from ottla.console import connections
from ottla.console.connections import MOST_CONNECTIONS, BoundedRequests

SECONDS = 60.0
REQUEST_SECONDS = 0.2
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"

Session = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the request, and takes its time for the answer."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        if not message.get("more_body"):
            break
    await asyncio.sleep(3 * REQUEST_SECONDS)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": b"done"})


async def endless(_: Scope, receive: Receive, send: Send) -> None:
    """Answers until the client has left."""
    assert (await receive())["type"] == "http.request"
    left = asyncio.ensure_future(receive())
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while not left.done():
        await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        await asyncio.sleep(0)
    assert left.result() == {"type": "http.disconnect"}


def with_a_server(session: Session, monkeypatch: pytest.MonkeyPatch, app: ASGIApp = app) -> None:
    async def run() -> None:
        monkeypatch.setattr(connections, "REQUEST_SECONDS", REQUEST_SECONDS)
        config = uvicorn.Config(app, http=BoundedRequests, ws="none", lifespan="off", log_config=None)
        server = await asyncio.get_running_loop().create_server(lambda: BoundedRequests(config, ServerState(), {}), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        async with asyncio.timeout(SECONDS):
            await session(reader, writer)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        server.close()

    asyncio.run(run())


async def with_many(sent: bytes) -> None:
    """More clients than are served send a part of a request each. Then another one is answered, and the first ones are disconnected."""
    config = uvicorn.Config(app, http=BoundedRequests, ws="none", lifespan="off", log_config=None, limit_concurrency=MOST_CONNECTIONS + 1)
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(lambda: BoundedRequests(config, state, {}), "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    slow = [await asyncio.open_connection(*address) for _ in range(MOST_CONNECTIONS)]
    await asyncio.sleep(0.02)  # the clock of uvloop counts milliseconds, and two connections of one are equally old
    slow += [await asyncio.open_connection(*address) for _ in range(MOST_CONNECTIONS)]
    for _, writer in slow:
        writer.write(sent)
    reader, writer = await asyncio.open_connection(*address)
    writer.write(GET + b"\r\n")
    await answered(reader)
    assert len(state.connections) <= MOST_CONNECTIONS
    assert all([await is_disconnected(reader) for reader, _ in slow[:MOST_CONNECTIONS]])
    for _, each in [*slow, (reader, writer)]:
        each.transport.abort()
    server.close()


async def with_many_that_read_nothing() -> None:
    """As many clients as are served take nothing of their answers. Another one is answered, in place of the one that stalls longest."""
    stalled: dict[BoundedRequests, float] = {}
    all_have_stalled = asyncio.Event()

    class Watched(BoundedRequests):
        def pause_writing(self) -> None:
            super().pause_writing()
            stalled[self] = self.stalled_until
            if len(stalled) == MOST_CONNECTIONS:
                all_have_stalled.set()

    async def by_path(scope: Scope, receive: Receive, send: Send) -> None:
        await (app if scope["path"] == "/" else endless)(scope, receive, send)

    config = uvicorn.Config(by_path, http=Watched, ws="none", lifespan="off", log_config=None, limit_concurrency=MOST_CONNECTIONS + 1)
    state = ServerState()
    loop = asyncio.get_running_loop()
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # by default the kernel would keep a gigabyte of 200 answers
    server = await loop.create_server(lambda: Watched(config, state, {}), sock=listening)
    address = listening.getsockname()
    silent = [socket.socket() for _ in range(MOST_CONNECTIONS)]
    for each in silent:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        each.setblocking(False)
        await loop.sock_connect(each, address)
        await loop.sock_sendall(each, b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n")
    async with asyncio.timeout(SECONDS):
        await all_have_stalled.wait()
        reader, writer = await asyncio.open_connection(*address)
        writer.write(GET + b"\r\n")
        await answered(reader)
    (ended,) = [until for each, until in stalled.items() if each not in state.connections]
    assert ended == min(stalled.values())
    writer.transport.abort()
    for each in silent:
        each.close()
    for protocol in stalled:
        protocol.transport.abort()
    server.close()
    await asyncio.gather(*state.tasks)


async def answered(reader: asyncio.StreamReader) -> None:
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert await reader.readexactly(4) == b"done"


async def is_disconnected(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", GET, POST, POST + b"12345678"], ids=["nothing", "headers", "no body", "a part of a body"])
def test_a_request_that_is_not_complete_in_time_ends_its_connection(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async def session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        assert await is_disconnected(reader)

    with_a_server(session, monkeypatch)


def test_a_byte_now_and_then_gives_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GET + b"X: ")
        ended = asyncio.create_task(is_disconnected(reader))
        while not ended.done():
            writer.write(b"x")
            await asyncio.wait({ended}, timeout=0.01)
        assert await ended

    with_a_server(session, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [GET + b"\r\n", POST + b"123456789"], ids=["no body", "a body"])
def test_an_answer_may_take_longer_and_so_may_the_next_one(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async def session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            writer.write(sent)
            await answered(reader)

    with_a_server(session, monkeypatch)


@pytest.mark.slow
def test_a_request_that_began_with_the_last_one_has_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GET + b"\r\n" + POST)
        await answered(reader)
        assert await is_disconnected(reader)

    with_a_server(session, monkeypatch)


def test_a_client_that_does_not_take_its_answer_is_disconnected_and_the_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALLED_SECONDS", REQUEST_SECONDS)
    has_ended = asyncio.Event()

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        await endless(scope, receive, send)
        has_ended.set()

    async def session(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GET + b"\r\n")
        await has_ended.wait()  # and nothing is read

    with_a_server(session, monkeypatch, watched)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("sent", [b"", GET], ids=["nothing", "headers"])
def test_half_open_connections_lock_out_no_client(run: Callable[[Coroutine[None, None, None]], None], sent: bytes) -> None:
    run(with_many(sent))


@pytest.mark.slow
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_clients_that_take_no_answer_lock_out_no_client(run: Callable[[Coroutine[None, None, None]], None]) -> None:
    run(with_many_that_read_nothing())
