"""Judges the configuration of a broker: keys without effect, certificates, the place of the metadata, ZooKeeper."""

import asyncio
import statistics
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from broker.cli.doctor.directory_checks import DirectoryFacts
from broker.cli.doctor.kinds import Finding, found
from broker.loop.clock import SystemClock
from broker.metadata_store import metadata_file, open_metadata_store
from config.broker import BrokerConfig
from config.errors import ConfigError
from config.keys.zookeeper import ZOOKEEPER_CONNECT
from controller.errors import StoreError, StoreUnavailable
from storage.manager.log_directories import LogDirectory

SOON_DAYS: Final = 30
SLOW_SECONDS: Final = 0.02
_PROBES: Final = 20
_CONNECT_MS: Final = 5000
_DAY_SECONDS: Final = 86_400
_UTC_TIME: Final = 0x17
_VERSION: Final = 0xA0
_VALIDITY: Final = 3
"""Place of the validity in a certificate, after its version (RFC 5280)."""


def check_keys(config: BrokerConfig) -> Iterator[Finding]:
    """Keys that no broker has, and keys without effect here."""
    for name in config.unknown:
        yield found("key-unknown", f"{name} is set", f"correct or remove {name}; docs/configuration.md lists all keys")
    for name in config.without_effect:
        yield found("key-without-effect", f"{name} is set", f"remove {name}, or see docs/configuration.md for its effect")


def check_certificates(config: BrokerConfig, now: float) -> Iterator[Finding]:
    """The certificate of each listener with TLS."""
    secured = [endpoint for endpoint in config.listeners.listeners if endpoint.security_protocol.uses_tls]
    if not secured:
        return
    from broker.security.tls.der import MalformedDer
    from broker.security.tls.listener import check_peers, tls_of

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
        days = (ends_at - now) / _DAY_SECONDS
        if days < SOON_DAYS:
            yield found(
                "certificate-expired" if days < 0 else "certificate-expires",
                f"the certificate of listener {name} ends at {datetime.fromtimestamp(ends_at, UTC):%Y-%m-%d %H:%M} UTC",
                "renew it in ssl.keystore.location, then set the key again with ottla configs alter broker",
            )


def end_of(certificate: bytes) -> float:
    """The time after which a certificate in DER is invalid, seconds since the epoch. Raises MalformedDer, ValueError."""
    from broker.security.tls.der import MalformedDer, element

    fields = element(certificate).part(0).parts()
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) <= _VALIDITY or len(fields[_VALIDITY].parts()) != 2:
        raise MalformedDer("a certificate has no validity")
    end = fields[_VALIDITY].part(1)
    text = end.content.decode("ascii")
    if end.tag == _UTC_TIME:
        text = ("20" if text < "50" else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


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
    """Raises StoreError."""
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
