"""Resolves the hosts of a configuration to the addresses of sockets.

As in Java a name stands for its first address, IPv4 before IPv6. Used for max.connections.per.ip.overrides and for quotas of addresses.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable, Mapping

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.keys.network import MAX_CONNECTIONS_PER_IP_OVERRIDES
from ottla.config.validation import max_connections_per_ip_overrides


def address_of(host: str) -> str | None:
    """The address as a socket shows it; None for a name, and for an address with an interface, of which sockets show only the address."""
    if "%" in host:
        return None
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


async def resolve(host: str) -> str:
    """The address of a name. Raises OSError or UnicodeError when there is none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return str(min(found, key=lambda each: each[0] != socket.AF_INET)[4][0])


class HostNames:
    """Resolved names. Each name is resolved once."""

    __slots__ = ("_addresses",)

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}

    def by_address(self, limits: Mapping[str, int]) -> dict[str, int]:
        """Limits of addresses for limits of hosts. Unknown names are left out."""
        known = {host: address_of(host) or self._addresses.get(host) for host in limits}
        return {address: limits[host] for host, address in known.items() if address is not None}

    def unknown(self, config: BrokerConfig) -> list[str]:
        """The names in the configuration that must be resolved first."""
        hosts = max_connections_per_ip_overrides(config[MAX_CONNECTIONS_PER_IP_OVERRIDES])
        return [host for host in hosts if address_of(host) is None and host not in self._addresses]

    async def learn(self, names: Iterable[str]) -> None:
        """Resolve names. Raises ConfigError for a name without an address; the names before it are known then."""
        for name in names:
            try:
                self._addresses[name] = await resolve(name)
            except (OSError, UnicodeError) as error:
                raise ConfigError(f"{MAX_CONNECTIONS_PER_IP_OVERRIDES.name}: the host {name} cannot be resolved ({error})") from error


async def known_hosts(config: BrokerConfig) -> HostNames:
    """The resolved names of the configuration. Raises ConfigError."""
    hosts = HostNames()
    await hosts.learn(hosts.unknown(config))
    return hosts
