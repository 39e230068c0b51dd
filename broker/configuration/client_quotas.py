"""Applies the quotas under /config/users and /config/clients to the clients of this broker.

Kafka's UserConfigHandler and ClientIdConfigHandler. Made by the server before it listens; changes come from `dynamic_config`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from broker.configuration.dynamic_config import DynamicConfig
from broker.quotas.client_quotas import ClientQuotas
from broker.quotas.quota_bounds import ABSENT
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
        self._quotas = quotas
        dynamic_config.on_entity_change(USERS, self._on_user)
        dynamic_config.on_entity_change(CLIENTS, self._on_client)

    async def load(self) -> None:
        """Apply the stored quotas. Raises StoreError."""
        for name, config in (await self._admin.read_all(CLIENTS)).items():
            self._on_client(name, config)
        for name, config in (await self._admin.read_all(USERS)).items():
            self._on_user(name, config)
        for name, config in (await self._admin.read_all_user_clients()).items():
            self._on_user(name, config)

    def _on_client(self, name: str, config: Mapping[str, str]) -> None:
        self._quotas.set((ABSENT, _name(name)), _bounds(f"client id {name}", config))

    def _on_user(self, name: str, config: Mapping[str, str]) -> None:
        """`name` is that of a user, or `user/clients/client-id`."""
        user, separator, client_id = name.partition(f"/{CLIENTS}/")
        self._quotas.set((_name(user), _name(client_id) if separator else ABSENT), _bounds(f"user {name}", config))


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
