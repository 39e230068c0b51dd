"""Declares `Broker`, a broker for tests: its addresses, its faults, and commands that prepare and inspect its topics."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pytest_ottla.helpers import Record
from pytest_ottla.orders import Orders
from pytest_ottla.process import BrokerProcess, Ended, OttlaError

__tracebackhide__ = True  # a failure shows the line of the test
__all__ = ["Broker", "OttlaError", "Record", "async_broker"]


class Broker(Orders):
    """One broker. It keeps its port and its data over `kill` and `restart`, and ends with this process."""

    def __init__(self, directory: Path, **config: object) -> None:
        """Starts a broker with its data in `directory`. Keys have underscores for dots: `num_partitions=3`. Raises OttlaError."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.log = directory / "broker.log"
        self._settings = {"log.dirs": str(directory / "data"), **{name.replace("_", "."): str(value) for name, value in config.items()}}
        self._process: BrokerProcess | None = None
        self._end = "was stopped"
        self._cut_off: list[int] = []
        self._listeners: str | None = None
        """The listeners with the ports that they got at the first start."""
        self.bootstrap_servers = ""
        self._start()

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---- the process

    @property
    def pid(self) -> int:
        """The process id. Raises OttlaError if the broker does not run."""
        return self._running().pid

    @property
    def broker_id(self) -> int:
        """The broker id."""
        found: int = self._running().described["broker_id"]
        return found

    @property
    def is_running(self) -> bool:
        """Whether the process lives; a paused one does."""
        return self._process is not None and self._process.is_running

    @property
    def is_paused(self) -> bool:
        """Whether the broker is paused."""
        return self._process is not None and self._process.is_paused

    def kill(self) -> None:
        """End the broker as a crash does (SIGKILL)."""
        self._running()
        self._finish(signal.SIGKILL, "was killed")

    def stop(self) -> None:
        """End the broker cleanly; does nothing if it does not run."""
        if self._process is not None:
            self._finish(signal.SIGTERM, "was stopped")

    def restart(self) -> None:
        """Start the broker again at the same address with the same data; stop it before if it runs."""
        self.stop()
        self._start()

    def pause(self) -> None:
        """Pause the broker (SIGSTOP), as a machine without processor time would."""
        self._running().pause()

    def resume(self) -> None:
        """End a pause."""
        self._running().resume()
        if self._cut_off:
            self._order_cut()

    # ---- faults

    def cut_off(self, broker_ids: Iterable[int]) -> None:
        """Answer no request of these brokers, also after a restart or a pause; see `Cluster.cut`."""
        self._cut_off = list(broker_ids)
        if self.is_running and not self.is_paused:
            self._order_cut()

    def heal(self) -> None:
        """End all faults, and start or resume a broker that does not run."""
        self._cut_off = []
        if self.is_paused and self.is_running:
            self.resume()
        if not self.is_running:
            self.restart()
        self.ask("heal")

    def ask(self, do: str, seconds: float = 0.0, **arguments: Any) -> Any:
        """See Helpers."""
        process = self._running()
        if process.is_paused:
            raise OttlaError(f"broker {self.bootstrap_servers} is paused; call resume() or heal()")
        try:
            return process.ask(do, seconds, **arguments)
        except Ended:
            self._finish(signal.SIGKILL, self._ended_by_itself)
            raise self._not_running() from None

    # ----

    def _start(self) -> None:
        settings = dict(self._settings)
        if self._listeners is not None:
            settings["listeners"] = self._listeners
        self._process = BrokerProcess(settings, self.log)
        self.bootstrap_servers = self._process.described["bootstrap_servers"]
        if "advertised.listeners" not in settings:  # those that are advertised may be a proxy's
            self._listeners = ",".join(self._process.described["listeners"])
        if self._cut_off:
            self._order_cut()

    def _order_cut(self) -> None:
        self.ask("cut", brokers=self._cut_off)

    def _finish(self, number: signal.Signals, how: str) -> None:
        process, self._process, self._end = self._process, None, how
        if process is not None:
            process.end(number)

    def _running(self) -> BrokerProcess:
        """The process. Raises OttlaError if there is none."""
        if self._process is not None and not self._process.is_running:
            self._finish(signal.SIGKILL, self._ended_by_itself)
        if self._process is None:
            raise self._not_running()
        return self._process

    @property
    def _ended_by_itself(self) -> str:
        return f"has ended by itself, see {self.log}"

    def _not_running(self) -> OttlaError:
        return OttlaError(f"broker {self.bootstrap_servers} {self._end}; call restart() or heal()")


@asynccontextmanager
async def async_broker(directory: Path, **config: object) -> AsyncIterator[Broker]:
    """A broker for a program with asyncio: `async with async_broker(tmp_path) as broker`. The event loop goes on while it starts and stops.

    Raises OttlaError.
    """
    import asyncio  # takes longer than the other imports, and few tests need it

    starting = asyncio.create_task(asyncio.to_thread(partial(Broker, directory, **config)))
    try:
        yield await asyncio.shield(starting)
    finally:
        # Also of a start that the program no longer waits for.
        await asyncio.to_thread((await starting).stop)
