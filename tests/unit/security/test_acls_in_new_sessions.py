"""ACLs in a new session of a broker: nothing that changed meanwhile is missed, and clients are served while all are read again."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from ottla.broker.security import rereading
from ottla.broker.security.principals import Principal
from ottla.controller.admin.change_notifications import EXPIRATION_MS
from ottla.controller.errors import StoreError, StoreUnavailable
from ottla.controller.store.metadata_store import Children, Create, Request, Result
from tests.support.acl_brokers import BODY, EVERYTHING, RECORDED, T_READ, Brokers, acls_of, create, run
from tests.support.controlled_cluster import until
from tests.support.pauses import every_pause_waits

ALICE = Principal("User", "alice")


def test_a_lost_session_loses_no_change() -> None:
    async def scenario(brokers: Brokers) -> None:
        one, other = await brokers.add(), await brokers.add()
        await create(one, RECORDED[0])
        await until(lambda: acls_of(other) == {RECORDED[0]})
        brokers.ensemble.expire(brokers.stores[1].session_id)
        await one.delete([EVERYTHING])
        await create(one, T_READ)
        brokers.clock.move(EXPIRATION_MS + 1)
        await create(one, RECORDED[2])
        await brokers.stores[1].open_session()
        await other.on_new_session()
        assert acls_of(other) == {T_READ, RECORDED[2]}
        await create(one, RECORDED[3])
        await until(lambda: RECORDED[3] in acls_of(other))

    run(scenario)


def test_acls_that_a_new_session_cannot_read_are_read_again_until_that_succeeds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rereading, "FIRST_PAUSE_SECONDS", 0.001)

    async def scenario(brokers: Brokers) -> None:
        one, other = await brokers.add(), await brokers.add()
        await create(one, RECORDED[0])
        await until(lambda: acls_of(other) == {RECORDED[0]})
        store = brokers.stores[1]
        pipeline, failures = store.pipeline, 3

        async def failing(requests: Sequence[Request]) -> list[Result | StoreError]:
            nonlocal failures
            if failures and isinstance(requests[0], Children) and requests[0].path == "/kafka-acl":
                failures -= 1
                raise StoreUnavailable("zk:2181", "no answer")
            return await pipeline(requests)

        monkeypatch.setattr(store, "pipeline", failing)
        brokers.ensemble.expire(store.session_id)
        await brokers.stores[0].delete("/kafka-acl/Topic/t")  # its notification is gone, too
        await store.open_session()
        await other.on_new_session()
        assert acls_of(other) == {RECORDED[0]}
        await until(lambda: not acls_of(other))
        assert failures == 0
        assert [line for line in caplog.messages if "again" in line] == [
            "the ACLs cannot be read again (zk:2181: no answer); trying again, and the old ones count until then",
            "the ACLs are read again",
        ]

    caplog.set_level(logging.INFO)
    run(scenario)


@pytest.mark.parametrize("damaged", [b"{", (BODY % ("Maybe", "Read")).encode()])
def test_a_malformed_node_keeps_the_acls_of_no_other_from_being_read_in_a_new_session(
    damaged: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rereading, "FIRST_PAUSE_SECONDS", 0.001)

    async def scenario(brokers: Brokers) -> None:
        one, other = await brokers.add(), await brokers.add()
        await create(one, RECORDED[0])
        await create(one, RECORDED[2])
        await until(lambda: acls_of(other) == {RECORDED[0], RECORDED[2]})
        store = brokers.stores[1]
        brokers.ensemble.expire(store.session_id)
        edited, _ = await brokers.stores[0].get("/kafka-acl/Topic/t")
        await brokers.stores[0].set("/kafka-acl/Topic/t", damaged)
        await brokers.stores[0].delete("/kafka-acl-extended/prefixed/Topic/pre-")
        await store.open_session()
        await other.on_new_session()
        assert acls_of(other) == {RECORDED[0]}
        await brokers.stores[0].delete("/kafka-acl/Topic/t")
        await until(lambda: not acls_of(other))
        assert len([line for line in caplog.messages if "in place of /kafka-acl/Topic/t: /kafka-acl/Topic/t: " in line]) == 1
        await brokers.stores[0].create("/kafka-acl/Topic/t", damaged)
        await brokers.stores[0].create("/kafka-acl-changes/acl_changes_", b"Topic:t", sequential=True)
        await until(lambda: "a change of ACLs is lost: /kafka-acl/Topic/t: " in caplog.text)
        await brokers.stores[0].set("/kafka-acl/Topic/t", edited)
        await until(lambda: acls_of(other) == {RECORDED[0]})

    run(scenario)


def test_clients_are_served_while_very_many_acls_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 200

    async def scenario(brokers: Brokers) -> None:
        raw = brokers.ensemble.store()
        await raw.open_session()
        await raw.ensure_path("/kafka-acl/Topic")
        body = (BODY % ("Allow", "Read")).encode()
        await raw.pipeline([Create(f"/kafka-acl/Topic/t{number}", body) for number in range(count)])
        every_pause_waits()
        admin = await brokers.add()
        store = brokers.stores[0]
        pipeline, round_trips, turns = store.pipeline, 0, 0

        async def counted(requests: Sequence[Request]) -> list[Result | StoreError]:
            nonlocal round_trips
            round_trips += 1
            return await pipeline(requests)

        async def other_work() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        monkeypatch.setattr(store, "pipeline", counted)
        await raw.delete("/kafka-acl/Topic/t0")
        work = asyncio.get_running_loop().create_task(other_work())
        await admin.on_new_session()
        work.cancel()
        assert turns > round_trips + count
        assert len(acls_of(admin)) == count - 1

    run(scenario)
