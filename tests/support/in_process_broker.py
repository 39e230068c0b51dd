"""Runs a broker in the test's own process, on a loop in its own thread, for tests that inspect or change its state.

`with a_broker_in_process(tmp_path) as broker:` starts it on a free port; `broker.run(function)` calls a plain or async function on its
loop, which is the only way to touch `ottla.broker.request.services`.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from ottla.broker.environment import Environment
from ottla.broker.request.services import Services
from ottla.broker.server import Broker
from ottla.config.broker import BrokerConfig

SECONDS = 90.0


class InProcessBroker:
    """A running broker. `port` is that of its only listener."""

    def __init__(self, directory: Path, environment: Environment | None = None, **config: object) -> None:
        """`config` has keys with underscores for dots: `num_partitions=3`. `environment` replaces the real machine."""
        properties = {"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0"}
        properties |= {name.replace("_", "."): str(value) for name, value in config.items()}
        self.config = BrokerConfig(properties)
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker", daemon=True)
        self._thread.start()
        self.broker: Broker = self.run(lambda: Broker(self.config, environment))
        self.run(self.broker.start)
        self.port = int(self.broker.addresses[0].rpartition(":")[2])

    @property
    def services(self) -> Services:
        """The parts of the broker; only for functions that `run` calls."""
        return self.broker.services

    @property
    def bootstrap(self) -> str:
        """host:port for clients."""
        return f"127.0.0.1:{self.port}"

    def run(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Calls `function(*arguments)` on the broker's loop and waits for what it returns."""

        async def call() -> Any:
            found = function(*arguments)
            return await found if inspect.isawaitable(found) else found

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(SECONDS)

    def stop(self) -> None:
        """Stop the broker and its loop."""
        try:
            self.run(self.broker.stop)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(SECONDS)
            self._loop.close()


@contextmanager
def a_broker_in_process(directory: Path, environment: Environment | None = None, **config: object) -> Iterator[InProcessBroker]:
    """A running broker, stopped at the end."""
    broker = InProcessBroker(directory, environment, **config)
    try:
        yield broker
    finally:
        broker.stop()
