"""Logs the decisions of the authorizer in the format of Apache Kafka's logger `kafka.authorizer.logger`.

A refusal is a line at INFO, a permission a line at DEBUG. A decision that only filters a listing, or fills a field of authorized
operations, is a line at TRACE. Lines at INFO are limited per host. While a level is off, its lines are not formatted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.protocol.acls import Operation, PatternType, ResourceType, camel_case
from ottla.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from ottla.broker.security.client import Client

logger = logging.getLogger("kafka.authorizer.logger")

TRACE: Final = 5
"""Kafka's level below DEBUG, as the resource BROKER_LOGGER numbers it."""


class AuditLog:
    """See the module."""

    __slots__ = ("_report",)

    def __init__(self, report: Callable[[str, str], None]) -> None:
        """`report` logs a line at INFO, which is about the host before it, unless the host had many lately."""
        self._report = report

    @property
    def logs_allowed(self) -> bool:
        """Whether permissions are logged."""
        return logger.isEnabledFor(logging.DEBUG)

    def log(
        self, client: Client, operation: int, resource_type: int, name: str, allowed: bool, log_if_allowed: bool, log_if_denied: bool
    ) -> None:
        """Log one decision, for the request that `client` has sent last. Without one of the last two arguments it is a line at TRACE."""
        self._log(client, operation, resource_type, PatternType.LITERAL, name, 1, allowed, log_if_allowed if allowed else log_if_denied)

    def log_any(self, client: Client, operation: int, resource_type: int, allowed: bool) -> None:
        """Log the decision about any resource of a type, in Apache Kafka's format."""
        self._log(client, operation, resource_type, PatternType.UNKNOWN, "NONE", 0, allowed, True)

    def _log(
        self,
        client: Client,
        operation: int,
        resource_type: int,
        pattern_type: PatternType,
        name: str,
        references: int,
        allowed: bool,
        is_asked_for: bool,
    ) -> None:
        level = TRACE if not is_asked_for else logging.DEBUG if allowed else logging.INFO
        if not logger.isEnabledFor(level):
            return
        line = (
            f"Principal = {client.principal} is {'Allowed' if allowed else 'Denied'} Operation = {camel_case(Operation(operation))} "
            f"from host = {client.java_host} "
            f"on resource = {camel_case(ResourceType(resource_type))}:{pattern_type.name}:{name} "
            f"for request = {camel_case(ApiKey(client.api_key))} with resourceRefCount = {references}"
        )
        if not line.isprintable():  # names come from clients, and must not look like lines of their own
            line = ascii(line)[1:-1]
        if level == logging.INFO:
            self._report(client.client_host, line)
        else:
            logger.log(level, "%s", line)
