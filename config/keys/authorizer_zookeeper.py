"""Declares the keys of the authorizer's ZooKeeper: each overrides the key of the same name without `authorizer.`.

Kafka's AclAuthorizer reads them without a definition. With them several clusters can share the ACLs of one ZooKeeper.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

from ottla.config.keys import zookeeper
from ottla.config.schema.key import READ_ONLY, Key, Reading

PREFIX: Final = "authorizer."

T = TypeVar("T")


_overrides: dict[Key[Any], Key[Any]] = {}
OVERRIDES: Final[Mapping[Key[Any], Key[Any]]] = MappingProxyType(_overrides)
"""By the key that it overrides."""


def _override(base: Key[T], name: str | None = None) -> Key[T]:
    override = _overrides[base] = replace(
        base,
        name=PREFIX + (name or base.name),
        default=None,
        otherwise=lambda config: config[base],
        synonyms=(),
        dynamic=READ_ONLY,
        internal=True,
        doc=f"The {base.name} of the authorizer's own connection to ZooKeeper; without it, the value of that key.",
    )
    return override


AUTHORIZER_ZOOKEEPER_URL = _override(zookeeper.ZOOKEEPER_CONNECT, "zookeeper.url")
AUTHORIZER_ZOOKEEPER_CONNECTION_TIMEOUT_MS = _override(zookeeper.ZOOKEEPER_CONNECTION_TIMEOUT_MS)
AUTHORIZER_ZOOKEEPER_SESSION_TIMEOUT_MS = _override(zookeeper.ZOOKEEPER_SESSION_TIMEOUT_MS)
AUTHORIZER_ZOOKEEPER_MAX_IN_FLIGHT_REQUESTS = _override(zookeeper.ZOOKEEPER_MAX_IN_FLIGHT_REQUESTS)
AUTHORIZER_ZOOKEEPER_CLIENT_CNXN_SOCKET = _override(zookeeper.ZOOKEEPER_CLIENT_CNXN_SOCKET)
AUTHORIZER_ZOOKEEPER_SSL_CIPHER_SUITES = _override(zookeeper.ZOOKEEPER_SSL_CIPHER_SUITES)
AUTHORIZER_ZOOKEEPER_SSL_CLIENT_ENABLE = _override(zookeeper.ZOOKEEPER_SSL_CLIENT_ENABLE)
AUTHORIZER_ZOOKEEPER_SSL_CRL_ENABLE = _override(zookeeper.ZOOKEEPER_SSL_CRL_ENABLE)
AUTHORIZER_ZOOKEEPER_SSL_ENABLED_PROTOCOLS = _override(zookeeper.ZOOKEEPER_SSL_ENABLED_PROTOCOLS)
AUTHORIZER_ZOOKEEPER_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = _override(zookeeper.ZOOKEEPER_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM)
AUTHORIZER_ZOOKEEPER_SSL_KEYSTORE_LOCATION = _override(zookeeper.ZOOKEEPER_SSL_KEYSTORE_LOCATION)
AUTHORIZER_ZOOKEEPER_SSL_KEYSTORE_PASSWORD = _override(zookeeper.ZOOKEEPER_SSL_KEYSTORE_PASSWORD)
AUTHORIZER_ZOOKEEPER_SSL_KEYSTORE_TYPE = _override(zookeeper.ZOOKEEPER_SSL_KEYSTORE_TYPE)
AUTHORIZER_ZOOKEEPER_SSL_OCSP_ENABLE = _override(zookeeper.ZOOKEEPER_SSL_OCSP_ENABLE)
AUTHORIZER_ZOOKEEPER_SSL_PROTOCOL = _override(zookeeper.ZOOKEEPER_SSL_PROTOCOL)
AUTHORIZER_ZOOKEEPER_SSL_TRUSTSTORE_LOCATION = _override(zookeeper.ZOOKEEPER_SSL_TRUSTSTORE_LOCATION)
AUTHORIZER_ZOOKEEPER_SSL_TRUSTSTORE_PASSWORD = _override(zookeeper.ZOOKEEPER_SSL_TRUSTSTORE_PASSWORD)
AUTHORIZER_ZOOKEEPER_SSL_TRUSTSTORE_TYPE = _override(zookeeper.ZOOKEEPER_SSL_TRUSTSTORE_TYPE)


class AuthorizerReading:
    """The keys of ZooKeeper as the authorizer has them; all other keys as the broker has them."""

    def __init__(self, config: Reading) -> None:
        self._config = config

    def __getitem__(self, key: Key[T]) -> T:
        """The effective value."""
        return self._config[cast("Key[T]", OVERRIDES.get(key, key))]

    @property
    def differs(self) -> bool:
        """Whether a key has another value than for the broker."""
        return any(self._config[base] != self._config[override] for base, override in OVERRIDES.items())
