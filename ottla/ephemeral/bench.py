"""Wires the parts of an ephemeral broker: its environment with faults, the watch over its parent, and the commands of its test."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.broker.process import say
from ottla.ephemeral.control import Control
from ottla.ephemeral.faults import Faults, FaultyEnvironment
from ottla.ephemeral.parent import Parent

if TYPE_CHECKING:
    from ottla.broker.server import Broker

logger = logging.getLogger(__name__)


class Bench:
    """See the module. The broker stops at once when its parent has ended."""

    def __init__(self, stop: asyncio.Event, forced: asyncio.Event) -> None:
        self._faults = Faults()
        self.environment = FaultyEnvironment(self._faults)
        self._control: Control | None = None
        self._early: list[bytes] = []
        """Commands that came before the broker was ready."""
        self._stop = stop
        self._forced = forced
        self._parent = Parent(self._on_parent_gone, self._on_line)
        self._parent.watch()

    def on_ready(self, addresses: list[str], broker: Broker) -> None:
        """Clients are served: carry out commands from now on."""
        self._control = Control(self._faults, addresses[0].partition("://")[2], broker, say)
        asyncio.get_running_loop().call_soon(self._carry_out_early)

    def close(self) -> None:
        """Stop listening."""
        self._parent.close()

    def _on_line(self, line: bytes) -> None:
        if self._control is None:
            self._early.append(line)
        else:
            self._control.on_line(line)

    def _carry_out_early(self) -> None:
        for line in self._early:
            self._on_line(line)
        self._early.clear()

    def _on_parent_gone(self) -> None:
        logger.info("the process that started this broker has ended; the broker stops")
        self._forced.set()
        self._stop.set()
