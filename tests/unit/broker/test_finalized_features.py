"""The finalized features follow /feature, whatever happens to the node."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from ottla.broker.cluster.features import NO_EPOCH, FinalizedFeatures, UnsupportedFeatures
from ottla.config.broker import BrokerConfig
from ottla.controller.admin.features import finalize_in_new_cluster
from ottla.controller.store.memory_store import MemoryEnsemble, MemoryStore
from ottla.controller.znodes.layout import FEATURE, FeatureNode, encode_feature
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.protocol import features
from tests.support.clocks import ManualClock
from tests.support.handler_bench import on_a_loop

MADE_UP = "made.up"


@pytest.fixture(autouse=True)
def implemented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "IMPLEMENTED", {MADE_UP: 2})


class Stage:
    """A store with features that follow it."""

    def __init__(self) -> None:
        self.store = MemoryStore(MemoryEnsemble(ManualClock()))
        self.ends = 0
        self.changes: list[int] = []
        self.features = FinalizedFeatures(self.store, self._end)
        self.features.on_change(lambda: self.changes.append(self.features.level(MADE_UP)))

    def _end(self) -> None:
        self.ends += 1

    async def put(self, data: bytes) -> None:
        """Write the node, and wait until it was read."""
        if await self.store.exists(FEATURE) is None:
            await self.store.create(FEATURE, data)
        else:
            await self.store.set(FEATURE, data)
        await self.seen()

    async def seen(self) -> None:
        """Wait for the readings that a change has begun."""
        for _ in range(20):
            await asyncio.sleep(0)


def staged(scenario: Callable[[Stage], Coroutine[None, None, None]]) -> Callable[[], None]:
    @on_a_loop
    async def test() -> None:
        stage = Stage()
        await stage.store.open_session()
        await scenario(stage)
        await stage.features.close()

    test.__name__ = scenario.__name__
    return test


def body(level: int = 1, name: str = MADE_UP) -> bytes:
    return encode_feature(FeatureNode({name: level}))


@staged
async def test_a_cluster_without_the_node_has_no_feature(stage: Stage) -> None:
    await stage.features.load()
    assert (stage.features.levels, stage.features.epoch) == ({}, NO_EPOCH)
    assert stage.features.level(MADE_UP) == 0


@staged
async def test_a_node_that_is_created_changed_and_deleted_is_followed(stage: Stage) -> None:
    await stage.features.load()
    await stage.put(body(1))
    assert (stage.features.level(MADE_UP), stage.features.epoch) == (1, 0)
    await stage.put(body(2))
    assert (stage.features.level(MADE_UP), stage.features.epoch) == (2, 1)
    await stage.store.delete(FEATURE)
    await stage.seen()
    assert (stage.features.level(MADE_UP), stage.features.epoch) == (0, NO_EPOCH)
    await stage.put(body(1))
    assert stage.features.level(MADE_UP) == 1
    assert stage.changes == [1, 2, 0, 1]


@staged
async def test_a_write_without_a_change_of_levels_changes_the_epoch_alone(stage: Stage) -> None:
    await stage.put(body(1))
    await stage.features.load()
    await stage.put(body(1))
    assert stage.features.epoch == 1
    assert stage.changes == [1]


@staged
async def test_features_that_are_not_versioned_count_as_none(stage: Stage) -> None:
    await stage.put(encode_feature(FeatureNode({MADE_UP: 1}, is_enabled=False)))
    await stage.features.load()
    assert (stage.features.levels, stage.features.epoch) == ({}, NO_EPOCH)


@pytest.mark.parametrize("data", [body(3), body(1, "unknown")])
def test_an_unsupported_level_ends_the_start(data: bytes) -> None:
    @staged
    async def scenario(stage: Stage) -> None:
        await stage.put(data)
        with pytest.raises(UnsupportedFeatures, match=r"this release supports made\.up=2: start a newer release"):
            await stage.features.load()
        assert stage.ends == 0

    scenario()


@staged
async def test_an_unsupported_level_ends_a_running_broker(stage: Stage) -> None:
    await stage.put(body(1))
    await stage.features.load()
    await stage.put(body(3))
    assert stage.ends == 1
    assert stage.features.level(MADE_UP) == 1


@staged
async def test_garbage_ends_the_start_alone(stage: Stage) -> None:
    await stage.put(b"{")
    with pytest.raises(MalformedZNode, match="/feature: not JSON"):
        await stage.features.load()


def test_of_a_node_with_garbage_a_running_broker_keeps_the_levels_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    @staged
    async def scenario(stage: Stage) -> None:
        await stage.put(body(1))
        await stage.features.load()
        await stage.put(b"{")
        await stage.put(b"{")
        assert (stage.features.level(MADE_UP), stage.ends) == (1, 0)
        await stage.put(body(2))
        assert stage.features.level(MADE_UP) == 2

    scenario()
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 2  # one per write
    assert "/feature: not JSON" in errors[0]


@staged
async def test_a_new_session_reads_the_node_again(stage: Stage) -> None:
    await stage.put(body(1))
    await stage.features.load()
    other = MemoryStore(stage.store.ensemble)
    await other.open_session()
    stage.store.ensemble.expire(stage.store.session_id)
    await other.set(FEATURE, body(2))
    await stage.store.open_session()
    assert stage.features.level(MADE_UP) == 1
    await stage.features.reload()
    assert stage.features.level(MADE_UP) == 2
    await stage.put(body(1))
    assert stage.features.level(MADE_UP) == 1


@staged
async def test_a_writer_waits_until_its_change_was_seen(stage: Stage) -> None:
    await stage.put(body(1))
    await stage.features.load()
    waiting = asyncio.ensure_future(stage.features.seen(1, 60_000))
    await stage.seen()
    assert not waiting.done()
    await stage.put(body(2))
    assert await waiting
    assert await stage.features.seen(1, 0)
    assert not await stage.features.seen(2, 0)


@pytest.mark.parametrize(("protocol", "expected"), [("3.9", {MADE_UP: 2}), ("2.7", {MADE_UP: 2}), ("2.6", {})])
def test_a_new_cluster_of_its_own_has_all_features_if_all_brokers_know_them(protocol: str, expected: dict[str, int]) -> None:
    @staged
    async def scenario(stage: Stage) -> None:
        config = BrokerConfig({"inter.broker.protocol.version": protocol})
        await finalize_in_new_cluster(stage.store, config)
        await finalize_in_new_cluster(stage.store, config)
        await stage.features.load()
        assert stage.features.levels == expected

    scenario()


@staged
async def test_an_old_cluster_keeps_its_levels(stage: Stage) -> None:
    await stage.put(encode_feature(FeatureNode({})))
    await finalize_in_new_cluster(stage.store, BrokerConfig({}))
    await stage.features.load()
    assert (stage.features.levels, stage.features.epoch) == ({}, 0)
