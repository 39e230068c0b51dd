"""The store on a ZooKeeper that knows its clients by SASL DIGEST-MD5, and Apache Kafka's tool that adds and removes ACLs."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from ottla.broker.loop.clock import SystemClock
from ottla.broker.metadata_store import open_metadata_store
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.sasl import zookeeper_login
from ottla.controller.errors import NoAuth, StoreUnavailable
from ottla.controller.store.digest_md5 import DigestFailed, DigestLogin, DigestMd5
from ottla.controller.store.metadata_store import MetadataStore
from tests.support.apache_kafka.java import QUICK_OPTIONS, java_command
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.zookeeper import ZooKeeperServer, a_zookeeper

MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
OWNED = {("sasl", "broker", 31), ("world", "anyone", 1)}
OPEN = {("world", "anyone", 31)}


def a_jaas_file(directory: Path, password: str = "zk-secret") -> Path:
    path = directory / f"{password}.jaas"
    server = f'Server {{ {MODULE} required user_broker="zk-secret"; }};'
    client = f'Client {{ {MODULE} required username="broker" password="{password}"; }};'
    path.write_text(f"{server}\n{client}\n")
    return path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    directory = tmp_path_factory.mktemp("zookeeper")
    settings = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    with pytest.MonkeyPatch.context() as patches:
        patches.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.auth.login.config={a_jaas_file(directory)}")
        with a_zookeeper(directory, settings) as running:
            yield running


def a_store(server: ZooKeeperServer, jaas: Path, chroot: str = "") -> MetadataStore:
    config = BrokerConfig(
        {
            "zookeeper.connect": server.connect + chroot,
            "zookeeper.connection.timeout.ms": "20000",
            "zookeeper.set.acl": "true",
            "ottla.jaas.file": str(jaas),
        }
    )
    return open_metadata_store(config, None, ())  # type: ignore[arg-type]  # a store on ZooKeeper needs no clock


def acls_of(server: ZooKeeperServer, path: str) -> set[tuple[str, str, int]]:
    plain = KazooClient(server.connect)
    plain.start()
    acls, _ = plain.get_acls(path)
    plain.stop()
    plain.close()
    return {(acl.id.scheme, acl.id.id, acl.perms) for acl in acls}


@pytest.mark.java
def test_a_broker_is_known_by_its_login_and_owns_what_it_makes(server: ZooKeeperServer, tmp_path: Path) -> None:
    async def scenario() -> None:
        store = a_store(server, a_jaas_file(tmp_path))
        await store.open_session()
        await store.create("/brokers", b"")
        assert (await store.set("/brokers", b"y")).version == 1
        await store.close()
        with pytest.raises(StoreUnavailable):
            await a_store(server, a_jaas_file(tmp_path, "wrong-secret")).open_session()

    asyncio.run(scenario())
    assert acls_of(server, "/brokers") == OWNED


@pytest.mark.java
def test_a_broker_of_another_identity_is_told_that_all_need_the_same(server: ZooKeeperServer, tmp_path: Path) -> None:
    async def scenario() -> None:
        first = a_store(server, a_jaas_file(tmp_path), "/identities")
        await first.open_session()
        await first.create("/config", b"")
        await first.create("/config/users", b"")
        config = {
            "zookeeper.connect": f"{server.connect}/identities",
            "zookeeper.set.acl": "true",
            "ottla.zookeeper.auth": "broker:zk-secret",
        }
        second = open_metadata_store(BrokerConfig(config), SystemClock(), ())
        await second.open_session()
        with pytest.raises(
            StoreUnavailable, match=r"^/config: .* NoAuth; the node belongs to another identity\. .* the same scheme and name"
        ):
            await second.set("/config", b"x")
        with pytest.raises(NoAuth, match="NoAuth; the node belongs to another identity"):
            await second.get("/config/users")
        asked = ["/config", "/config/users", "/none"]
        assert (await first.forbidden(asked), await second.forbidden(asked)) == ([], asked[:2])
        await second.close()
        await first.close()

    asyncio.run(scenario())


@needs_apache_kafka[0]
@needs_apache_kafka[1]
def test_the_migration_tool_of_apache_kafka_opens_and_closes_the_znodes(server: ZooKeeperServer, tmp_path: Path) -> None:
    def migrate(how: str) -> None:
        command = java_command(
            QUICK_OPTIONS, "kafka.admin.ZkSecurityMigrator", f"--zookeeper.acl={how}", f"--zookeeper.connect={server.connect}"
        )
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert ended.returncode == 0, ended

    async def scenario() -> None:
        store = a_store(server, a_jaas_file(tmp_path))
        await store.open_session()
        await store.create("/config", b"")
        await store.create("/config/topics", b"")
        for how, expected in (("unsecure", OPEN), ("secure", OWNED)):
            await asyncio.to_thread(migrate, how)
            for path in ("/config", "/config/topics"):
                assert await asyncio.to_thread(acls_of, server, path) == expected
            await store.set("/config/topics", how.encode())
        await store.close()

    asyncio.run(scenario())


def test_no_answer_but_the_proof_is_accepted() -> None:
    exchange = DigestMd5(DigestLogin("chris", "secret"), "OA6MHXh6VqTrRk")
    with pytest.raises(DigestFailed):
        exchange.verify(b"rspauth=0")
    answer = exchange.respond(b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8')
    assert b'username="chris",realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",nc=00000001' in answer
    for wrong in (b"", b"rspauth=", b"rspauth=00000000000000000000000000000000", b'nonce="', b"\xff" * 5000):
        with pytest.raises(DigestFailed):
            exchange.verify(wrong)


@pytest.mark.parametrize(
    "section", ["Client { org.apache.kafka.common.security.plain.PlainLoginModule required; };", f"Client {{ {MODULE} required; }};"]
)
def test_a_section_that_is_incomplete_is_named(tmp_path: Path, section: str) -> None:
    path = tmp_path / "jaas"
    path.write_text(section)
    with pytest.raises(ConfigError, match=r"section Client (needs|has no option)"):
        zookeeper_login(str(path))
