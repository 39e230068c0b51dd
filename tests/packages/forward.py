"""Publishes ports as a container engine does: `python -m tests.packages.forward 9092=192.0.2.10:9092` forwards connections to localhost.

It prints a line once it listens, and ends with its standard input.
"""

import asyncio
import contextlib
import sys

PIECE_BYTES = 65_536


async def main(ports: list[str]) -> None:
    """Forward until the end of standard input."""
    servers = []
    for port in ports:
        here, _, target = port.partition("=")
        host, _, there = target.rpartition(":")
        servers.append(await asyncio.start_server(_forwarding_to(host, int(there)), "127.0.0.1", int(here)))
    print("forwards", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for server in servers:
        server.close()


def _forwarding_to(host: str, port: int):
    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            other_reader, other_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, other_writer), _copy(other_reader, writer))

    return forward


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(PIECE_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
