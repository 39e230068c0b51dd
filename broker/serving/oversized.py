"""Refuses requests of group members that are larger than the metadata of a whole group may be, before their bytes are copied.

Copying 40 MB takes 20 ms, in which no other client is served, and a member's metadata would be copied twice.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.broker.network.offenders import Offenders
from ottla.config.keys.own import OTTLA_GROUP_MAX_METADATA_BYTES
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection
    from ottla.broker.request.services import Services

logger = logging.getLogger(__name__)

OTHER_BYTES: Final = 256 * 1024
"""More than all names and numbers of such a request take together, bytes."""
CODES: Final[Mapping[int, ErrorCode]] = {
    ApiKey.JOIN_GROUP: ErrorCode.GROUP_MAX_SIZE_REACHED,
    ApiKey.SYNC_GROUP: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The error in the answer to a refused request. Apache Kafka answers a SyncGroup thus whose assignments are too large for a record."""


class OversizedRequests:
    """The refusals of one broker."""

    __slots__ = ("_offenders", "_services")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._offenders = Offenders(logger.warning, "requests were refused")

    def error_of(self, api_key: int, size: int, connection: Connection) -> ErrorCode:
        """The error with which a request of `size` bytes is refused, after a line in the log; NONE if it may be read."""
        code = CODES.get(api_key)
        if code is None or size <= self._services.config[OTTLA_GROUP_MAX_METADATA_BYTES] + OTHER_BYTES:
            return ErrorCode.NONE
        client = connection.client
        self._offenders.report(
            client.client_host,
            f"{client.connection_id} (client id {client.client_id}): a {ApiKey(api_key).name} of {size} bytes is refused, since it is "
            f"larger than {OTTLA_GROUP_MAX_METADATA_BYTES.name}={self._services.config[OTTLA_GROUP_MAX_METADATA_BYTES]} allows",
            self._services.clock.monotonic(),
        )
        return code
