"""Applies the quotas under /config/users and /config/clients to the clients of this broker.

Kafka's UserConfigHandler and ClientIdConfigHandler. Made by the server before it listens; changes come from `dynamic_config`. A new session
reads all quotas again, since notifications may be gone after a long disconnection.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from broker.configuration.dynamic_config import DynamicConfig
from broker.quotas.client_quotas import ClientQuotas
from broker.quotas.quota_bounds import ABSENT, Entity
from broker.quotas.quota_type import QUOTA_KEYS, QuotaType
from controller.admin.config_admin import ConfigAdmin
from controller.znodes.layout import DEFAULT_ENTITY, desanitize

logger = logging.getLogger(__name__)

USERS = "users"
CLIENTS = "clients"

_WHOLE = frozenset({QuotaType.PRODUCE, QuotaType.FETCH})
"""Quotas that are whole numbers."""


class StoredQuotas:
    """See the module. Changes are applied from construction on."""

    def __init__(self, admin: ConfigAdmin, dynamic_config: DynamicConfig, quotas: ClientQuotas) -> None:
        self._admin = admin
        self._dynamic_config = dynamic_config
        self._quotas = quotas
        self._limited: set[Entity] = set()
        """The entities that have a quota."""
        dynamic_config.on_entity_change(USERS, self._on_user)
        dynamic_config.on_entity_change(CLIENTS, self._on_client)
        dynamic_config.on_reading_again(self._read_all)

    async def load(self) -> None:
        """Apply the stored quotas. Raises StoreError, MalformedZNode."""
        await self._dynamic_config.undisturbed(self._read_all)

    async def _read_all(self) -> None:
        """Apply the stored quotas, and remove all others."""
        clients = await self._admin.read_all(CLIENTS)
        users = await self._admin.read_all(USERS) | await self._admin.read_user_clients()
        former, self._limited = self._limited, set()
        for name, config in clients.items():
            self._on_client(name, config)
        for name, config in users.items():
            self._on_user(name, config)
        for entity in former - self._limited:
            self._set(entity, {})

    def _on_client(self, name: str, config: Mapping[str, str]) -> None:
        self._set((ABSENT, _name(name)), _bounds(f"client id {name}", config))

    def _on_user(self, name: str, config: Mapping[str, str]) -> None:
        """`name` is that of a user, or `user/clients/client-id`."""
        user, separator, client_id = name.partition(f"/{CLIENTS}/")
        self._set((_name(user), _name(client_id) if separator else ABSENT), _bounds(f"user {name}", config))

    def _set(self, entity: Entity, bounds: Mapping[QuotaType, float]) -> None:
        if bounds:
            self._limited.add(entity)
        else:
            self._limited.discard(entity)
        self._quotas.set(entity, bounds)


def _name(node: str) -> str | None:
    return None if node == DEFAULT_ENTITY else desanitize(node)


def _bounds(entity: str, config: Mapping[str, str]) -> dict[QuotaType, float]:
    bounds: dict[QuotaType, float] = {}
    for quota, key in QUOTA_KEYS.items():
        text = config.get(key)
        if text is None:
            continue
        try:
            bounds[quota] = int(text) if quota in _WHOLE else float(text)
        except ValueError:
            logger.error("quota of %s: %s=%s is not a number; it is ignored, set it again", entity, key, text)
    return bounds
