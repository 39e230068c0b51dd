"""Runs an ephemeral broker in the process of its test, for `ottla.testing`.

The event loop, the garbage collector, the signals and the log are the test's, and are left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from broker.ephemeral.control import ERRORS, commands_on_loop, one_line
from broker.ephemeral.faults import Faults, FaultySurroundings
from broker.ephemeral.settings import Ephemeral
from broker.server import Broker, CannotStart
from config.broker import BrokerConfig
from config.errors import ConfigError


class Refused(Exception):
    """One line: what was not done, and why."""


class _SharedProcess(FaultySurroundings):
    is_process = False


class InProcessBroker:
    """See the module."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._ephemeral = Ephemeral(settings)
        self._faults = Faults()
        self._broker: Broker | None = None
        self._address = ""
        """host:port, which stays the same over restarts."""
        self._commands: dict[str, Callable[..., object]] = {}
        self._ending: asyncio.Task[None] | None = None
        """Stops a broker that cannot go on."""

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
        """Carry out a command of `broker.ephemeral.control`. Raises Refused."""
        if self._broker is None:
            raise Refused(f"broker {self._address} has ended by itself; call restart()")
        command = self._commands.get(do)
        try:
            if command is not None:
                return command(**arguments)
            from broker.ephemeral.client_commands import carry_out

            return await asyncio.to_thread(carry_out, do, self._address, arguments)
        except ERRORS as error:
            raise Refused(one_line(error)) from None

    async def _start(self) -> str:
        properties = dict(self._ephemeral.properties)
        if self._address:
            properties["listeners"] = f"PLAINTEXT://{self._address}"
        try:
            broker = Broker(BrokerConfig(properties), _SharedProcess(self._faults))
            addresses = await broker.start()
        except (ConfigError, CannotStart) as error:
            raise Refused(one_line(error)) from None
        broker.on_fatal = self._on_fatal
        self._broker = broker
        self._address = addresses[0].partition("://")[2]
        self._commands = commands_on_loop(self._faults, lambda: sorted(broker.services.metadata.brokers))
        return self._address

    def _on_fatal(self) -> None:
        """The broker cannot go on: its last log directory failed."""
        broker, self._broker = self._broker, None
        if broker is not None:
            self._ending = asyncio.get_running_loop().create_task(broker.stop())

    async def _stop(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.stop()
        if self._ending is not None:
            await self._ending
            self._ending = None
