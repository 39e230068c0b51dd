"""Reads all ACLs, delegation tokens, users or configurations again when a new session with the metadata store begins, until that succeeds.

Notifications may be gone after a long disconnection. Until everything is read again, the broker decides by what it knew before: an ACL
that was added meanwhile, and forbids something, does not count.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from ottla.controller.errors import StoreError
from ottla.controller.znodes.znode_json import MalformedZNode

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS: Final = 0.5
"""Pause before the second attempt, seconds; it doubles with each attempt."""

LONGEST_PAUSE_SECONDS: Final = 30.0
"""Longest pause between two attempts, seconds; a node that only an operator can repair is read as often."""


class NotAllRead(Exception):
    """Malformed nodes were left out, and logged. All others are read."""


class MalformedNodes:
    """The malformed nodes that the last reading has left out. Each is logged once, as long as it has the same fault."""

    def __init__(self, effect: str) -> None:
        """`effect` names in logs an entity (`%s`) and what its malformed node leads to."""
        self._effect = effect
        self._logged: dict[str, str] = {}

    def report(self, malformed: Mapping[str, MalformedZNode]) -> None:
        """Report all malformed nodes of a reading, by entity. Raises NotAllRead if there are any."""
        for name, error in malformed.items():
            if self._logged.get(name) != error.reason:
                logger.error("%s: %s", self._effect % name, error)
        self._logged = {name: error.reason for name, error in malformed.items()}
        if malformed:
            raise NotAllRead


class Rereading:
    """See the module."""

    def __init__(self, subject: str, read_all: Callable[[], Awaitable[None]]) -> None:
        """`subject` names in logs what is read. `read_all` may raise StoreError, MalformedZNode and NotAllRead."""
        self._subject = subject
        self._read_all = read_all
        self._reason = ""
        """Why the last attempt failed, so that each reason is logged once."""
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Read now. If that fails, a task reads again after growing pauses, until it succeeds or this is called again."""
        await self.stop()
        self._reason = ""
        if not await self._succeeds():
            self._begin_to_repeat()

    async def begin_later(self) -> None:
        """Read again after growing pauses, because a reading has left malformed nodes out."""
        await self.stop()
        self._reason = ""
        self._begin_to_repeat()

    def _begin_to_repeat(self) -> None:
        if self._task is not None and not self._task.done():
            return  # another call of `begin` failed meanwhile
        self._task = asyncio.get_running_loop().create_task(self._repeat(), name=f"{self._subject}-again")

    async def stop(self) -> None:
        """Read no more. May be called twice."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _repeat(self) -> None:
        pause_s = FIRST_PAUSE_SECONDS
        while True:
            await asyncio.sleep(pause_s)
            if await self._succeeds():
                logger.info("the %s are read again", self._subject)
                return
            pause_s = min(LONGEST_PAUSE_SECONDS, 2 * pause_s)

    async def _succeeds(self) -> bool:
        try:
            await self._read_all()
        except NotAllRead:
            return False
        except (StoreError, MalformedZNode) as error:
            if str(error) != self._reason:
                self._reason = str(error)
                logger.error("the %s cannot be read again (%s); trying again, and the old ones count until then", self._subject, error)
            return False
        except Exception:  # a fault of this broker, which must end neither the attempts nor the registration of the broker
            logger.exception("the %s cannot be read again; trying again, and the old ones count until then", self._subject)
            return False
        return True
