"""Dynamic passwords: stored encrypted, in force decrypted, and encrypted anew when the secret changes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from ottla.broker.configuration.dynamic_config import DynamicConfig
from ottla.config.passwords import CBC, PasswordEncoder
from ottla.controller.admin.config_admin import ConfigAdmin, ConfigOp, OpType
from ottla.controller.errors import InvalidAdminRequest, InvalidTopicConfig
from tests.support.controlled_cluster import BrokerUnderTest, new_ensemble

NAME = "listener.name.x.ssl.keystore.password"
SALTS = iter(range(1, 10_000))


def an_encoder(secret: str) -> PasswordEncoder:
    return PasswordEncoder(secret, None, CBC, 128, 1024, lambda size: next(SALTS).to_bytes(size, "big"))


def an_admin(node: BrokerUnderTest, secret: str | None) -> ConfigAdmin:
    return ConfigAdmin(node.store, node.broker_id, node.config, None if secret is None else an_encoder(secret))


async def load(node: BrokerUnderTest, admin: ConfigAdmin, old: str | None = None) -> DynamicConfig:
    old_encoder = None if old is None else an_encoder(old)
    dynamic = DynamicConfig(node.config, node.store, admin, node.broker_id, node.ensemble.clock, old_encoder)
    await dynamic.load()
    return dynamic


def run(scenario: Callable[[BrokerUnderTest], Awaitable[None]]) -> None:
    async def play() -> None:
        node = BrokerUnderTest(new_ensemble())
        await node.start()
        try:
            await scenario(node)
        finally:
            await node.stop()

    asyncio.run(play())


def test_a_password_is_stored_encrypted_and_is_in_force() -> None:
    async def scenario(node: BrokerUnderTest) -> None:
        admin = an_admin(node, "secret")
        await admin.alter_broker_configs("0", [ConfigOp(NAME, "pass,word", OpType.SET), ConfigOp("num.io.threads", "9", OpType.SET)])
        stored = await admin.read("brokers", "0")
        assert stored["num.io.threads"] == "9"
        assert "pass,word" not in stored[NAME]
        dynamic = await load(node, an_admin(node, "secret"))
        assert node.config.dynamic_broker[NAME] == "pass,word"
        await dynamic.close()

    run(scenario)


def test_a_change_of_something_else_leaves_what_is_stored() -> None:
    async def scenario(node: BrokerUnderTest) -> None:
        admin = an_admin(node, "secret")
        await admin.alter_broker_configs("0", [ConfigOp(NAME, "password", OpType.SET)])
        before = await admin.read("brokers", "0")
        await admin.alter_broker_configs("0", [ConfigOp("num.io.threads", "9", OpType.SET)])
        assert await admin.read("brokers", "0") == {**before, "num.io.threads": "9"}
        await admin.alter_broker_configs("0", [ConfigOp(NAME, None, OpType.DELETE)])
        assert await admin.read("brokers", "0") == {"num.io.threads": "9"}

    run(scenario)


def test_a_password_that_is_only_checked_is_not_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration of a broker is checked before the client's rights, and encrypting is slow."""
    encrypted: list[str] = []

    async def scenario(node: BrokerUnderTest) -> None:
        admin = an_admin(node, "secret")
        assert admin.passwords is not None
        monkeypatch.setattr(admin.passwords, "encode", encrypted.append)
        await admin.alter_broker_configs("0", [ConfigOp(NAME, "password", OpType.SET)], validate_only=True)
        await admin.set_broker_configs("0", {NAME: "password"}, validate_only=True)
        with pytest.raises(InvalidTopicConfig, match="Password encoder secret not configured"):
            await an_admin(node, None).alter_broker_configs("0", [ConfigOp(NAME, "password", OpType.SET)], validate_only=True)
        assert await admin.read("brokers", "0") == {}

    run(scenario)
    assert encrypted == []


@pytest.mark.parametrize("name", [NAME, "listener.name.x.ssl.keystore.pasword", "plugin.secret"])
def test_the_log_shows_neither_a_password_nor_the_value_of_an_unknown_key(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(node: BrokerUnderTest) -> None:
        ops = [ConfigOp(name, "pa55word", OpType.SET), ConfigOp("num.io.threads", "9", OpType.SET)]
        await an_admin(node, "secret").alter_broker_configs("0", ops)

    with caplog.at_level(logging.DEBUG):
        run(scenario)
    assert f"new configuration of brokers/0: {{'{name}': '[hidden]', 'num.io.threads': '9'}}" in caplog.text
    assert "pa55word" not in caplog.text
    assert "encryptedPassword" not in caplog.text


def test_a_password_is_not_for_the_default_of_all_brokers() -> None:
    async def scenario(node: BrokerUnderTest) -> None:
        with pytest.raises(InvalidAdminRequest, match="Cannot update these configs at default cluster level"):
            await an_admin(node, "secret").alter_broker_configs("", [ConfigOp(NAME, "password", OpType.SET)])

    run(scenario)


def test_a_password_of_another_secret_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(node: BrokerUnderTest) -> None:
        await an_admin(node, "secret").alter_broker_configs(
            "0", [ConfigOp(NAME, "password", OpType.SET), ConfigOp("num.io.threads", "9", OpType.SET)]
        )
        dynamic = await load(node, an_admin(node, "other"))
        assert node.config.dynamic_broker == {"num.io.threads": "9"}
        await dynamic.close()

    run(scenario)
    assert f"dynamic password config {NAME} could not be decoded" in caplog.text
    assert "is not the one that it was encrypted with" in caplog.text


def test_a_new_secret_takes_over_with_the_old_one_and_needs_it_no_more_then() -> None:
    async def scenario(node: BrokerUnderTest) -> None:
        await an_admin(node, "old").alter_broker_configs("0", [ConfigOp(NAME, "password", OpType.SET)])
        for old in ("old", "old", None):
            dynamic = await load(node, an_admin(node, "new"), old)
            assert node.config.dynamic_broker == {NAME: "password"}
            await dynamic.close()
        assert an_admin(node, "old").decoded(await an_admin(node, None).read("brokers", "0")) == {}

    run(scenario)


def test_the_old_secret_alone_changes_nothing() -> None:
    async def scenario(node: BrokerUnderTest) -> None:
        admin = an_admin(node, "secret")
        dynamic = await load(node, admin, "old")
        assert await admin.read("brokers", "0") == {}
        await dynamic.close()

    run(scenario)
