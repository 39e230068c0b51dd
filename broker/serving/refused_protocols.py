"""Logs which clients ask for a version that the features of the cluster do not allow, with the remedy: one line per client and hour.

Such a client often stays silent itself: librdkafka looks for another coordinator again and again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.broker.security.client import Client

logger = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 3600.0
"""Shortest time between two lines about a client, seconds."""
MAX_CLIENTS: Final = 1000
"""Clients whose last line is remembered; the one with the oldest line is forgotten first."""


class RefusedProtocols:
    """Remembers about whom there was a line lately."""

    __slots__ = ("_logged_at", "_now")

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` is a monotonic clock, in seconds."""
        self._now = now
        self._logged_at: dict[tuple[str, str | None], float] = {}

    def report(self, client: Client, asked: str, needs: str) -> None:
        """A client has `asked` for something, such as an API with its version, that `needs` something."""
        now = self._now()
        who = client.client_host, client.client_id
        if (last := self._logged_at.pop(who, None)) is not None and now - last < INTERVAL_SECONDS:
            self._logged_at[who] = last
            return
        if len(self._logged_at) >= MAX_CLIENTS:
            del self._logged_at[next(iter(self._logged_at))]
        self._logged_at[who] = now
        logger.warning(
            "%s (client id %r, %s %s) asked for %s, which needs %s: run `ottla features upgrade`",
            client.connection_id,
            client.client_id,
            client.client_software_name,
            client.client_software_version,
            asked,
            needs,
        )
