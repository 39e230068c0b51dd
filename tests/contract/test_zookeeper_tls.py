"""The store on a ZooKeeper that speaks TLS and knows its clients by their certificates."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from ottla.broker.loop.clock import SystemClock
from ottla.broker.metadata_store import open_metadata_store
from ottla.config.broker import BrokerConfig
from ottla.controller.errors import StoreUnavailable
from ottla.controller.store.metadata_store import MetadataStore
from tests.support.apache_kafka.ports import free_ports
from tests.support.certificates import Identity, java_key_store
from tests.support.zookeeper import ZooKeeperServer, a_zookeeper

pytestmark = pytest.mark.java

PASSWORD = "sesame"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Paths: keys and trusted certificates in every format."""
    directory = tmp_path_factory.mktemp("stores")
    server, broker, locked, stranger = (Identity(f"CN={name}") for name in ("server", "broker", "locked", "stranger"))
    contents = {
        "server.pem": server.key_pem() + server.certificate_pem,
        "broker.pem": broker.key_pem() + broker.certificate_pem,
        "broker.p12": broker.pkcs12(PASSWORD),
        "broker.jks": java_key_store(PASSWORD, broker.jks_key(PASSWORD)),
        "locked.pem": locked.key_pem(PASSWORD) + locked.certificate_pem,
        "stranger.pem": stranger.key_pem() + stranger.certificate_pem,
        "trusted.pem": broker.certificate_pem + locked.certificate_pem,
        "trust.pem": server.certificate_pem,
        "trust.jks": java_key_store(PASSWORD, server.jks_certificate()),
        "trust.p12": server.pkcs12(PASSWORD),
        "trust-other.pem": stranger.certificate_pem,
    }
    for name, content in contents.items():
        (directory / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return {name: str(directory / name) for name in contents}


@pytest.fixture(scope="module")
def server(stores: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ZooKeeperServer, str]]:
    """And the address of its TLS port."""
    directory = tmp_path_factory.mktemp("zookeeper")
    (port,) = free_ports(1)
    settings = {
        "secureClientPort": str(port),
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": stores["server.pem"],
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": stores["trusted.pem"],
        "ssl.trustStore.type": "PEM",
        "ssl.hostnameVerification": "false",
    }
    with a_zookeeper(directory, settings) as running:
        yield running, f"127.0.0.1:{port}"


def a_store(connect: str, key: str | None, trust: str, timeout_ms: int = 20_000, **more: str) -> MetadataStore:
    """A store with this key store and trust store; further keys have underscores for dots."""
    properties = {
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": "10000",
        "zookeeper.connection.timeout.ms": str(timeout_ms),
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": trust,
    }
    properties |= {} if key is None else {"zookeeper.ssl.keystore.location": key}
    properties |= {f"zookeeper.{name.replace('_', '.')}": value for name, value in more.items()}
    return open_metadata_store(BrokerConfig(properties), SystemClock(), [])


@pytest.mark.parametrize("form", ["pem", "p12", "jks"])
def test_a_broker_is_known_by_its_certificate_and_owns_what_it_makes(
    server: tuple[ZooKeeperServer, str], stores: dict[str, str], form: str
) -> None:
    running, connect = server
    passwords = {} if form == "pem" else {"ssl_keystore_password": PASSWORD, "ssl_truststore_password": PASSWORD}

    async def scenario() -> None:
        store = a_store(connect, stores[f"broker.{form}"], stores[f"trust.{form}"], set_acl="true", **passwords)
        await store.open_session()
        await store.create(f"/mine-{form}", b"x" * 100_000)
        assert (await store.get(f"/mine-{form}"))[0] == b"x" * 100_000
        assert (await store.set(f"/mine-{form}", b"y")).version == 1
        await store.close()

    asyncio.run(scenario())
    plain = KazooClient(running.connect)
    plain.start()
    acls, _ = plain.get_acls(f"/mine-{form}")
    plain.stop()
    plain.close()
    # Kafka's: the creator everything, everybody reading.
    assert {(acl.id.scheme, acl.id.id, acl.perms) for acl in acls} == {("x509", "CN=broker", 31), ("world", "anyone", 1)}


def test_a_key_may_have_a_password(server: tuple[ZooKeeperServer, str], stores: dict[str, str]) -> None:
    _, connect = server

    async def scenario() -> None:
        store = a_store(connect, stores["locked.pem"], stores["trust.pem"], ssl_keystore_password=PASSWORD)
        await store.open_session()
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("key", "trust", "more", "said"),
    [
        ("locked.pem", "trust.pem", {}, "the private key is encrypted, but zookeeper.ssl.keystore.password is not set"),
        (None, "/nowhere.pem", {}, "zookeeper.ssl.truststore.location=/nowhere.pem: No such file or directory"),
        ("broker.jks", "trust.pem", {}, "zookeeper.ssl.keystore.password is not set"),
        ("broker.jks", "trust.pem", {"ssl_keystore_password": "wrong-sesame"}, "the password is wrong, or the file is damaged"),
        (
            None,
            "trust.pem",
            {"ssl_truststore_type": "BCFKS"},
            "zookeeper.ssl.truststore.type=BCFKS is not supported",
        ),
        (None, "trust.pem", {"ssl_protocol": "SSLv3"}, "zookeeper.ssl.protocol=SSLv3 is not supported"),
        (None, "trust.pem", {"ssl_cipher_suites": "NONE_SUCH"}, "zookeeper.ssl.cipher.suites: NONE_SUCH is not supported by OpenSSL"),
        (None, "trust.pem", {"ssl_crl_enable": "true"}, "zookeeper.ssl.crl.enable=true: revoked certificates cannot be looked up"),
        (None, "trust.pem", {"ssl_ocsp_enable": "true"}, "zookeeper.ssl.ocsp.enable=true: revoked certificates cannot be looked up"),
    ],
)
def test_a_wrong_configuration_names_the_key_and_the_reason(
    stores: dict[str, str], key: str | None, trust: str, more: dict[str, str], said: str
) -> None:
    async def scenario() -> None:
        store = a_store("127.0.0.1:1", None if key is None else stores[key], stores.get(trust, trust), **more)
        with pytest.raises(StoreUnavailable) as refused:
            await store.open_session()
        assert said in str(refused.value)
        assert PASSWORD not in str(refused.value)

    asyncio.run(scenario())


def test_a_server_that_is_not_trusted_gets_no_session(server: tuple[ZooKeeperServer, str], stores: dict[str, str]) -> None:
    _, connect = server

    async def scenario() -> None:
        with pytest.raises(StoreUnavailable, match=r"CERTIFICATE_VERIFY_FAILED"):
            await a_store(connect, stores["broker.pem"], stores["trust-other.pem"], 5000).open_session()

    asyncio.run(scenario())


def test_the_name_of_the_server_is_compared_unless_that_is_off(server: tuple[ZooKeeperServer, str], stores: dict[str, str]) -> None:
    _, connect = server
    other = connect.replace("127.0.0.1", "127.1")  # another text for the same address, which the certificate does not have

    async def scenario() -> None:
        with pytest.raises(StoreUnavailable, match=r"CERTIFICATE_VERIFY_FAILED"):
            await a_store(other, stores["broker.pem"], stores["trust.pem"], 1000).open_session()
        store = a_store(other, stores["broker.pem"], stores["trust.pem"], ssl_endpoint_identification_algorithm="")
        await store.open_session()
        await store.close()

    asyncio.run(scenario())


def test_a_client_that_the_server_does_not_trust_gets_none_either(server: tuple[ZooKeeperServer, str], stores: dict[str, str]) -> None:
    _, connect = server

    async def scenario() -> None:
        with pytest.raises(StoreUnavailable, match=r"no session with ZooKeeper within 1000 ms"):
            await a_store(connect, stores["stranger.pem"], stores["trust.pem"], 1000).open_session()

    asyncio.run(scenario())
