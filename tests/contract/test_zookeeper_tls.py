"""The store on a ZooKeeper that speaks TLS and knows its clients by their certificates."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from controller.errors import StoreUnavailable
from controller.store.zookeeper_client import TlsFiles
from controller.store.zookeeper_store import ZooKeeperSettings, ZooKeeperStore
from tests.support.apache_kafka.ports import free_ports
from tests.support.zookeeper import ZooKeeperServer, a_zookeeper

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command to make certificates"),
]


def a_certificate(directory: Path, name: str, *options: str) -> str:
    """A key with its self-signed certificate for 127.0.0.1 in one PEM file."""
    path = directory / f"{name}.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    key, certificate = directory / f"{name}.key", directory / f"{name}.crt"
    subprocess.run(
        [*command, *(options or ("-nodes",)), "-days", "2", "-keyout", key, "-out", certificate], check=True, capture_output=True
    )
    path.write_text(key.read_text() + certificate.read_text())
    return str(path)


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("pem")
    files = {name: a_certificate(directory, name) for name in ("server", "broker", "stranger")}
    return files | {"locked": a_certificate(directory, "locked", "-passout", "pass:sesame")}


@pytest.fixture(scope="module")
def server(pem: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ZooKeeperServer, str]]:
    """And the address of its TLS port."""
    directory = tmp_path_factory.mktemp("zookeeper")
    (port,) = free_ports(1)
    trusted = directory / "trusted.pem"
    trusted.write_text("".join(Path(pem[name]).with_suffix(".crt").read_text() for name in ("broker", "locked")))
    settings = {
        "secureClientPort": str(port),
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": pem["server"],
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(trusted),
        "ssl.trustStore.type": "PEM",
        "ssl.hostnameVerification": "false",
    }
    with a_zookeeper(directory, settings) as running:
        yield running, f"127.0.0.1:{port}"


def a_store(connect: str, tls: TlsFiles, timeout_ms: int = 20_000, *, set_acl: bool = False) -> ZooKeeperStore:
    return ZooKeeperStore(ZooKeeperSettings(connect, 10_000, timeout_ms, tls=tls, set_acl=set_acl))


def test_a_broker_is_known_by_its_certificate_and_owns_what_it_makes(server: tuple[ZooKeeperServer, str], pem: dict[str, str]) -> None:
    running, connect = server

    async def scenario() -> None:
        store = a_store(connect, TlsFiles(pem["broker"], None, pem["server"]), set_acl=True)
        await store.open_session()
        await store.create("/mine", b"x" * 100_000)
        assert (await store.get("/mine"))[0] == b"x" * 100_000
        assert (await store.set("/mine", b"y")).version == 1
        await store.close()

    asyncio.run(scenario())
    plain = KazooClient(running.connect)
    plain.start()
    acls, _ = plain.get_acls("/mine")
    plain.stop()
    plain.close()
    # Kafka's: the creator everything, everybody reading.
    assert {(acl.id.scheme, acl.id.id, acl.perms) for acl in acls} == {("x509", "CN=broker", 31), ("world", "anyone", 1)}


def test_a_key_may_have_a_password(server: tuple[ZooKeeperServer, str], pem: dict[str, str]) -> None:
    _, connect = server

    async def scenario() -> None:
        store = a_store(connect, TlsFiles(pem["locked"], "sesame", pem["server"]))
        await store.open_session()
        await store.close()
        with pytest.raises(StoreUnavailable, match=r"zookeeper\.ssl\.keystore\.location=.*locked\.pem.* cannot be used"):
            await a_store(connect, TlsFiles(pem["locked"], None, pem["server"])).open_session()
        with pytest.raises(StoreUnavailable, match=r"No such file or directory"):
            await a_store(connect, TlsFiles(None, None, "/nowhere.pem")).open_session()

    asyncio.run(scenario())


def test_a_server_that_is_not_trusted_gets_no_session(server: tuple[ZooKeeperServer, str], pem: dict[str, str]) -> None:
    _, connect = server

    async def scenario() -> None:
        with pytest.raises(StoreUnavailable, match=r"CERTIFICATE_VERIFY_FAILED"):
            await a_store(connect, TlsFiles(pem["broker"], None, pem["stranger"]), 5000).open_session()

    asyncio.run(scenario())


def test_a_client_that_the_server_does_not_trust_gets_none_either(server: tuple[ZooKeeperServer, str], pem: dict[str, str]) -> None:
    _, connect = server

    async def scenario() -> None:
        with pytest.raises(StoreUnavailable, match=r"no session with ZooKeeper within 1000 ms"):
            await a_store(connect, TlsFiles(pem["stranger"], None, pem["server"]), 1000).open_session()

    asyncio.run(scenario())
