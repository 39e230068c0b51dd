"""AlterUserScramCredentials: which changes are refused with which words, and what is stored."""

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest

from ottla.controller.admin.config_admin import ConfigAdmin
from ottla.controller.admin.scram_credentials import (
    DONE,
    EMPTY_NAME,
    IMPOSSIBLE_NAME,
    MISSING,
    TOO_FEW,
    TOO_MANY,
    TWICE,
    UNKNOWN_MECHANISM,
    Deletion,
    Outcome,
    Upsertion,
    alter_scram_credentials,
    secret_for_unknown_users,
)
from tests.support.controlled_cluster import BrokerUnderTest, new_ensemble


def upsertion(user: str, mechanism: int = 1, iterations: int = 4096) -> Upsertion:
    return Upsertion(user, mechanism, iterations, b"salt", bytes(32))


def run(scenario: Callable[[ConfigAdmin], Awaitable[None]]) -> None:
    async def play() -> None:
        node = BrokerUnderTest(new_ensemble())
        await node.start()
        try:
            await scenario(ConfigAdmin(node.store, 0, node.config))
        finally:
            await node.stop()

    asyncio.run(play())


CASES: list[tuple[str, list[Deletion], list[Upsertion], dict[str, Outcome]]] = [
    ("empty names", [Deletion("", 1)], [upsertion("")], {"": EMPTY_NAME}),
    ("unknown mechanisms", [Deletion("a", 0)], [upsertion("b", 3)], {"a": UNKNOWN_MECHANISM, "b": UNKNOWN_MECHANISM}),
    ("iterations", [], [upsertion("a", 1, 4095), upsertion("b", 2, 16385)], {"a": TOO_FEW, "b": TOO_MANY}),
    ("bounds of iterations", [], [upsertion("a", 1, 4096), upsertion("b", 2, 16384)], {"a": DONE, "b": DONE}),
    ("the same twice", [Deletion("a", 1)], [upsertion("a", 1), upsertion("b")], {"a": TWICE, "b": DONE}),
    ("both mechanisms", [], [upsertion("a", 1), upsertion("a", 2)], {"a": DONE}),
    ("a credential that is not there", [Deletion("a", 1), Deletion("kim", 1)], [], {"a": MISSING, "kim": DONE}),
    ("one of two is not there", [Deletion("kim", 1), Deletion("kim", 2)], [], {"kim": MISSING}),
    ("one bad of a user", [], [upsertion("a", 1), upsertion("a", 9)], {"a": UNKNOWN_MECHANISM}),
    ("steps of a path", [Deletion("..", 1)], [upsertion("."), upsertion("a")], {"..": IMPOSSIBLE_NAME, ".": IMPOSSIBLE_NAME, "a": DONE}),
    ("names that a path can have encoded", [], [upsertion("a/b"), upsertion("\x01")], {"a/b": DONE, "\x01": DONE}),
    ("nothing", [], [], {}),
]


@pytest.mark.parametrize(("deletions", "upsertions", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_user_is_answered_once(deletions: list[Deletion], upsertions: list[Upsertion], expected: dict[str, Outcome]) -> None:
    async def scenario(admin: ConfigAdmin) -> None:
        await alter_scram_credentials(admin, [], [upsertion("kim")])
        outcomes = await alter_scram_credentials(admin, deletions, upsertions)
        assert dict(outcomes) == expected
        assert len(outcomes) == len(expected)
        for user, outcome in expected.items():
            if user and outcome != DONE:
                assert set(await admin.read("users", user)) == ({"SCRAM-SHA-256"} if user == "kim" else set())

    run(scenario)


def test_quotas_of_a_user_stay_when_credentials_change() -> None:
    async def scenario(admin: ConfigAdmin) -> None:
        await admin.alter_entity_config("users", "we%20ird", lambda _: {"producer_byte_rate": "5"})
        await alter_scram_credentials(admin, [], [upsertion("we ird", 2)])
        assert set(await admin.read("users", "we%20ird")) == {"producer_byte_rate", "SCRAM-SHA-512"}
        await alter_scram_credentials(admin, [Deletion("we ird", 2)], [])
        assert await admin.read("users", "we%20ird") == {"producer_byte_rate": "5"}

    run(scenario)


def test_all_brokers_have_one_secret_for_unknown_users() -> None:
    async def play() -> None:
        ensemble = new_ensemble()
        stores = [ensemble.store() for _ in range(2)]
        for store in stores:
            await store.open_session()
        secrets = await asyncio.gather(*(secret_for_unknown_users(store, os.urandom) for store in stores))
        after_a_restart = await secret_for_unknown_users(stores[0], os.urandom)
        assert {*secrets} == {after_a_restart}
        assert len(after_a_restart) == 64

    asyncio.run(play())
