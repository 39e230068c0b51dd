"""AlterClientQuotas in Apache Kafka's words and znodes."""

import asyncio
import math
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.handlers.configs.alter_client_quotas import can_resolve
from ottla.controller.admin import client_quotas
from ottla.controller.admin.client_quotas import QuotaOp, alter_client_quotas, java_double
from ottla.controller.admin.config_admin import ConfigAdmin
from ottla.controller.errors import ControllerError, InvalidAdminRequest
from tests.support.controlled_cluster import BrokerUnderTest, new_ensemble


async def resolves(host: str) -> bool:
    return host in ("10.0.0.1", "localhost")


def run(scenario: Callable[[BrokerUnderTest, ConfigAdmin], Awaitable[None]]) -> None:
    async def play() -> None:
        node = BrokerUnderTest(new_ensemble())
        await node.start()
        try:
            await scenario(node, ConfigAdmin(node.store, 0, node.config))
        finally:
            await node.stop()

    asyncio.run(play())


def nodes(node: BrokerUnderTest) -> dict[str, str | None]:
    return {
        path: None if found.data is None else found.data.decode()
        for path, found in node.ensemble.dump().items()
        if path.startswith(("/config/users/", "/config/clients/", "/config/ips/"))
    }


REFUSED: list[tuple[dict[str, str | None], list[QuotaOp], str]] = [
    ({}, [], "Invalid empty client quota entity"),
    ({"group": "g"}, [], "Unhandled client quota entity type: group"),
    ({"user": ""}, [], "Empty user not supported"),
    ({"user": "."}, [], ". cannot be the name of a user: ZooKeeper reads it as a step of a path"),
    ({"user": "a", "client-id": ".."}, [], ".. cannot be the name of a client-id: ZooKeeper reads it as a step of a path"),
    ({"ip": "10.0.0.1", "user": "u"}, [], "Invalid quota entity combination, IP entity should not be used with user/client ID entity."),
    ({"ip": "nowhere"}, [], "nowhere is not a valid IP or resolvable host."),
    ({"ip": "fe80::1%lo"}, [], "fe80::1%25lo is not a valid IP or resolvable host."),
    ({"client-id": "c"}, [QuotaOp("no_such", 1.0)], "Invalid configuration key no_such"),
    ({"client-id": "c"}, [QuotaOp("connection_creation_rate", 1.0)], "Invalid configuration key connection_creation_rate"),
    ({"ip": None}, [QuotaOp("producer_byte_rate", 1.0)], "Invalid configuration key producer_byte_rate"),
    ({"user": "u"}, [QuotaOp("producer_byte_rate", 1.5)], "Configuration producer_byte_rate must be a LONG value"),
    ({"user": "u"}, [QuotaOp("producer_byte_rate", math.inf)], "Configuration producer_byte_rate must be a LONG value"),
    ({"ip": None}, [QuotaOp("connection_creation_rate", 0.5)], "Configuration connection_creation_rate must be a INT value"),
    ({"ip": None}, [QuotaOp("connection_creation_rate", -1.0)], "Configuration connection_creation_rate must be a INT value"),
    ({"ip": None}, [QuotaOp("connection_creation_rate", 3e9)], "Configuration connection_creation_rate must be a INT value"),
]


@pytest.mark.parametrize(("entity", "ops", "message"), REFUSED, ids=[f"{ops} {message}" for _, ops, message in REFUSED])
def test_a_bad_change_is_refused_in_kafkas_words_and_nothing_is_written(
    entity: dict[str, str | None], ops: list[QuotaOp], message: str
) -> None:
    async def scenario(node: BrokerUnderTest, admin: ConfigAdmin) -> None:
        with pytest.raises(InvalidAdminRequest) as refused:
            await alter_client_quotas(admin, entity, [QuotaOp("request_percentage", None), *ops], resolves, validate_only=False)
        assert str(refused.value) == message
        assert nodes(node) == {}

    run(scenario)


def test_an_address_with_an_interface_is_no_host() -> None:
    assert asyncio.run(can_resolve("fe80::1"))
    assert not asyncio.run(can_resolve("fe80::1%25lo"))


def test_the_node_of_an_address_has_its_colons() -> None:
    """Apache Kafka 3.9.1 sanitizes the address and refuses it then. With such a node it does not start; it takes one with colons."""

    async def scenario(node: BrokerUnderTest, admin: ConfigAdmin) -> None:
        await alter_client_quotas(admin, {"ip": "::1"}, [QuotaOp("connection_creation_rate", 3.0)], can_resolve, validate_only=False)
        assert list(nodes(node)) == ["/config/ips/::1"]

    run(scenario)


def test_a_credential_is_no_quota() -> None:
    async def scenario(node: BrokerUnderTest, admin: ConfigAdmin) -> None:
        with pytest.raises(ControllerError) as refused:
            await alter_client_quotas(admin, {"user": "u"}, [QuotaOp("SCRAM-SHA-256", 1.0)], resolves, validate_only=False)
        assert type(refused.value) is ControllerError  # which is UNKNOWN_SERVER_ERROR, as in Apache Kafka
        assert nodes(node) == {}

    run(scenario)


def test_nothing_is_written_to_validate() -> None:
    async def scenario(node: BrokerUnderTest, admin: ConfigAdmin) -> None:
        await alter_client_quotas(admin, {"user": "u"}, [QuotaOp("request_percentage", 1.0)], resolves, validate_only=True)
        assert nodes(node) == {}

    run(scenario)


def test_an_entity_without_quotas_vanishes_with_the_nodes_that_only_led_there() -> None:
    async def scenario(node: BrokerUnderTest, admin: ConfigAdmin) -> None:
        async def alter(entity: dict[str, str | None], value: float | None) -> None:
            await alter_client_quotas(admin, entity, [QuotaOp("request_percentage", value)], resolves, validate_only=False)

        await alter({"user": "u"}, 1.0)
        await alter({"user": "u", "client-id": "c"}, 2.0)
        await alter({"user": "u", "client-id": None}, 3.0)
        await alter({"user": "u"}, None)
        assert nodes(node)["/config/users/u"] == '{"version":1,"config":{}}'
        await alter({"user": "u", "client-id": "c"}, None)
        assert sorted(nodes(node)) == ["/config/users/u", "/config/users/u/clients", "/config/users/u/clients/<default>"]
        await alter({"user": "u", "client-id": None}, None)
        assert nodes(node) == {}
        await alter({"user": "nobody"}, None)
        assert nodes(node) == {}

    run(scenario)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (50.5, "50.5"), (5.0, "5.0"), (0.0, "0.0"), (-0.0, "-0.0"), (1e7, "1.0E7"), (9999999.0, "9999999.0"), (12345678.9, "1.23456789E7"),
        (0.001, "0.001"), (0.0001, "1.0E-4"), (0.00012, "1.2E-4"), (1e300, "1.0E300"), (1.5e-10, "1.5E-10"), (-2.25, "-2.25"),
        (123456.789, "123456.789"), (math.inf, "Infinity"), (-math.inf, "-Infinity"), (math.nan, "NaN"), (100.0, "100.0"),
    ],
)  # fmt: skip
def test_numbers_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert java_double(value) == text


@settings(max_examples=200, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_what_is_written_is_the_same_number(value: float) -> None:
    assert float(java_double(value)) == value


def test_very_many_changes_of_one_entity_are_checked_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(node: BrokerUnderTest, admin: ConfigAdmin) -> None:
        pauses = 0

        async def pause() -> None:
            nonlocal pauses
            pauses += 1

        monkeypatch.setattr(client_quotas, "pause", pause)
        ops = [QuotaOp("producer_byte_rate", float(value)) for value in range(100)]
        ops += [QuotaOp("consumer_byte_rate", 1.0), QuotaOp("consumer_byte_rate", None)]
        await alter_client_quotas(admin, {"user": "u"}, ops, resolves, validate_only=False)
        assert pauses == len(ops)
        assert await admin.read_all("users") == {"u": {"producer_byte_rate": "99"}}

    run(scenario)
