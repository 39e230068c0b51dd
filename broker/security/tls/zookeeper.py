"""Makes the TLS context of connections to ZooKeeper: `zookeeper.ssl.*`, with the versions, suites and stores of all other TLS.

As in ZooKeeper's client, the suffix of a file determines its format unless a type is set, and the password of a key store is also that of
its key. Files without a known suffix are PEM.
"""

from __future__ import annotations

import re
import ssl
from pathlib import PurePath
from typing import Any, Final, TypeVar, cast

from ottla.broker.security.tls.connecting import HTTPS, connecting_context
from ottla.broker.security.tls.stores import PEM
from ottla.config.errors import ConfigError
from ottla.config.keys.tls import (
    SSL_CIPHER_SUITES,
    SSL_ENABLED_PROTOCOLS,
    SSL_ENDPOINT_IDENTIFICATION_ALGORITHM,
    SSL_KEY_PASSWORD,
    SSL_KEYSTORE_LOCATION,
    SSL_KEYSTORE_PASSWORD,
    SSL_KEYSTORE_TYPE,
    SSL_PROTOCOL,
    SSL_TRUSTSTORE_LOCATION,
    SSL_TRUSTSTORE_PASSWORD,
    SSL_TRUSTSTORE_TYPE,
)
from ottla.config.keys.zookeeper import (
    ZOOKEEPER_SSL_CIPHER_SUITES,
    ZOOKEEPER_SSL_CRL_ENABLE,
    ZOOKEEPER_SSL_ENABLED_PROTOCOLS,
    ZOOKEEPER_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM,
    ZOOKEEPER_SSL_KEYSTORE_LOCATION,
    ZOOKEEPER_SSL_KEYSTORE_PASSWORD,
    ZOOKEEPER_SSL_KEYSTORE_TYPE,
    ZOOKEEPER_SSL_OCSP_ENABLE,
    ZOOKEEPER_SSL_PROTOCOL,
    ZOOKEEPER_SSL_TRUSTSTORE_LOCATION,
    ZOOKEEPER_SSL_TRUSTSTORE_PASSWORD,
    ZOOKEEPER_SSL_TRUSTSTORE_TYPE,
)
from ottla.config.schema.key import Key, Reading

T = TypeVar("T")

_TYPES: Final = {".jks": "JKS", ".p12": "PKCS12", ".pfx": "PKCS12"}
_NEWEST: Final = "TLSv1.3"
_KEY_NAME: Final = re.compile(r"(?<!\S)ssl\.")


def zookeeper_context(config: Reading) -> ssl.SSLContext:
    """The context. Reads the files. Raises ConfigError, whose text names the keys of ZooKeeper."""
    for key in (ZOOKEEPER_SSL_CRL_ENABLE, ZOOKEEPER_SSL_OCSP_ENABLE):
        if config[key]:
            raise ConfigError(f"{key.name}=true: revoked certificates cannot be looked up; unset it")
    try:
        return connecting_context(_InWordsOfListeners(config), "connections to ZooKeeper")
    except ConfigError as reason:
        text = str(reason).replace(SSL_KEY_PASSWORD.name, SSL_KEYSTORE_PASSWORD.name)
        raise ConfigError(_KEY_NAME.sub("zookeeper.ssl.", text)) from None


class _InWordsOfListeners:
    """The values of `zookeeper.ssl.*` under `ssl.*`. Keys that ZooKeeper does not have are at their defaults."""

    def __init__(self, config: Reading) -> None:
        keys, trust = config[ZOOKEEPER_SSL_KEYSTORE_LOCATION], config[ZOOKEEPER_SSL_TRUSTSTORE_LOCATION]
        key_type = _type_of(config[ZOOKEEPER_SSL_KEYSTORE_TYPE], keys)
        trust_type = _type_of(config[ZOOKEEPER_SSL_TRUSTSTORE_TYPE], trust)
        password = config[ZOOKEEPER_SSL_KEYSTORE_PASSWORD]
        protocol = config[ZOOKEEPER_SSL_PROTOCOL]
        checks_name = (config[ZOOKEEPER_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM] or "").lower() == HTTPS
        self._values: dict[Key[Any], Any] = {
            SSL_PROTOCOL: protocol,
            SSL_ENABLED_PROTOCOLS: config[ZOOKEEPER_SSL_ENABLED_PROTOCOLS] or ((_NEWEST,) if protocol == _NEWEST else ()),
            SSL_CIPHER_SUITES: config[ZOOKEEPER_SSL_CIPHER_SUITES] or (),
            SSL_ENDPOINT_IDENTIFICATION_ALGORITHM: HTTPS if checks_name else "",
            SSL_KEYSTORE_TYPE: key_type,
            SSL_KEYSTORE_LOCATION: keys,
            SSL_KEYSTORE_PASSWORD: None if key_type.upper() == PEM else password,
            SSL_KEY_PASSWORD: password if key_type.upper() == PEM else None,
            SSL_TRUSTSTORE_TYPE: trust_type,
            SSL_TRUSTSTORE_LOCATION: trust,
            SSL_TRUSTSTORE_PASSWORD: None if trust_type.upper() == PEM else config[ZOOKEEPER_SSL_TRUSTSTORE_PASSWORD],
        }

    def __getitem__(self, key: Key[T]) -> T:
        """See `ottla.config.schema.key.Reading`."""
        return cast("T", self._values.get(key, key.default))


def _type_of(given: str | None, location: str | None) -> str:
    return given or _TYPES.get(PurePath(location or "").suffix.lower(), PEM)
