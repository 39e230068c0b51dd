"""Simulates a bad network between clients and a broker: a TCP proxy that cuts connections at random, delays and trickles.

It runs on a loop in its own thread. Its actions come from a seeded `Random` per connection and direction; their time depends on the
machine. A connection is cut in the middle of forwarded bytes, so the broker may have handled a request whose answer the client never gets.
With `is_calm` the proxy only forwards.

    with a_cutting_proxy(seed) as proxy, a_broker_behind(proxy, tmp_path) as broker:
        client = Producer({"bootstrap.servers": broker.bootstrap})    # the broker advertises the proxy
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

from tests.support.apache_kafka.ports import free_ports
from tests.support.broker_process import BrokerProcess

SECONDS = 60.0
CUT, DELAY, TRICKLE = 0.02, 0.05, 0.05
"""How likely each is for a piece of what is forwarded."""
MAX_DELAY_SECONDS = 0.03
TRICKLED_BYTES = 300
PIECES = (37, 1_000, 16_384, 65_536)


class CuttingProxy:
    """See the module. `port` is where clients connect, `target` the port of the broker."""

    def __init__(self, seed: int, target: int = 0) -> None:
        self.target = target
        self.port = 0
        self.is_calm = False
        self.cuts = 0
        self.connections = 0
        self._seed = seed
        self._open: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def start(self) -> None:
        """Listen."""
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._on_connection, "127.0.0.1", 0), self._loop).result(
            SECONDS
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        """Cut everything and listen no more."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self.connections += 1
        name = f"{self._seed}-{self.connections}"
        opened = [writer]
        try:
            upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", self.target)
            opened.append(upstream)
            await until_one_ends(
                self._forward(reader, upstream, Random(f"{name}-requests")),
                self._forward(upstream_reader, writer, Random(f"{name}-responses")),
            )
        except OSError:
            pass  # the broker is down: the client sees its connection closed
        except asyncio.CancelledError:
            pass  # the proxy stops; asyncio would complain about a handler that was cancelled
        finally:
            for each in opened:
                each.transport.abort()
            self._open.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, random: Random) -> None:
        """Until either side closes, or the connection is cut."""
        with suppress(OSError):
            while data := await reader.read(random.choice(PIECES)):
                mood = 1.0 if self.is_calm else random.random()
                if mood < CUT:
                    self.cuts += 1
                    writer.write(data[: random.randrange(len(data) + 1)])
                    await writer.drain()
                    return
                if mood < CUT + DELAY:
                    await asyncio.sleep(random.uniform(0, MAX_DELAY_SECONDS))
                elif mood < CUT + DELAY + TRICKLE:
                    data = await self._trickle(data, writer, random)
                writer.write(data)
                await writer.drain()

    async def _trickle(self, data: bytes, writer: asyncio.StreamWriter, random: Random) -> bytes:
        """Forward the beginning in the smallest packets; returns the rest."""
        at = 0
        while at < min(len(data), TRICKLED_BYTES):
            size = random.randint(1, 40)
            writer.write(data[at : at + size])
            await writer.drain()
            await asyncio.sleep(0.001)
            at += size
        return data[at:]


@contextmanager
def a_cutting_proxy(seed: int) -> Iterator[CuttingProxy]:
    """A proxy that listens and does not know yet for whom."""
    proxy = CuttingProxy(seed)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()


async def until_one_ends(*forwarding: Coroutine[Any, Any, None]) -> None:
    """Both directions of a connection at once; when one ends, so does the other."""
    pumps = [asyncio.create_task(each) for each in forwarding]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


class ProxiedBroker(BrokerProcess):
    """A broker that sends its clients through a proxy. `port` is its own, `bootstrap` the proxy's."""

    def __init__(self, proxy: CuttingProxy, directory: Path, **config: object) -> None:
        super().__init__(directory, advertised_listeners=f"PLAINTEXT://127.0.0.1:{proxy.port}", **config)
        (self._own_port,) = free_ports(1)
        self._proxy = proxy
        proxy.target = self._own_port

    @property
    def bootstrap(self) -> str:
        """The proxy."""
        return f"127.0.0.1:{self._proxy.port}"

    def start(self) -> ProxiedBroker:
        """Start on its own port; what it prints is what it advertises."""
        self.port = self._own_port
        super().start()
        self.port = self._own_port
        return self


@contextmanager
def a_broker_behind(proxy: CuttingProxy, directory: Path, **config: object) -> Iterator[ProxiedBroker]:
    """A running broker behind the proxy; stopped at the end."""
    broker = ProxiedBroker(proxy, directory, **config)
    broker.start()
    try:
        yield broker
    except BaseException:
        print(f"--- the broker's log ---\n{broker.log()}")
        raise
    finally:
        broker.stop()
