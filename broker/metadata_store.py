"""Opens the broker's metadata store: ZooKeeper where `zookeeper.connect` is set, otherwise the embedded file.

`ottla.broker.server` calls this once. kazoo and SQLite are imported only for a broker that needs them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.jaas import KERBEROS_MODULE
from ottla.config.kerberos import kerberos_identity
from ottla.config.keys.authorizer_zookeeper import AuthorizerReading
from ottla.config.keys.log import LOG_DIRS
from ottla.config.keys.own import OTTLA_JAAS_FILE, OTTLA_METADATA_FILE, OTTLA_ZOOKEEPER_AUTH
from ottla.config.keys.zookeeper import (
    ZOOKEEPER_CONNECT,
    ZOOKEEPER_CONNECTION_TIMEOUT_MS,
    ZOOKEEPER_MAX_IN_FLIGHT_REQUESTS,
    ZOOKEEPER_SESSION_TIMEOUT_MS,
    ZOOKEEPER_SET_ACL,
    ZOOKEEPER_SSL_CLIENT_ENABLE,
    ZOOKEEPER_SSL_KEYSTORE_LOCATION,
)
from ottla.config.sasl import ZOOKEEPER_CLIENT, zookeeper_login
from ottla.config.schema.key import Reading
from ottla.config.validation import log_dirs
from ottla.controller.errors import StoreUnavailable
from ottla.controller.store.metadata_store import MetadataStore
from ottla.storage.disk.clock import Clock
from ottla.storage.manager.log_directories import LogDirectory

if TYPE_CHECKING:
    import ssl

    from ottla.controller.store.sasl_exchange import SaslExchange

METADATA_FILE = "ottla-metadata.sqlite3"
"""Name of the embedded store's file in the first log directory, next to Kafka's own files. Apache Kafka leaves the file alone: beside its
own files it reads only the names of directories there."""

CNONCE_BYTES = 16
PROBE_SECONDS = 1.0
"""Time for a connection to another broker's address, seconds; a live broker of the cluster accepts within milliseconds."""


def open_metadata_store(config: BrokerConfig, clock: Clock, directories: Sequence[LogDirectory]) -> MetadataStore:
    """The store, which has no session yet. Raises StoreUnavailable when the configuration or the directories forbid it."""
    if not config.standalone:
        return _zookeeper(config)
    from ottla.controller.store.embedded_store import EmbeddedStore

    return EmbeddedStore(metadata_file(config, directories), clock, config[ZOOKEEPER_SESSION_TIMEOUT_MS])


def open_acl_store(config: Reading) -> MetadataStore | None:
    """The store of the ACLs, if `authorizer.zookeeper.*` makes it another one. Raises StoreUnavailable as `open_metadata_store` does."""
    of_authorizer = AuthorizerReading(config)
    return _zookeeper(of_authorizer) if of_authorizer.differs else None


def metadata_file(config: BrokerConfig, directories: Sequence[LogDirectory]) -> str:
    """The path of the metadata file, which the first start creates. Raises StoreUnavailable for directories that have lost the file."""
    shared = config[OTTLA_METADATA_FILE]
    candidates = [f"{directory.path}/{METADATA_FILE}" for directory in directories] if shared is None else [os.path.abspath(shared)]
    for path in candidates:
        if os.path.exists(path):
            return path
    for directory in directories:
        if directory.meta_properties is not None and directory.meta_properties.cluster_id is not None:
            missing = f"{METADATA_FILE}, is in none of the log directories" if shared is None else f"{shared}, is not there"
            raise StoreUnavailable(
                directory.path,
                f"cluster.id is {directory.meta_properties.cluster_id}, but the metadata of that cluster, {missing}. "
                "Put it back, or set another log.dirs",
            )
    if not os.path.isdir(parent := os.path.dirname(candidates[0])):
        raise StoreUnavailable(f"{OTTLA_METADATA_FILE.name}={shared}", f"there is no directory {parent}; make it")
    return candidates[0]


def may_have_metadata(config: BrokerConfig) -> bool:
    """Whether the broker may find metadata: always with ZooKeeper, otherwise if the metadata file exists. For the start of a broker."""
    if not config.standalone:
        return True
    shared = config[OTTLA_METADATA_FILE]
    candidates = [f"{path}/{METADATA_FILE}" for path in log_dirs(config[LOG_DIRS])] if shared is None else [shared]
    return any(map(os.path.exists, candidates))


def check_zookeeper_login(config: Reading) -> None:
    """Check that the broker can log in at ZooKeeper as it is configured, without connecting. Raises StoreUnavailable, ConfigError."""
    if config[ZOOKEEPER_SSL_CLIENT_ENABLE]:
        _tls_context(config)
    zookeeper_login(config[OTTLA_JAAS_FILE])
    _check_protection(config)


def zookeeper_login_settings(config: Reading) -> str:
    """The settings by which the broker authenticates to ZooKeeper, as NAME=VALUE without secrets; a phrase if there are none. Raises
    ConfigError."""
    address = f"{ZOOKEEPER_CONNECT.name}={config[ZOOKEEPER_CONNECT]}"
    return ", ".join(_logins(config)) or f"{address} without a login"


def _logins(config: Reading) -> list[str]:
    found = []
    if config[OTTLA_ZOOKEEPER_AUTH] is not None:
        found.append(f"{OTTLA_ZOOKEEPER_AUTH.name}=[hidden]")
    if zookeeper_login(config[OTTLA_JAAS_FILE]) is not None:
        found.append(f"{OTTLA_JAAS_FILE.name}={config[OTTLA_JAAS_FILE]}")
    certificate = config[ZOOKEEPER_SSL_KEYSTORE_LOCATION]
    if config[ZOOKEEPER_SSL_CLIENT_ENABLE] and certificate is not None:
        found.append(f"{ZOOKEEPER_SSL_KEYSTORE_LOCATION.name}={certificate}")
    return found


def _check_protection(config: Reading) -> None:
    """Raises StoreUnavailable if znodes are to be protected by a broker that nothing identifies."""
    if config[ZOOKEEPER_SET_ACL] and not _logins(config):
        raise StoreUnavailable(
            "zookeeper.set.acl=true",
            "znodes can only be protected by a broker that authenticates itself: set "
            f"{OTTLA_ZOOKEEPER_AUTH.name} to user:password, {OTTLA_JAAS_FILE.name} with a section {ZOOKEEPER_CLIENT}, or "
            f"{ZOOKEEPER_SSL_CLIENT_ENABLE.name} and {ZOOKEEPER_SSL_KEYSTORE_LOCATION.name}",
        )


def _zookeeper(config: Reading) -> MetadataStore:
    from ottla.controller.store.zookeeper_store import ZooKeeperSettings, ZooKeeperStore

    _check_protection(config)
    credentials = config[OTTLA_ZOOKEEPER_AUTH]
    return ZooKeeperStore(
        ZooKeeperSettings(
            connect=config[ZOOKEEPER_CONNECT] or "",
            session_timeout_ms=config[ZOOKEEPER_SESSION_TIMEOUT_MS],
            connection_timeout_ms=config[ZOOKEEPER_CONNECTION_TIMEOUT_MS] or config[ZOOKEEPER_SESSION_TIMEOUT_MS],
            max_in_flight_requests=config[ZOOKEEPER_MAX_IN_FLIGHT_REQUESTS],
            set_acl=config[ZOOKEEPER_SET_ACL],
            credentials=None if credentials is None else credentials.value,
            tls_context=(lambda: _tls_context(config)) if config[ZOOKEEPER_SSL_CLIENT_ENABLE] else None,
            begin_login=_begin_login(config),
        )
    )


def _tls_context(config: Reading) -> ssl.SSLContext:
    """Raises StoreUnavailable."""
    from ottla.broker.security.tls.zookeeper import zookeeper_context

    try:
        return zookeeper_context(config)
    except ConfigError as reason:
        raise StoreUnavailable(f"{ZOOKEEPER_SSL_CLIENT_ENABLE.name}=true", str(reason)) from None


def _begin_login(config: Reading) -> Callable[[str], SaslExchange] | None:
    """Begins the login by the JAAS section `Client`, if there is one. Raises ConfigError."""
    found = zookeeper_login(config[OTTLA_JAAS_FILE])
    if found is None:
        return None
    if found.name == KERBEROS_MODULE:
        from ottla.broker.security.sasl.zookeeper_login import kerberos_login

        return kerberos_login(kerberos_identity(found))
    from ottla.controller.store.digest_md5 import DigestLogin, DigestMd5

    login = DigestLogin(found.options["username"], found.options["password"])
    return lambda host: DigestMd5(login, os.urandom(CNONCE_BYTES).hex())


async def is_listening(host: str, port: int) -> bool:
    """Whether a process listens at this address. A registration without one belongs to a broker that died a moment ago."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError, UnicodeError):  # the last one is for a name that cannot be one of DNS
        return False
    writer.close()
    return True
