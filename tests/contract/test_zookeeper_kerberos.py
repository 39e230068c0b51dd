"""The store on a ZooKeeper that knows its clients by Kerberos."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.config.errors import ConfigError
from ottla.config.jaas import KERBEROS_MODULE
from ottla.config.sasl import zookeeper_login
from ottla.controller.errors import StoreUnavailable
from tests.contract.test_zookeeper_sasl import a_store, acls_of
from tests.support.kerberos import REALM, Realm, a_realm, jaas, needs_kerberos
from tests.support.zookeeper import ZooKeeperServer, a_zookeeper


class Kerberized(NamedTuple):
    """A ZooKeeper and its realm."""

    realm: Realm
    zookeeper: ZooKeeperServer


@pytest.fixture(scope="module")
def kerberized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kerberized]:
    directory = tmp_path_factory.mktemp("zookeeper")
    settings = {
        "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "kerberos.removeHostFromPrincipal": "true",
        "kerberos.removeRealmFromPrincipal": "true",
    }
    with a_realm(tmp_path_factory.mktemp("realm")) as realm, pytest.MonkeyPatch.context() as patches:
        sections = directory / "server.jaas"
        sections.write_text(f"Server {{ {jaas('zookeeper/127.0.0.1', realm.add('zookeeper/127.0.0.1'))} }};")
        options = (f"-Djava.security.auth.login.config={sections}", f"-Djava.security.krb5.conf={realm.configuration}")
        patches.setenv("JAVA_TOOL_OPTIONS", " ".join(options))
        with a_zookeeper(directory, settings) as running:
            yield Kerberized(realm, running)


def a_jaas_file(directory: Path, entry: str) -> Path:
    path = directory / "client.jaas"
    path.write_text(f"Client {{ {entry} }};")
    return path


@pytest.mark.java
@needs_kerberos
def test_a_broker_is_known_by_its_ticket_and_owns_what_it_makes(kerberized: Kerberized, tmp_path: Path) -> None:
    keytab = kerberized.realm.add("broker/host.example")

    async def scenario() -> None:
        store = a_store(kerberized.zookeeper, a_jaas_file(tmp_path, jaas("broker/host.example", keytab, service="zookeeper")))
        await store.open_session()
        await store.create("/brokers", b"")
        assert (await store.set("/brokers", b"y")).version == 1
        await store.close()

    asyncio.run(scenario())
    ((scheme, name, rights), *_) = sorted(acls_of(kerberized.zookeeper, "/brokers"))
    assert (scheme, rights) == ("sasl", 31)
    assert name.startswith("broker")


@pytest.mark.java
@needs_kerberos
def test_a_broker_without_a_ticket_gets_no_session(kerberized: Kerberized, tmp_path: Path) -> None:
    entry = f'{KERBEROS_MODULE} required useTicketCache=true ticketCache="{tmp_path}/absent";'

    async def scenario() -> None:
        with pytest.raises(StoreUnavailable):
            await a_store(kerberized.zookeeper, a_jaas_file(tmp_path, entry)).open_session()

    asyncio.run(scenario())


def test_the_service_name_of_zookeeper_is_its_default(tmp_path: Path) -> None:
    options = f'useKeyTab=true keyTab="/x" principal="broker@{REALM}"'
    for more, name in (("", "zookeeper"), ('serviceName="zk"', "zk")):
        found = zookeeper_login(str(a_jaas_file(tmp_path, f"{KERBEROS_MODULE} required {options} {more};")))
        assert found is not None
        assert found.options["serviceName"] == name
    with pytest.raises(ConfigError, match="the section Client: Krb5LoginModule needs the option useKeyTab=true"):
        zookeeper_login(str(a_jaas_file(tmp_path, f"{KERBEROS_MODULE} required;")))
