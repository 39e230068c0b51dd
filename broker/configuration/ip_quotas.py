"""Applies the quotas of addresses (KIP-612) under /config/ips to the acceptors of this broker.

Kafka's IpConfigHandler. Made by the server once it listens; changes come from `dynamic_config`. A new session reads all quotas again, since
notifications may be gone after a long disconnection.
"""

from __future__ import annotations

import asyncio
import logging

from ottla.broker.configuration.dynamic_config import DynamicConfig
from ottla.broker.network.connection_quotas import ConnectionQuotas
from ottla.broker.network.host_names import address_of, resolve
from ottla.broker.security.rereading import MalformedNodes
from ottla.controller.admin.client_quotas import CONNECTION_CREATION_RATE
from ottla.controller.admin.config_admin import ConfigAdmin
from ottla.controller.znodes.layout import DEFAULT_ENTITY, desanitize
from ottla.controller.znodes.znode_json import MalformedZNode

logger = logging.getLogger(__name__)

IPS = "ips"


class IpQuotas:
    """See the module. Changes are applied from construction on."""

    def __init__(self, admin: ConfigAdmin, dynamic_config: DynamicConfig, quotas: ConnectionQuotas) -> None:
        self._admin = admin
        self._dynamic_config = dynamic_config
        self._quotas = quotas
        self._configs: dict[str, dict[str, str]] = {}
        """The last known configuration of each entity that has one."""
        self._malformed = MalformedNodes("address %s has its former quota, or none if it was never read")
        self._rates: dict[str, tuple[str, int]] = {}
        """The address and the rate of each host, a name or an address; the last one that was set is at the end."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """The newest resolution of each host name that has a quota."""
        dynamic_config.on_entity_change(IPS, self._on_change)
        dynamic_config.on_reading_again(self._read_all)

    async def load(self) -> None:
        """Apply the stored quotas. Raises StoreError."""
        await self._dynamic_config.read_first(self._read_all)

    async def close(self) -> None:
        """Cancel name resolutions in progress."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _read_all(self) -> None:
        """Apply the stored quotas that differ from the known ones, and remove those that are not stored. That of a malformed node stays
        as it is. Raises StoreError, NotAllRead."""
        malformed: dict[str, MalformedZNode] = {}
        stored = await self._admin.read_all(IPS, malformed)
        for name in malformed:
            stored[name] = self._configs.get(name, {})
        for name in sorted(self._configs.keys() | stored.keys()):
            config = stored.get(name, {})
            if config != self._configs.get(name, {}):
                self._on_change(name, config)
        self._malformed.report(malformed)

    def _on_change(self, name: str, config: dict[str, str]) -> None:
        if config:
            self._configs[name] = config
        else:
            self._configs.pop(name, None)
        try:
            text = config.get(CONNECTION_CREATION_RATE)
            rate = None if text is None else int(text)
        except ValueError:
            logger.error(
                "quota of address %s: %s=%s is not a number; the former one counts, if there is one; set it again",
                name, CONNECTION_CREATION_RATE, text,
            )  # fmt: skip
            return
        host = desanitize(name)
        if (former := self._tasks.pop(host, None)) is not None:
            former.cancel()  # its rate is no longer that of the host
        if name == DEFAULT_ENTITY:
            self._quotas.set_ip_rate(None, rate)
        elif rate is None:
            self._forget(host)
        elif (address := address_of(host)) is not None:
            self._set(host, address, rate)
        else:
            self._tasks[host] = asyncio.get_running_loop().create_task(self._resolve(host, rate), name="resolve-quota")

    async def _resolve(self, host: str, rate: int) -> None:
        try:
            address = await resolve(host)
        except (OSError, UnicodeError) as error:
            logger.error("quota of address %s: the name cannot be resolved (%s); it is ignored, set it again for an address", host, error)
        else:
            self._set(host, address, rate)

    def _set(self, host: str, address: str, rate: int) -> None:
        self._forget(host)
        self._rates[host] = address, rate
        self._apply(address)

    def _forget(self, host: str) -> None:
        """Remove the rate of a host from the address that it had when its rate was set."""
        if (former := self._rates.pop(host, None)) is not None:
            self._apply(former[0])

    def _apply(self, address: str) -> None:
        """Set the rate of an address. Several hosts may have this address: the last one that was set counts, as in Apache Kafka."""
        rates = [rate for found, rate in self._rates.values() if found == address]
        self._quotas.set_ip_rate(address, rates[-1] if rates else None)
