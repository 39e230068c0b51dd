"""The proxy that makes a store late: what it passes on, when, and what it counts."""

import asyncio
import time
from http.client import HTTPConnection
from urllib.parse import urlsplit

from benchmarks.loadgen.late_proxy import _Client, a_late_proxy
from tests.support.moto_server import SIGNED, a_moto_server


def test_requests_and_answers_are_passed_on_whole_and_late_and_reads_are_counted() -> None:
    body = bytes(range(256)) * (3 << 12)  # more than the socket buffers of a connection
    with a_moto_server("bucket") as url, a_late_proxy(url, 200) as proxy:
        target = urlsplit(proxy.url)
        connection = HTTPConnection(target.hostname or "", target.port, timeout=60)
        for number, method in enumerate(("PUT", "GET", "GET")):
            began = time.monotonic()
            connection.request(method, "/bucket/key", body if method == "PUT" else None, SIGNED)
            answer = connection.getresponse()
            found = answer.read()
            assert answer.status == 200
            assert time.monotonic() - began >= 0.2
            assert found == (b"" if method == "PUT" else body)
            assert proxy.gets() == number
        connection.close()


def test_what_a_client_sends_waits_for_the_connection_to_the_server() -> None:
    received = asyncio.Queue[bytes]()

    async def story() -> bytes:
        loop = asyncio.get_running_loop()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await received.put(await reader.readexactly(2))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        proxy = await loop.create_server(lambda: _Client([0], 0.0, server.sockets[0].getsockname()[1]), "127.0.0.1", 0)
        _, client = await asyncio.open_connection("127.0.0.1", proxy.sockets[0].getsockname()[1])
        client.write(b"at")
        async with asyncio.timeout(20):
            found = await received.get()
        client.close()
        proxy.close()
        server.close()
        return found

    assert asyncio.run(story()) == b"at"
