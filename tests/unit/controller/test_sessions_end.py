"""A controller whose session with the store ends at the worst moments still is active whenever it holds /controller."""

import asyncio

import pytest

from ottla.controller import controller
from ottla.controller.errors import NoNode
from ottla.controller.registration import register_broker
from ottla.controller.store.metadata_store import MetadataStore
from ottla.controller.znodes.layout import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    BrokerRegistration,
    ControllerNode,
    broker_id_path,
    encode_controller,
)
from tests.support.controlled_cluster import BrokerUnderTest, Cluster, new_ensemble, run, until


def test_a_session_that_ends_while_its_broker_registers_leaves_an_active_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "SESSION_RETRY_SECONDS", 0)

    async def scenario(cluster: Cluster) -> None:
        broker = cluster.brokers[0]
        sessions = []
        open_session = broker.store.open_session

        async def expiring() -> int:
            session = await open_session()
            sessions.append(session)
            if len(sessions) == 1:
                asyncio.get_running_loop().call_soon(cluster.ensemble.expire, session)
            return session

        monkeypatch.setattr(broker.store, "open_session", expiring)
        cluster.ensemble.expire(broker.store.session_id)
        await until(lambda: broker.controller.is_active)
        await cluster.settle()
        await until(lambda: not broker.controller.event_queue_size)
        assert len(sessions) > 1
        assert broker.controller.is_active
        assert await owner_of_controller(broker.store) == broker.store.session_id

    run(scenario, brokers=1)


def test_a_registration_that_fails_for_any_reason_is_tried_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(controller, "SESSION_RETRY_SECONDS", 0)

    async def scenario(cluster: Cluster) -> None:
        broker = cluster.brokers[1]
        registered: list[int] = []

        async def on_new_session() -> None:
            registered.append(broker.controller.broker_epoch)

        def failing() -> BrokerRegistration:
            monkeypatch.setattr(broker.controller, "_registration", broker.registration)
            raise ValueError("a fault")

        broker.controller.on_new_session(on_new_session)
        monkeypatch.setattr(broker.controller, "_registration", failing)
        cluster.ensemble.expire(broker.store.session_id)
        await until(lambda: bool(registered))
        assert "cannot register again after its session expired (a fault)" in caplog.text
        await cluster.settle()
        assert (await broker.store.get(broker_id_path(1)))[1].czxid == registered[0]

    run(scenario)


def test_a_controller_node_that_was_left_behind_is_replaced() -> None:
    async def scenario(cluster: Cluster) -> None:
        heir = cluster.brokers[1]
        data = encode_controller(ControllerNode(1, 0))
        cluster.ensemble.expire(cluster.brokers[0].store.session_id)
        # As after an election whose answer was lost, and whose epoch is not the one that was asked for.
        await heir.store.create(CONTROLLER, data, ephemeral=True)
        await until(lambda: heir.controller.is_active or cluster.brokers[0].controller.is_active or cluster.brokers[2].controller.is_active)
        await cluster.settle()
        active = [broker for broker in cluster.brokers.values() if broker.controller.is_active]
        assert len(active) == 1
        assert await owner_of_controller(heir.store) == active[0].store.session_id
        assert int((await heir.store.get(CONTROLLER_EPOCH))[0] or b"") == active[0].controller.context.epoch == 2

    run(scenario)


def test_a_registration_that_the_store_refuses_is_not_tried_for_ever() -> None:
    async def scenario() -> None:
        broker = BrokerUnderTest(new_ensemble())  # its tree has no /brokers/ids
        await broker.store.open_session()
        with pytest.raises(NoNode):
            await asyncio.wait_for(register_broker(broker.store, 0, broker.registration()), 10)
        await broker.store.close()

    asyncio.run(scenario())


async def owner_of_controller(store: MetadataStore) -> int:
    return (await store.get(CONTROLLER))[1].ephemeral_owner
