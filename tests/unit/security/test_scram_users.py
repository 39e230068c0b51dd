"""SCRAM credentials that a broker knows, and what becomes of them in a new session with the metadata store."""

import asyncio
import os
from collections.abc import Sequence

import pytest

from ottla.broker.configuration.dynamic_config import DynamicConfig
from ottla.broker.configuration.scram_credentials import ScramCredentials
from ottla.broker.security import rereading
from ottla.controller.admin.config_admin import ConfigAdmin, Malformed
from ottla.controller.admin.scram_credentials import Deletion, Upsertion, alter_scram_credentials
from ottla.controller.errors import StoreError, StoreUnavailable
from ottla.controller.store.metadata_store import Children, Request, Result
from tests.support.controlled_cluster import BrokerUnderTest, new_ensemble, until


def test_a_user_that_was_deleted_unnoticed_is_forgotten_in_a_new_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rereading, "FIRST_PAUSE_SECONDS", 0.001)

    async def play() -> None:
        node = BrokerUnderTest(new_ensemble())
        await node.start()
        admin = ConfigAdmin(node.store, 0, node.config)
        dynamic = DynamicConfig(node.config, node.store, admin, 0, node.ensemble.clock)
        credentials = ScramCredentials(admin, dynamic, os.urandom)

        def known() -> list[str]:
            return [user for user in ("a,lice", "bob") if credentials.credential_of("SCRAM-SHA-256", user) is not None]

        added = [Upsertion(user, 1, 4096, b"salt", bytes(32)) for user in ("a,lice", "bob")]
        await alter_scram_credentials(admin, [], added)
        await credentials.load()
        assert known() == ["a,lice", "bob"]
        pipeline, failures = node.store.pipeline, 3

        async def failing(requests: Sequence[Request]) -> list[Result | StoreError]:
            nonlocal failures
            if failures and isinstance(requests[0], Children) and requests[0].path == "/config/users":
                failures -= 1
                raise StoreUnavailable("zk:2181", "no answer")
            return await pipeline(requests)

        monkeypatch.setattr(node.store, "pipeline", failing)
        await node.store.delete("/config/users/a%2Clice")  # its notification is gone, too
        await credentials.on_new_session()
        assert known() == ["a,lice", "bob"]
        await until(lambda: known() == ["bob"])
        assert failures == 0
        await credentials.close()
        await node.stop()

    asyncio.run(play())


def test_a_malformed_user_has_no_credential_and_keeps_no_other_from_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rereading, "FIRST_PAUSE_SECONDS", 0.001)

    async def play() -> None:
        node = BrokerUnderTest(new_ensemble())
        await node.start()
        admin = ConfigAdmin(node.store, 0, node.config)
        credentials = ScramCredentials(admin, DynamicConfig(node.config, node.store, admin, 0, node.ensemble.clock), os.urandom)

        def known() -> list[str]:
            return [user for user in ("alice", "bob") if credentials.credential_of("SCRAM-SHA-256", user) is not None]

        await alter_scram_credentials(admin, [], [Upsertion(user, 1, 4096, b"salt", bytes(32)) for user in ("alice", "bob")])
        stored, _ = await node.store.get("/config/users/alice")
        await node.store.set("/config/users/alice", b"{")
        await credentials.load()
        assert known() == ["bob"]
        await node.store.set("/config/users/alice", stored)
        await until(lambda: known() == ["alice", "bob"])
        await node.store.set("/config/users/alice", b"{")
        await node.store.delete("/config/users/bob")
        await credentials.on_new_session()
        assert known() == ["alice"]
        await credentials.close()
        await node.stop()

    asyncio.run(play())


def test_a_user_that_is_deleted_while_all_are_read_is_not_known_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        node = BrokerUnderTest(new_ensemble())
        await node.start()
        admin = ConfigAdmin(node.store, 0, node.config)
        dynamic = DynamicConfig(node.config, node.store, admin, 0, node.ensemble.clock)
        credentials = ScramCredentials(admin, dynamic, os.urandom)
        await dynamic.load()
        await alter_scram_credentials(admin, [], [Upsertion("bob", 1, 4096, b"salt", bytes(32))])
        await dynamic.catch_up()
        assert credentials.credential_of("SCRAM-SHA-256", "bob") is not None
        read_all = admin.read_all

        async def overtaken(entity_type: str, malformed: Malformed | None = None) -> dict[str, dict[str, str]]:
            found = await read_all(entity_type, malformed)
            await alter_scram_credentials(admin, [Deletion("bob", 1)], [])
            for _ in range(100):
                await asyncio.sleep(0)  # a broker that does not wait applies the deletion now
            return found

        monkeypatch.setattr(admin, "read_all", overtaken)
        await credentials.load()
        await until(lambda: credentials.credential_of("SCRAM-SHA-256", "bob") is None)
        await dynamic.close()
        await node.stop()

    asyncio.run(play())
