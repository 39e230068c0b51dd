"""Logs which clients ask for a version that the features of the cluster do not allow, with the remedy: one line per client and hour.

Such a client often stays silent itself: librdkafka looks for another coordinator again and again. A client chooses its id, so a host has a
few lines a minute, and the beginning of an id stands for the whole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.broker.network.offenders import Offenders

if TYPE_CHECKING:
    from ottla.broker.security.client import Client

logger = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 3600.0
"""Shortest time between two lines about a client, seconds."""
MAX_ID_CHARS: Final = 100
"""Characters of a client id that are kept and logged."""
MAX_CLIENTS: Final = 1000
"""Clients whose last line is remembered; the one with the oldest line is forgotten first."""


class RefusedProtocols:
    """Remembers about whom there was a line lately."""

    __slots__ = ("_logged_at", "_now", "_offenders")

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` is a monotonic clock, in seconds."""
        self._now = now
        self._offenders = Offenders(logger.warning, "clients asked for what no feature of the cluster allows")
        self._logged_at: dict[tuple[str, str | None], float] = {}

    def report(self, client: Client, asked: str, needs: str) -> None:
        """A client has `asked` for something, such as an API with its version, that `needs` something."""
        now = self._now()
        client_id = None if client.client_id is None else client.client_id[:MAX_ID_CHARS]
        who = client.client_host, client_id
        if (last := self._logged_at.pop(who, None)) is not None and now - last < INTERVAL_SECONDS:
            self._logged_at[who] = last
            return
        if len(self._logged_at) >= MAX_CLIENTS:
            del self._logged_at[next(iter(self._logged_at))]
        self._logged_at[who] = now
        self._offenders.report(
            client.client_host,
            f"{client.connection_id} (client id {client_id!r}, {client.client_software_name} {client.client_software_version}) asked for "
            f"{asked}, which needs {needs}: run `ottla features upgrade`",
            now,
        )
