"""ACLs in a store of their own (`authorizer.zookeeper.*`): the settings of its connection, and its sessions."""

import asyncio

import pytest

from ottla.broker.metadata_store import open_acl_store
from ottla.broker.security.acl_admin import AclAdmin
from ottla.broker.security.acl_authorizer import AclAuthorizer
from ottla.broker.security.acl_session import AclSession
from ottla.config.broker import BrokerConfig
from ottla.controller.errors import StoreUnavailable
from ottla.controller.store.memory_store import MemoryEnsemble, MemoryStore
from ottla.controller.store.zookeeper_store import ZooKeeperStore
from tests.support.acl_brokers import EVERYTHING, RECORDED
from tests.support.clocks import ManualClock
from tests.support.controlled_cluster import until

BROKER = {"zookeeper.connect": "zk:2181/kafka", "zookeeper.session.timeout.ms": "9000", "zookeeper.ssl.truststore.location": "/ca.pem"}


def test_without_keys_of_its_own_the_authorizer_uses_the_store_of_the_broker() -> None:
    assert open_acl_store(BrokerConfig(BROKER)) is None
    assert open_acl_store(BrokerConfig({})) is None
    assert open_acl_store(BrokerConfig({**BROKER, "authorizer.zookeeper.url": "zk:2181/kafka"})) is None


def test_keys_of_the_authorizer_override_those_of_the_broker_one_by_one() -> None:
    store = open_acl_store(
        BrokerConfig(
            {
                **BROKER,
                "authorizer.zookeeper.url": "other:2182/acls",
                "authorizer.zookeeper.max.in.flight.requests": "3",
                "authorizer.zookeeper.ssl.client.enable": "true",
                "authorizer.zookeeper.ssl.keystore.location": "/authorizer.pem",
            }
        )
    )
    assert isinstance(store, ZooKeeperStore)
    settings = store.settings
    assert (settings.connect, settings.session_timeout_ms, settings.max_in_flight_requests) == ("other:2182/acls", 9000, 3)
    assert settings.tls_context is not None
    with pytest.raises(StoreUnavailable, match=r"zookeeper\.ssl\.keystore\.location=/authorizer\.pem: No such file"):
        settings.tls_context()


def test_the_trust_store_of_the_broker_is_that_of_the_authorizer_too() -> None:
    store = open_acl_store(BrokerConfig({**BROKER, "authorizer.zookeeper.ssl.client.enable": "true"}))
    assert isinstance(store, ZooKeeperStore)
    assert store.settings.tls_context is not None
    with pytest.raises(StoreUnavailable, match=r"zookeeper\.ssl\.truststore\.location=/ca\.pem: No such file"):
        store.settings.tls_context()


async def an_acl_session(ensemble: MemoryEnsemble, clock: ManualClock) -> tuple[MemoryStore, AclAdmin, AclSession]:
    store = ensemble.store()
    admin = AclAdmin(store, clock, AclAuthorizer(), lambda: -2.0)
    session = AclSession(store, admin.on_new_session, retry_seconds=0)
    await store.open_session()
    await admin.load()
    return store, admin, session


def test_a_new_session_begins_by_itself_and_reads_the_acls_again() -> None:
    async def run() -> None:
        clock = ManualClock()
        ensemble = MemoryEnsemble(clock)
        store, admin, session = await an_acl_session(ensemble, clock)
        _, other, _ = await an_acl_session(ensemble, clock)
        ensemble.expire(store.session_id)
        assert await other.create(RECORDED[:1]) == [None]
        await until(lambda: list(admin.authorizer.index.select(EVERYTHING)) == RECORDED[:1])
        assert await other.create(RECORDED[1:2]) == [None]
        await until(lambda: len(list(admin.authorizer.index.select(EVERYTHING))) == 2)
        await session.close()

    asyncio.run(run())
