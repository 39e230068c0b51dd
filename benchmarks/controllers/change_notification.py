"""Measures how long brokers that share a metadata file take to learn of a change: `python -m benchmarks.controllers.change_notification`.

One process writes a znode, another watches it. The time runs from just before the write until the watch has fired, on an idle store.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ottla.controller.store.embedded_store import EmbeddedStore
from ottla.controller.store.metadata_store import WatchedEvent

PATH = "/changed"
PAUSE_S = 0.03
LIMIT_MS = 50


class RealClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


async def write(path: str, changes: int) -> None:
    """The other process: each change holds the time (CLOCK_MONOTONIC, which processes share) at which it began."""
    store = EmbeddedStore(path, RealClock())
    await store.open_session()
    for _ in range(changes):
        await asyncio.sleep(PAUSE_S)
        await store.set(PATH, str(time.monotonic_ns()).encode())
    await store.close()


async def watch(path: str, changes: int) -> list[float]:
    """Milliseconds, sorted."""
    store = EmbeddedStore(path, RealClock())
    await store.open_session()
    await store.create(PATH, b"0")
    fired: asyncio.Queue[int] = asyncio.Queue()

    def on_change(_: WatchedEvent) -> None:
        fired.put_nowait(time.monotonic_ns())

    await store.get(PATH, on_change)
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.controllers.change_notification", "--writes-to", path, "--changes", str(changes)
    )
    ended = asyncio.ensure_future(writer.wait())
    found = []
    while not ended.done() or not fired.empty():
        firing = asyncio.ensure_future(fired.get())
        await asyncio.wait((ended, firing), return_when=asyncio.FIRST_COMPLETED)
        if not firing.done():
            firing.cancel()
            break
        data, _ = await store.get(PATH, on_change)  # a change that comes before this tells of itself by the next
        found.append((firing.result() - int(data or b"0")) / 1e6)
    await store.close()
    return sorted(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. Returns the exit code: 1 when one took longer than Ottla promises."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.controllers.change_notification", description=__doc__.partition("\n")[0])
    parser.add_argument("--changes", type=int, default=500)
    parser.add_argument("--writes-to", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.writes_to:
        asyncio.run(write(asked.writes_to, asked.changes))
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        found = asyncio.run(watch(str(Path(scratch, "metadata.sqlite3")), asked.changes))
    p50, p99 = found[len(found) // 2], found[len(found) * 99 // 100]
    Console().print(f"{len(found)} changes: p50 {p50:.1f} ms, p99 {p99:.1f} ms, longest {found[-1]:.1f} ms (promised: {LIMIT_MS})")
    return int(found[-1] > LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())
