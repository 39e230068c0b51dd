"""Runs an ephemeral broker in the process of its test, for `ottla.testing`.

The event loop, the garbage collector, the signals and the log belong to the test, and are not changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ottla.broker.server import Broker, CannotStart
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.loader import check_known
from ottla.ephemeral.control import ERRORS, commands_on_loop, one_line
from ottla.ephemeral.faults import Faults, FaultyEnvironment
from ottla.ephemeral.settings import Ephemeral


class Refused(Exception):
    """One line: the refused command, and the reason."""


class _SharedProcess(FaultyEnvironment):
    is_process = False


class InProcessBroker:
    """See the module."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Chooses the directory. Raises Refused for a name that no key has."""
        try:
            check_known(settings)
        except ConfigError as error:
            raise Refused(str(error)) from None
        self._ephemeral = Ephemeral(settings)
        self._faults = Faults()
        self._broker: Broker | None = None
        self._address = ""
        """host:port, which stays the same over restarts."""
        self._listeners: str | None = None
        """The listeners with the ports that they got at the first start."""
        self._commands: dict[str, Callable[..., object]] = {}
        self._waiting: set[asyncio.Future[object]] = set()
        """Outcomes of commands that clients carry out in threads."""
        self._ending: asyncio.Task[None] | None = None
        """Stops a broker that cannot continue."""

    async def start(self) -> str:
        """Start the broker; returns host:port for clients. Raises Refused, and leaves nothing behind then."""
        try:
            return await self._start()
        except BaseException:
            self._ephemeral.close()
            raise

    async def restart(self) -> None:
        """Stop the broker and start it again, with its data at its address, without faults. Raises Refused."""
        await self._stop()
        self._faults.heal()
        await self._start()

    async def close(self) -> None:
        """Stop the broker, and remove its directory unless the settings name it."""
        try:
            await self._stop()
        finally:
            self._ephemeral.close()

    async def ask(self, do: str, **arguments: Any) -> object:
        """Carry out a command of `ottla.ephemeral.control`. Raises Refused."""
        if self._broker is None:
            raise self._has_ended()
        command = self._commands.get(do)
        try:
            found = self._as_client(do, arguments) if command is None else command(**arguments)
            return await found if asyncio.iscoroutine(found) else found
        except ERRORS as error:
            raise Refused(one_line(error)) from None

    async def _as_client(self, do: str, arguments: dict[str, Any]) -> object:
        """Carry out a command of a client in a thread. The end of the broker ends the wait. Raises Refused, and what ERRORS lists."""
        from ottla.ephemeral.client_commands import carry_out

        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[object] = loop.create_future()
        self._waiting.add(outcome)

        def work() -> None:
            try:
                settle = partial(_settle, outcome, carry_out(do, self._address, arguments, self._commands), None)
            except Exception as error:
                settle = partial(_settle, outcome, None, error)
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle)

        # A daemon thread: a client may retry for half a minute to reach a stopped broker, and must not delay the exit.
        threading.Thread(target=work, daemon=True).start()
        try:
            return await outcome
        finally:
            self._waiting.discard(outcome)

    async def _start(self) -> str:
        properties = dict(self._ephemeral.properties)
        if self._listeners is not None:
            properties["listeners"] = self._listeners
        try:
            broker = Broker(BrokerConfig(properties), _SharedProcess(self._faults))
            addresses = await broker.start()
        except (ConfigError, CannotStart) as error:
            raise Refused(one_line(error)) from None
        broker.on_fatal = self._on_fatal
        self._broker = broker
        self._address = addresses[0].partition("://")[2]
        if "advertised.listeners" not in properties:  # those that are advertised may be a proxy's
            self._listeners = ",".join(addresses)
        self._commands = commands_on_loop(self._faults, broker)
        return self._address

    def _on_fatal(self) -> None:
        """The broker cannot continue: its last log directory failed."""
        broker, self._broker = self._broker, None
        if broker is not None:
            self._ending = asyncio.get_running_loop().create_task(broker.stop())
        for outcome in self._waiting:
            _settle(outcome, None, self._has_ended())

    def _has_ended(self) -> Refused:
        return Refused(f"broker {self._address} has ended by itself; call restart()")

    async def _stop(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.stop()
        if self._ending is not None:
            await self._ending
            self._ending = None


def _settle(outcome: asyncio.Future[object], result: object, error: Exception | None) -> None:
    """Let the caller of a command continue, unless it has stopped waiting."""
    if outcome.done():
        return
    if error is None:
        outcome.set_result(result)
    else:
        outcome.set_exception(error)
