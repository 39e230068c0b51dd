"""Describes and changes the quotas of users, client ids and addresses (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.errors import check
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    OpData,
)
from ottla.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest, DescribeClientQuotasResponse

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

_EXACT, _DEFAULT = 0, 1

Entity = Mapping[str, str | None]
"""Name by type of entity; None is the default of that type."""


class Quotas(NamedTuple):
    """The quotas of one entity, by key."""

    entity: dict[str, str | None]
    values: dict[str, float]


def describe_quotas(cluster: Cluster, entity: Entity, *, strict: bool = False) -> list[Quotas]:
    """The quotas of all entities that have these names, in a stable order. With `strict` those of this entity alone. Raises Refused."""
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name) for kind, name in entity.items()
        ],
        strict=strict,
    )

    def attempt() -> list[Quotas]:
        response = cluster.ask_any(request, DescribeClientQuotasResponse)
        check("quotas", response.error_code, response.error_message)
        found = [
            Quotas(
                {each.entity_type: each.entity_name for each in entry.entity},
                {each.key: each.value for each in sorted(entry.values, key=lambda value: value.key)},
            )
            for entry in response.entries or ()
        ]
        return sorted(found, key=_order)

    return cluster.until_done(attempt)


def alter_quotas(cluster: Cluster, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool = False) -> None:
    """Set quotas of one entity, or remove those that are None; all or none. Raises Refused."""
    request = AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequestEntryData(
                entity=[AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                ops=[OpData(key=key, value=0.0 if value is None else value, remove=value is None) for key, value in changes.items()],
            )
        ],
        validate_only=validate_only,
    )

    def attempt() -> None:
        (entry,) = cluster.ask(cluster.any_connection, request, AlterClientQuotasResponse).entries
        check(name_of(entity), entry.error_code, entry.error_message)

    cluster.until_done(attempt)


def name_of(entity: Entity) -> str:
    """An entity as text, for people: `user alice, default client-id`."""
    return ", ".join(f"default {kind}" if name is None else f"{kind} {name}" for kind, name in entity.items())


def _order(quotas: Quotas) -> list[tuple[bool, bool, str]]:
    """Entities with a user first; the default of a type after its names."""
    entity = quotas.entity
    return [(kind not in entity, entity.get(kind) is None, entity.get(kind) or "") for kind in (USER, CLIENT_ID, IP)]
