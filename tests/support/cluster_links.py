"""Cuts, holds or delays single links between the brokers of a cluster: each broker advertises a proxy to the others.

The client id of the first request identifies the connecting broker (`1`, `broker-1-fetcher-0`). Clients use another listener, and are not
affected. A link has the direction in which the connection was opened; the commands take two brokers, and apply to both directions. One end
may be ZOOKEEPER, if the brokers keep their metadata there.

    with some_links() as links, a_cluster(tmp_path, 3, links=links) as cluster:
        links.hold(0, 1)        # nothing passes, connections stay open: a partitioned network
        links.heal()
"""

from __future__ import annotations

import asyncio
import re
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tests.support.cutting_proxy import until_one_ends

SECONDS = 60.0
ZOOKEEPER = -2
"""The other end of the link between a broker and ZooKeeper."""
_HEADER = struct.Struct(">ihhih")
_PIECE = 65_536
_FIRST_NUMBER = re.compile(rb"\d+")


class Links:
    """See the module. The proxies run on a loop in a thread of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._servers: list[asyncio.Server] = []
        self._connections: dict[asyncio.Task[None], tuple[int, int] | None] = {}
        self._cut: set[frozenset[int]] = set()
        self._held: set[frozenset[int]] = set()
        self._delays: dict[frozenset[int], float] = {}
        self._changed = asyncio.Event()

    def start(self) -> None:
        """Begin; no broker is known yet."""
        self._thread.start()

    def stop(self) -> None:
        """Cut everything, and end."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()

    def listen(self, broker_id: int, port: int) -> int:
        """A proxy before the broker, whose own port this is; the proxy's port."""
        return self._listen(broker_id, port, None)

    def listen_to_zookeeper(self, broker_id: int, port: int) -> int:
        """A proxy before ZooKeeper, whose port this is, for this broker only; the proxy's port."""
        return self._listen(ZOOKEEPER, port, broker_id)

    def settings(self, broker_id: int, clients: int, internal: int, zookeeper: str | None) -> dict[str, str]:
        """The configuration of a broker of either kind that listens on these two ports, with its metadata at `zookeeper`."""
        external = f"EXTERNAL://127.0.0.1:{clients}"
        found = {
            "listeners": f"INTERNAL://127.0.0.1:{internal},{external}",
            "advertised.listeners": f"INTERNAL://127.0.0.1:{self.listen(broker_id, internal)},{external}",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
        }
        if zookeeper is not None:
            host, _, rest = zookeeper.partition(":")
            port, slash, chroot = rest.partition("/")
            found["zookeeper.connect"] = f"{host}:{self.listen_to_zookeeper(broker_id, int(port))}{slash}{chroot}"
        return found

    def _listen(self, destination: int, port: int, source: int | None) -> int:
        async def serve() -> int:
            async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await self._on_connection(destination, port, source, reader, writer)

            server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
            self._servers.append(server)
            return int(server.sockets[0].getsockname()[1])

        return asyncio.run_coroutine_threadsafe(serve(), self._loop).result(SECONDS)

    # ---- what the test does to the network

    def cut(self, one: int, other: int) -> None:
        """Connections break, and no new one is made."""
        self._do(lambda: self._on_cut(frozenset((one, other))))

    def hold(self, one: int, other: int) -> None:
        """Let no bytes pass, without closing connections."""
        self._do(lambda: self._held.add(frozenset((one, other))))

    def delay(self, one: int, other: int, seconds: float) -> None:
        """Delay all bytes by `seconds`, each way."""
        self._do(lambda: self._delays.__setitem__(frozenset((one, other)), seconds))

    def isolate(self, broker_id: int, *others: int) -> None:
        """Hold all links between the broker and these."""
        for other in others:
            self.hold(broker_id, other)

    def heal(self) -> None:
        """All links are as they were."""

        def forget() -> None:
            self._cut.clear()
            self._held.clear()
            self._delays.clear()

        self._do(forget)

    def open_links(self) -> set[tuple[int, int]]:
        """The open connections now, as (source, destination)."""

        async def look() -> set[tuple[int, int]]:
            return {link for link in self._connections.values() if link is not None}

        return asyncio.run_coroutine_threadsafe(look(), self._loop).result(SECONDS)

    # ---- on the loop

    def _do(self, change: Callable[[], object]) -> None:
        async def carry_out() -> None:
            change()
            self._changed.set()
            self._changed = asyncio.Event()

        asyncio.run_coroutine_threadsafe(carry_out(), self._loop).result(SECONDS)

    def _on_cut(self, link: frozenset[int]) -> None:
        self._cut.add(link)
        for task, found in self._connections.items():
            if found is not None and frozenset(found) == link:
                task.cancel()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        for server in self._servers:
            await server.wait_closed()

    async def _on_connection(
        self, destination: int, port: int, source: int | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """`source` is None where the first request tells."""
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = None
        opened = [writer]
        try:
            first = b""
            if source is None:
                first = await reader.readexactly(_HEADER.size)
                client_id = await reader.readexactly(max(_HEADER.unpack(first)[4], 0))
                first += client_id
                found = _FIRST_NUMBER.search(client_id)
                source = int(found[0]) if found else -1
            link = frozenset((source, destination))
            if link in self._cut:
                return
            self._connections[task] = (source, destination)
            upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", port)
            opened.append(upstream)
            await until_one_ends(self._forward(link, reader, upstream, first), self._forward(link, upstream_reader, writer, b""))
        except (OSError, asyncio.IncompleteReadError):
            pass  # one side is gone: the other sees its connection closed
        except asyncio.CancelledError:
            pass  # the link is cut; asyncio would complain about a handler that was cancelled
        finally:
            for each in opened:
                each.transport.abort()
            self._connections.pop(task, None)

    async def _forward(self, link: frozenset[int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> None:
        with suppress(OSError):
            while data or (data := await reader.read(_PIECE)):
                await asyncio.sleep(self._delays.get(link, 0.0))
                while link in self._held:
                    await self._changed.wait()
                writer.write(data)
                await writer.drain()
                data = b""


@contextmanager
def some_links() -> Iterator[Links]:
    """Links for a cluster that is not there yet."""
    links = Links()
    links.start()
    try:
        yield links
    finally:
        links.stop()
