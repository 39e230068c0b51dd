"""Changes the quotas of users, client ids and addresses (KIP-546, KIP-612). Kafka's ZkAdminManager.alterClientQuotas.

Works on any broker. Called by the request handler. `broker/handlers/configs/describe_client_quotas.py` reads the stored
quotas; listeners to changes of these entities enforce them.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple

from ottla.controller.admin.config_admin import ConfigAdmin
from ottla.controller.errors import ControllerError, InvalidAdminRequest
from ottla.controller.znodes.layout import DEFAULT_ENTITY, can_name_a_node, sanitize
from ottla.pauses import pause

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
_LONG_MAX: Final = 2**63 - 1
_INT_MAX: Final = 2**31 - 1
_WHOLE: Final = {
    "producer_byte_rate": ("LONG", _LONG_MAX),
    "consumer_byte_rate": ("LONG", _LONG_MAX),
    CONNECTION_CREATION_RATE: ("INT", _INT_MAX),
}
_OF_CLIENTS: Final = frozenset({"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"})
_OF_USERS: Final = _OF_CLIENTS | {"SCRAM-SHA-256", "SCRAM-SHA-512"}
"""In Apache Kafka credentials are also configurations of users; they are not numbers, so setting one through this
request fails."""
_OF_IPS: Final = frozenset({CONNECTION_CREATION_RATE})
QUOTAS: Final = _OF_CLIENTS | _OF_IPS
"""The keys of all quotas."""
_EPSILON: Final = 1e-6

Entity = Mapping[str, str | None]
"""Entity name by entity type; None is the default entity of that type."""

CanResolve = Callable[[str], Awaitable[bool]]
"""Whether a host is an IP address or a name that resolves to one."""


class QuotaOp(NamedTuple):
    """Sets a quota, or removes it when the value is None."""

    key: str
    value: float | None


async def alter_client_quotas(
    admin: ConfigAdmin, entity: Entity, ops: Iterable[QuotaOp], can_resolve: CanResolve, *, validate_only: bool
) -> None:
    """Change the quotas of one entity. Raises InvalidAdminRequest, or ControllerError where Apache Kafka has no error
    text."""
    entity_type, name, keys = _place(entity)
    if entity_type == "ips" and name != DEFAULT_ENTITY and not await can_resolve(name):
        raise InvalidAdminRequest(f"{name} is not a valid IP or resolvable host.")

    wanted: dict[str, str | None] = {}
    for key, value in ops:
        await pause()
        if value is not None and key not in keys:
            raise InvalidAdminRequest(f"Invalid configuration key {key}")
        wanted[key] = None if value is None else _text(key, value)

    def change(current: dict[str, str]) -> dict[str, str]:
        for key, text in wanted.items():
            if text is None:
                current.pop(key, None)
            else:
                current[key] = text
        return current

    await admin.alter_entity_config(entity_type, name, change, validate_only=validate_only)


def _place(entity: Entity) -> tuple[str, str, frozenset[str]]:
    """The type of configuration, the sanitized entity name, and the keys that the entity may have."""
    if not entity:
        raise InvalidAdminRequest("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidAdminRequest(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidAdminRequest(f"Empty {kind} not supported")
        if name is not None and kind != IP and not can_name_a_node(sanitize(name)):
            raise InvalidAdminRequest(f"{name} cannot be the name of a {kind}: ZooKeeper reads it as a step of a path")
    names = {kind: DEFAULT_ENTITY if name is None else _node(kind, name) for kind, name in entity.items()}
    if IP in names:
        if len(names) > 1:
            raise InvalidAdminRequest("Invalid quota entity combination, IP entity should not be used with user/client ID entity.")
        return "ips", names[IP], _OF_IPS
    if USER not in names:
        return "clients", names[CLIENT_ID], _OF_CLIENTS
    if CLIENT_ID in names:
        return "users", f"{names[USER]}/clients/{names[CLIENT_ID]}", _OF_USERS
    return "users", names[USER], _OF_USERS


def _node(kind: str, name: str) -> str:
    """The sanitized name. Colons of an address stay: Apache Kafka reads its node as it is, and does not start with `%3A` in it."""
    return sanitize(name).replace("%3A", ":") if kind == IP else sanitize(name)


def _text(key: str, value: float) -> str:
    """The value in its stored form."""
    if key not in QUOTAS:
        raise ControllerError(f"{key} is not a quota")
    if key not in _WHOLE:
        return java_double(value)
    kind, largest = _WHOLE[key]
    if math.isnan(value):
        return "0"
    # Truncated towards zero, as in Java, so that no negative number passes the check.
    whole = -largest - 1 if value < -largest else largest if value > largest else int(value + _EPSILON)
    if abs(float(whole) - value) > _EPSILON:
        raise InvalidAdminRequest(f"Configuration {key} must be a {kind} value")
    return str(whole)


def java_double(value: float) -> str:
    """A number as Java's Double.toString writes it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    size = abs(value)
    if size == 0:
        return f"{sign}0.0"
    digits, _, power = f"{size!r}".partition("e")
    whole, _, rest = digits.partition(".")
    exponent = len(whole) - 1 + int(power or 0)
    significant = (whole + rest).lstrip("0")
    exponent -= len(whole + rest) - len(significant)
    significant = significant.rstrip("0")
    if -3 <= exponent < 7:
        if exponent < 0:
            return f"{sign}0.{'0' * (-exponent - 1)}{significant}"
        padded = significant.ljust(exponent + 1, "0")
        return f"{sign}{padded[: exponent + 1]}.{padded[exponent + 1 :] or '0'}"
    return f"{sign}{significant[0]}.{significant[1:] or '0'}E{exponent}"
