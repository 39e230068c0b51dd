"""Applies the quotas under /config/users and /config/clients to the clients of this broker.

Kafka's UserConfigHandler and ClientIdConfigHandler. Made by the server before it listens; changes come from `dynamic_config`. A new session
reads all quotas again, since notifications may be gone after a long disconnection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from ottla.broker.configuration.dynamic_config import DynamicConfig
from ottla.broker.quotas.client_quotas import ClientQuotas, Windows
from ottla.broker.quotas.quota_bounds import ABSENT, Entity
from ottla.broker.quotas.quota_type import QUOTA_KEYS, QuotaType
from ottla.broker.security.rereading import MalformedNodes
from ottla.config.broker import BrokerConfig
from ottla.config.keys.metrics import (
    CONTROLLER_QUOTA_WINDOW_NUM,
    CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS,
    METRICS_NUM_SAMPLES,
    METRICS_SAMPLE_WINDOW_MS,
    QUOTA_WINDOW_NUM,
    QUOTA_WINDOW_SIZE_SECONDS,
)
from ottla.controller.admin.config_admin import ConfigAdmin
from ottla.controller.znodes.layout import DEFAULT_ENTITY, desanitize
from ottla.controller.znodes.znode_json import MalformedZNode

logger = logging.getLogger(__name__)

USERS = "users"
CLIENTS = "clients"

_WHOLE = frozenset({QuotaType.PRODUCE, QuotaType.FETCH})
"""Quotas that are whole numbers."""


def configured_quotas(config: BrokerConfig, clock_ns: Callable[[], int]) -> ClientQuotas:
    """No quotas yet, with the configured windows."""
    return ClientQuotas(
        Windows.of(config[QUOTA_WINDOW_NUM], config[QUOTA_WINDOW_SIZE_SECONDS] * 1000),
        Windows.of(config[CONTROLLER_QUOTA_WINDOW_NUM], config[CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS] * 1000),
        Windows.of(config[METRICS_NUM_SAMPLES], config[METRICS_SAMPLE_WINDOW_MS]),
        clock_ns,
    )


class StoredQuotas:
    """See the module. Changes are applied from construction on."""

    def __init__(self, admin: ConfigAdmin, dynamic_config: DynamicConfig, quotas: ClientQuotas) -> None:
        self._admin = admin
        self._dynamic_config = dynamic_config
        self._quotas = quotas
        self._limited: dict[Entity, Mapping[QuotaType, float]] = {}
        """The quotas of the entities that have any."""
        self._malformed = MalformedNodes("%s has its former quotas, or none if they were never read")
        dynamic_config.on_entity_change(USERS, self._on_user)
        dynamic_config.on_entity_change(CLIENTS, self._on_client)
        dynamic_config.on_reading_again(self._read_all)

    async def load(self) -> None:
        """Apply the stored quotas. Raises StoreError."""
        await self._dynamic_config.read_first(self._read_all)

    async def _read_all(self) -> None:
        """Apply the stored quotas, and remove all others. Those of a malformed node stay as they are. Raises StoreError,
        NotAllRead."""
        bad_clients: dict[str, MalformedZNode] = {}
        bad_users: dict[str, MalformedZNode] = {}
        clients = await self._admin.read_all(CLIENTS, bad_clients)
        users = await self._admin.read_all(USERS, bad_users) | await self._admin.read_user_clients(malformed=bad_users)
        unread = {*map(_client_entity, bad_clients), *map(_user_entity, bad_users)}
        for name, config in clients.items():
            self._on_client(name, config)
        for name, config in users.items():
            self._on_user(name, config)
        read = {*map(_client_entity, clients), *map(_user_entity, users)}
        for entity in self._limited.keys() - read - unread:
            self._set(entity, {})
        of_clients = {f"client id {name}": error for name, error in bad_clients.items()}
        self._malformed.report(of_clients | {f"user {name}": error for name, error in bad_users.items()})

    def _on_client(self, name: str, config: Mapping[str, str]) -> None:
        self._apply(f"client id {name}", _client_entity(name), config)

    def _on_user(self, name: str, config: Mapping[str, str]) -> None:
        self._apply(f"user {name}", _user_entity(name), config)

    def _apply(self, subject: str, entity: Entity, config: Mapping[str, str]) -> None:
        """Set the quotas of an entity. In place of a value that is no number the former one counts, if there is one."""
        bounds: dict[QuotaType, float] = {}
        for quota, key in QUOTA_KEYS.items():
            text = config.get(key)
            if text is None:
                continue
            try:
                bounds[quota] = int(text) if quota in _WHOLE else float(text)
            except ValueError:
                former = self._limited.get(entity, {}).get(quota)
                if former is not None:
                    bounds[quota] = former
                known = "there is none" if former is None else f"the former one, {former:g}, counts"
                logger.error("quota of %s: %s=%s is not a number; %s; set it again", subject, key, text, known)
        self._set(entity, bounds)

    def _set(self, entity: Entity, bounds: Mapping[QuotaType, float]) -> None:
        if bounds:
            self._limited[entity] = bounds
        else:
            self._limited.pop(entity, None)
        self._quotas.set(entity, bounds)


def _client_entity(name: str) -> Entity:
    return ABSENT, _name(name)


def _user_entity(name: str) -> Entity:
    """`name` is that of a user, or `user/clients/client-id`."""
    user, separator, client_id = name.partition(f"/{CLIENTS}/")
    return _name(user), _name(client_id) if separator else ABSENT


def _name(node: str) -> str | None:
    return None if node == DEFAULT_ENTITY else desanitize(node)
