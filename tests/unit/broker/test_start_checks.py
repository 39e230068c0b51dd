"""A broker that was given another's id, directory or metadata does not start, and has written nothing by then."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from ottla.broker.metadata_store import is_listening
from ottla.broker.start_checks import check_acl_znodes, check_belongings, check_broker_id, check_configuration_may_differ, check_znodes
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.controller.errors import BrokerIdInUse, NoAuth
from ottla.controller.registration import never_listening, prepare_store
from ottla.controller.store.memory_store import MemoryEnsemble, MemoryStore
from ottla.controller.znodes.layout import BrokerRegistration, Endpoint, encode_broker
from ottla.storage.disk.meta_properties import MetaProperties
from ottla.storage.disk.start_errors import InconsistentBrokerId, InconsistentClusterId
from ottla.storage.manager.log_directories import LogDirectory
from tests.support.controlled_cluster import FixedRandom, new_ensemble
from tests.support.virtual_time import VirtualLoop

PATIENCE_MS = "4000"


def a_config(broker_id: int = 1, port: int = 9092, advertised_port: int = 0) -> BrokerConfig:
    return BrokerConfig(
        {
            "broker.id": str(broker_id),
            "zookeeper.connect": "unused:2181",
            "zookeeper.session.timeout.ms": PATIENCE_MS,
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{advertised_port or port}",
        }
    )


def a_directory(broker_id: int | None = None, cluster_id: str | None = None) -> LogDirectory:
    """New, unless it is said whose it is."""
    directory = LogDirectory("/data")
    if broker_id is not None or cluster_id is not None:
        directory.meta_properties = MetaProperties(broker_id, cluster_id)
    return directory


def play(scenario: Callable[[MemoryStore], Awaitable[None]], *, is_prepared: bool = True) -> None:
    """With a store; nothing may be written into it."""

    async def run() -> None:
        ensemble = new_ensemble()
        store = MemoryStore(ensemble)
        await store.open_session()
        if is_prepared:
            await prepare_store(store, FixedRandom().bytes)
        before = ensemble.dump()
        await scenario(store)
        assert ensemble.dump().keys() - {"/brokers/ids/1"} == before.keys()
        await store.close()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


async def register(store: MemoryStore, port: int) -> MemoryStore:
    """Another broker 1; the session that it has."""
    other = MemoryStore(store.ensemble)
    await other.open_session()
    registration = BrokerRegistration((Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", port),), None, 0)
    await other.create("/brokers/ids/1", encode_broker(registration), ephemeral=True)
    return other


def listening(*ports: int) -> Callable[[str, int], Awaitable[bool]]:
    async def is_any(host: str, port: int) -> bool:
        assert host == "127.0.0.1"
        return port in ports

    return is_any


@pytest.mark.parametrize("host", ["a" * 64, "a..b"])
def test_no_process_listens_at_a_host_that_cannot_be_a_name(host: str) -> None:
    assert not asyncio.run(is_listening(host, 9092))


def test_directories_of_another_cluster_are_refused() -> None:
    async def scenario(store: MemoryStore) -> None:
        with pytest.raises(
            InconsistentClusterId, match=r"^/data/meta\.properties: cluster\.id is other, but the cluster's is .*zookeeper\.connect"
        ):
            await check_belongings(a_config(), store, [a_directory(1, "other")])

    play(scenario)


def test_a_path_in_zookeeper_where_no_cluster_is_refuses_directories_that_had_one() -> None:
    async def scenario(store: MemoryStore) -> None:
        with pytest.raises(InconsistentClusterId, match="no cluster has used this metadata store yet"):
            await check_belongings(a_config(), store, [a_directory(1, "other")])
        await check_belongings(a_config(), store, [a_directory()])

    play(scenario, is_prepared=False)


def test_directories_of_another_broker_are_refused() -> None:
    async def scenario(store: MemoryStore) -> None:
        with pytest.raises(InconsistentBrokerId, match=r"broker\.id is 2, but this broker's is 1"):
            await check_belongings(a_config(1), store, [a_directory(2, None)])

    play(scenario)


def test_an_id_whose_broker_lives_is_refused_at_once() -> None:
    async def scenario(store: MemoryStore) -> None:
        await register(store, port=9093)
        began = asyncio.get_running_loop().time()
        for directory in (a_directory(), a_directory(1)):
            with pytest.raises(BrokerIdInUse, match=r"another broker with broker\.id=1 is running"):
                await check_broker_id(1, a_config(), store, [directory], listening(9093))
        assert asyncio.get_running_loop().time() == began

    play(scenario)


def test_a_broker_that_listens_where_this_one_is_to_listen_is_another() -> None:
    async def scenario(store: MemoryStore) -> None:
        await register(store, port=9092)
        with pytest.raises(BrokerIdInUse):
            await check_broker_id(1, a_config(), store, [a_directory(1)], listening(9092))

    play(scenario)


def test_a_proxy_that_listens_in_the_name_of_a_dead_broker_is_no_broker() -> None:
    async def scenario(store: MemoryStore) -> None:
        await register(store, port=30_000)
        await check_broker_id(1, a_config(port=9092, advertised_port=30_000), store, [a_directory(1)], listening(30_000))

    play(scenario)


def test_a_broker_that_died_a_moment_ago_is_waited_for_before_new_directories_are_marked() -> None:
    async def scenario(store: MemoryStore) -> None:
        other = await register(store, port=9093)
        loop = asyncio.get_running_loop()
        loop.call_later(3, lambda: store.ensemble.expire(other.session_id))
        began = loop.time()
        await check_broker_id(1, a_config(), store, [a_directory()], never_listening)
        assert loop.time() - began >= 3

    play(scenario)


def test_a_registration_that_stays_is_refused_in_the_end() -> None:
    async def scenario(store: MemoryStore) -> None:
        await register(store, port=9093)
        with pytest.raises(BrokerIdInUse):
            await check_broker_id(1, a_config(), store, [a_directory()], never_listening)

    play(scenario)


def test_a_malformed_registration_is_waited_for_as_any_other() -> None:
    async def scenario(store: MemoryStore) -> None:
        other = await register(store, port=9093)
        await other.set("/brokers/ids/1", b"{")
        loop = asyncio.get_running_loop()
        loop.call_later(3, lambda: store.ensemble.expire(other.session_id))
        await check_broker_id(1, a_config(), store, [a_directory()], never_listening)
        await register(store, port=9093)
        await store.set("/brokers/ids/1", b"{")
        with pytest.raises(BrokerIdInUse):
            await check_broker_id(1, a_config(), store, [a_directory()], never_listening)
        await check_broker_id(1, a_config(), store, [a_directory(1)], never_listening)

    play(scenario)


def test_a_broker_that_comes_back_to_its_directories_need_not_wait_before_it_reads_them() -> None:
    async def scenario(store: MemoryStore) -> None:
        await register(store, port=9093)
        began = asyncio.get_running_loop().time()
        await check_broker_id(1, a_config(), store, [a_directory(1)], never_listening)
        assert asyncio.get_running_loop().time() == began

    play(scenario)


class Foreign(MemoryStore):
    """Some nodes belong to another identity."""

    def __init__(self, ensemble: MemoryEnsemble, *foreign: str) -> None:
        super().__init__(ensemble)
        self.foreign = foreign
        self.asked: list[str] = []

    async def forbidden(self, paths: Sequence[str]) -> list[str]:
        self.asked += paths
        return [path for path in paths if path in self.foreign]


def test_nodes_and_registrations_of_another_identity_are_refused() -> None:
    async def scenario(store: MemoryStore) -> None:
        await register(store, port=9093)
        for foreign, named in (
            (("/brokers/ids/1",), "/brokers/ids/1, which"),
            (("/config/users", "/config/topics", "/brokers", "/admin", "/feature"), "/admin, /brokers, /feature and 2 more, which"),
            (("/cluster/id", "/delegation_token/tokens"), "/cluster/id, /delegation_token/tokens, which"),
        ):
            other = Foreign(store.ensemble, *foreign)
            await other.open_session()
            complaint = (
                f"^zookeeper.connect=unused:2181 without a login: ZooKeeper does not let this broker change {named} belong to another"
            )
            with pytest.raises(NoAuth, match=complaint):
                await check_znodes(a_config(), other)
            await check_acl_znodes(a_config(), other)
            assert "/consumers" not in other.asked
            assert len(other.asked) == len(set(other.asked))
            await other.close()
        await check_znodes(a_config(), store)

    play(scenario)


def test_nodes_of_acls_of_another_identity_are_refused() -> None:
    async def scenario(store: MemoryStore) -> None:
        other = Foreign(store.ensemble, "/kafka-acl-changes")
        await other.open_session()
        await check_znodes(a_config(), other)
        with pytest.raises(NoAuth, match="change /kafka-acl-changes, which belong to another identity: all brokers of a cluster need"):
            await check_acl_znodes(a_config(), other)
        await other.close()

    play(scenario)


def test_a_broker_without_a_configuration_of_its_own_has_the_problems_of_its_file() -> None:
    async def scenario(store: MemoryStore) -> None:
        problem = ConfigError("no key")
        for broker_id in (None, 1):
            with pytest.raises(ConfigError, match="no key"):
                await check_configuration_may_differ(store, broker_id, problem)
        await store.create("/config/brokers/2", b"{}")
        with pytest.raises(ConfigError, match="no key"):
            await check_configuration_may_differ(store, 1, problem)
        await check_configuration_may_differ(store, 2, problem)
        await store.delete("/config/brokers/2")

    play(scenario)
