"""Judges the configuration of a broker: keys without effect, certificates, the place of the metadata, ZooKeeper."""

import asyncio
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Final

from ottla.broker.loop.clock import SystemClock
from ottla.broker.metadata_store import metadata_file, open_metadata_store
from ottla.broker.security.sasl.offers import check_listeners
from ottla.broker.start_checks import Unsupported, refuse_unsupported
from ottla.cli.doctor.certificates import check_end, end_of
from ottla.cli.doctor.directory_checks import DirectoryFacts
from ottla.cli.doctor.kinds import Finding, found
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.keys.zookeeper import ZOOKEEPER_CONNECT
from ottla.config.validation import of_no_listener
from ottla.controller.errors import StoreError, StoreUnavailable
from ottla.storage.manager.log_directories import LogDirectory

SLOW_SECONDS: Final = 0.02
_PROBES: Final = 20
_CONNECT_MS: Final = 5000


def check_keys(config: BrokerConfig) -> Iterator[Finding]:
    """Keys that no broker has, and keys without effect here."""
    for name in config.unknown:
        yield found("key-unknown", f"{name} is set", f"correct or remove {name}; docs/configuration.md lists all keys")
    for name, line in of_no_listener(config.static, config.listeners).items():
        yield found("key-of-no-listener", line, f"correct or remove {name}")
    for name in config.without_effect:
        yield found("key-without-effect", f"{name} is set", f"remove {name}, or see docs/configuration.md for its effect")


def check_start(config: BrokerConfig) -> Iterator[Finding]:
    """The settings with which a broker does not start, although each value is valid."""
    try:
        refuse_unsupported(config)
        check_listeners(config)
    except (Unsupported, ConfigError, StoreUnavailable) as error:
        yield found("configuration-invalid", str(error), "correct the key that is named; docs/configuration.md lists all keys")


def check_certificates(config: BrokerConfig, now: float) -> Iterator[Finding]:
    """The certificate of each listener with TLS."""
    secured = [endpoint for endpoint in config.listeners.listeners if endpoint.security_protocol.uses_tls]
    if not secured:
        return
    from ottla.broker.security.tls.der import MalformedDer
    from ottla.broker.security.tls.listener import check_peers, tls_of

    for endpoint in secured:
        name = endpoint.listener_name
        try:
            tls = tls_of(config.current, endpoint, between_brokers=name == config.listeners.inter_broker_listener_name)
            ends_at = end_of(tls.certificate)
            if ends_at >= now:  # an expired one has a finding of its own
                check_peers(name, tls)
        except (ConfigError, MalformedDer, ValueError) as error:
            yield found("certificate-unusable", str(error), f"correct ssl.keystore.location of listener {name}")
            continue
        yield from check_end(f"listener {name}", ends_at, now)


def check_metadata(config: BrokerConfig, directories: Sequence[DirectoryFacts]) -> Iterator[Finding]:
    """Whether the metadata of the directories' cluster can be found: the file, or ZooKeeper and its latency."""
    if config.standalone:
        listed = []
        for each in directories:
            directory = LogDirectory(each.path)
            directory.meta_properties = each.identity
            listed.append(directory)
        try:
            if listed:
                metadata_file(config, listed)
        except StoreUnavailable as error:
            yield found("metadata-missing", str(error), "set ottla.metadata.file to the file, or zookeeper.connect to the ZooKeeper")
        return
    connect = config[ZOOKEEPER_CONNECT]
    try:
        seconds = asyncio.run(_latency(config))
    except ConfigError as error:
        yield found("configuration-invalid", str(error), "correct the login of the broker at ZooKeeper")
    except StoreError as error:
        yield found("zookeeper-unreachable", str(error), f"start ZooKeeper at {connect}, or correct zookeeper.connect")
    else:
        yield from judge_latency(str(connect), seconds)


def judge_latency(connect: str, seconds: float) -> Iterator[Finding]:
    """The finding of a slow ZooKeeper. `seconds` is the median of some requests."""
    if seconds > SLOW_SECONDS:
        yield found(
            "zookeeper-slow",
            f"{connect} answers a read after {seconds * 1000:.0f} ms (the median of {_PROBES})",
            "look at the disk and the load of ZooKeeper's hosts, and at the network between",
        )


async def _latency(config: BrokerConfig) -> float:
    """Raises StoreError, ConfigError."""
    # The root, so that nothing is created where the path is missing.
    connect = str(config[ZOOKEEPER_CONNECT]).partition("/")[0]
    quick = {ZOOKEEPER_CONNECT.name: connect, "zookeeper.connection.timeout.ms": str(_CONNECT_MS)}
    store = open_metadata_store(BrokerConfig({**config.static, **quick}), SystemClock(), ())
    times = []
    try:
        await store.open_session()
        for _ in range(_PROBES):
            began = time.perf_counter()
            await store.exists("/")
            times.append(time.perf_counter() - began)
    finally:
        await store.close()
    return statistics.median(times)
