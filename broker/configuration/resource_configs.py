"""Keeps the configurations of all groups, or of all client metrics, which are below /config in the metadata store.

Made by the server before it listens; changes come from `dynamic_config`. A new session reads all again, since notifications may be gone
after a long disconnection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from ottla.broker.configuration.dynamic_config import DynamicConfig
from ottla.broker.security.rereading import MalformedNodes
from ottla.controller.admin.config_admin import ConfigAdmin
from ottla.controller.errors import NoNode, StoreError
from ottla.controller.znodes.layout import desanitize, sanitize
from ottla.controller.znodes.znode_json import MalformedZNode

logger = logging.getLogger(__name__)

GROUPS: Final = "groups"
CLIENT_METRICS: Final = "client-metrics"

_NOTHING: Final[Mapping[str, str]] = {}


class ResourceConfigs:
    """The configurations of one kind of resource, by its name."""

    def __init__(self, kind: str, admin: ConfigAdmin, dynamic_config: DynamicConfig) -> None:
        self._kind = kind
        self._admin = admin
        self._dynamic_config = dynamic_config
        self._malformed = MalformedNodes(f"{kind}: %s has its former configuration, or none if it was never read")
        self.configs: dict[str, Mapping[str, str]] = {}
        """The last known overrides of each resource that has any."""
        self._callbacks: list[Callable[[], None]] = []
        dynamic_config.on_entity_change(kind, self._on_change)
        dynamic_config.on_reading_again(self._read_all)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Have `callback` called after each change."""
        self._callbacks.append(callback)

    def of(self, name: str) -> Mapping[str, str]:
        """The overrides of a resource; none of one without a configuration."""
        return self.configs.get(name, _NOTHING)

    async def load(self) -> None:
        """Read the stored configurations. Raises StoreError."""
        await self._dynamic_config.read_first(self._read_all)

    async def read_again(self, name: str) -> None:
        """Apply the stored configuration of one resource: the notification of a change may not have come yet. After a failure the former
        configuration counts on."""

        async def read() -> None:
            config = await self._admin.read(self._kind, sanitize(name))
            if config != self.of(name):
                self._on_change(sanitize(name), config)

        try:
            await self._dynamic_config.undisturbed(read)
        except (StoreError, MalformedZNode) as error:
            logger.warning("the configuration of %s/%s cannot be read now: %s", self._kind, name, error)

    async def _read_all(self) -> None:
        """Raises StoreError, NotAllRead."""
        malformed: dict[str, MalformedZNode] = {}
        try:
            stored = await self._admin.read_all(self._kind, malformed)
        except NoNode:  # it has never been used
            stored = {}
        kept = {desanitize(name): self.of(desanitize(name)) for name in malformed}
        self.configs = {desanitize(name): config for name, config in stored.items() if config} | {k: c for k, c in kept.items() if c}
        self._changed()
        self._malformed.report(malformed)

    def _on_change(self, name: str, config: dict[str, str]) -> None:
        if config:
            self.configs[desanitize(name)] = config
        else:
            self.configs.pop(desanitize(name), None)
        self._changed()

    def _changed(self) -> None:
        for callback in self._callbacks:
            callback()
