"""Keeps the SCRAM credentials of all users, which are configurations under /config/users. Kafka's CredentialProvider.

Made by the server before it listens; changes come from `dynamic_config`.
"""

from __future__ import annotations

import logging

from broker.configuration.dynamic_config import DynamicConfig
from broker.security.sasl.scram import HASHES, ScramCredential, parse_credential
from controller.admin.config_admin import ConfigAdmin
from controller.znodes.layout import desanitize

logger = logging.getLogger(__name__)

USERS = "users"


class ScramCredentials:
    """See the module. Changes are applied from construction on."""

    def __init__(self, admin: ConfigAdmin, dynamic_config: DynamicConfig) -> None:
        self._admin = admin
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        """By mechanism and user."""
        dynamic_config.on_entity_change(USERS, self._on_change)

    async def load(self) -> None:
        """Read the stored credentials. Raises StoreError."""
        for name, config in (await self._admin.read_all(USERS)).items():
            self._on_change(name, config)

    def credential_of(self, mechanism: str, user: str) -> ScramCredential | None:
        """The credential of a user for a mechanism, None without one."""
        return self._credentials.get((mechanism, user))

    def _on_change(self, name: str, config: dict[str, str]) -> None:
        user = desanitize(name)
        for mechanism in HASHES:
            text = config.get(mechanism)
            self._credentials.pop((mechanism, user), None)
            if text is not None:
                try:
                    self._credentials[mechanism, user] = parse_credential(text)
                except ValueError as reason:
                    logger.error("user %s cannot authenticate by %s: %s; set the credential again", user, mechanism, reason)
