"""AlterClientQuotas and AlterUserScramCredentials: the recorded requests bring the recorded answers and leave the recorded znodes."""

import json
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ottla.controller.admin.config_admin import Malformed
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from ottla.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialDeletion
from ottla.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.protocol.messages.header import ResponseHeader
from ottla.protocol.schema.message import Struct
from ottla.protocol.schema.registry import api
from tests.support.golden_frames import golden_frames
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.wire_client import WireClient, a_wire_client

GOLDEN = Path(__file__).parents[2] / "golden" / "zookeeper"
QUOTAS, CREDENTIALS = ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with a_broker_in_process(tmp_path) as running:
        yield running


@pytest.fixture
def client(broker: InProcessBroker) -> Iterator[WireClient]:
    with a_wire_client(broker.port) as connected:
        yield connected


def exchanges(capture: str, key: ApiKey) -> list[tuple[bytes, bytes, int]]:
    """Request, response and version of each exchange of a capture."""
    frames = [frame for frame in golden_frames(capture) if frame.api.key == key]
    return [(asked.data, answer.data, asked.version) for asked, answer in zip(frames[::2], frames[1::2], strict=True)]


def recorded_nodes(moment: str) -> dict[str, str | None]:
    tree = json.loads((GOLDEN / f"{moment}.json").read_text())["tree"]
    return {node["path"]: node["data"] for node in tree if is_entity(node["path"])}


def is_entity(path: str) -> bool:
    return path.startswith(("/config/users/", "/config/clients/", "/config/ips/"))


def nodes(broker: InProcessBroker) -> dict[str, str | None]:
    async def below(path: str) -> dict[str, str | None]:
        data, _ = await broker.services.administration.store.get(path)
        found: dict[str, str | None] = {path: None if data is None else data.decode()}
        for child in await broker.services.administration.store.children(path):
            found |= await below(f"{path}/{child}")
        return found

    return {path: data for path, data in broker.run(below, "/config").items() if is_entity(path)}


def rows(response: Struct, name: str) -> list[str]:
    """In an order of their own: that of Apache Kafka is by hashes."""
    return sorted(map(repr, getattr(response, name)))


def check(client: WireClient, request: bytes, response: bytes, key: ApiKey, version: int, name: str) -> None:
    types = api(key)
    _, at = ResponseHeader.decode(response, types.response_header_version(version), 0)
    expected, _ = types.response.decode(response, version, at)
    assert rows(client.send(request, types, version), name) == rows(expected, name)


def test_the_recorded_quotas_are_answered_and_stored_as_by_apache_kafka(client: WireClient, broker: InProcessBroker) -> None:
    for request, response, version in exchanges("clients", QUOTAS):
        check(client, request, response, QUOTAS, version, "entries")
    expected = {path: data for path, data in recorded_nodes("07-configs-quotas-scram").items() if not path.endswith("/alice")}
    assert nodes(broker) == expected


def test_the_recorded_sweep_of_quotas_is_answered_as_by_apache_kafka(client: WireClient) -> None:
    for request, response, version in exchanges("sweep", QUOTAS):
        check(client, request, response, QUOTAS, version, "entries")


@pytest.mark.parametrize("capture", ["clients", "sasl"])
def test_the_recorded_credentials_are_answered_as_by_apache_kafka(client: WireClient, capture: str) -> None:
    for request, response, version in exchanges(capture, CREDENTIALS):
        check(client, request, response, CREDENTIALS, version, "results")


def test_the_stored_credentials_are_those_of_apache_kafka(client: WireClient, broker: InProcessBroker) -> None:
    ((request, _, version),) = exchanges("sasl", CREDENTIALS)
    client.send(request, api(CREDENTIALS), version)
    assert nodes(broker) == recorded_nodes("security")


def test_the_notifications_name_the_entities(client: WireClient, broker: InProcessBroker) -> None:
    for request, _, version in exchanges("clients", QUOTAS):
        client.send(request, api(QUOTAS), version)

    async def changes() -> list[str]:
        store = broker.services.administration.store
        return [(await store.get(f"/config/changes/{name}"))[0] for name in sorted(await store.children("/config/changes"))]

    told = [json.loads(data)["entity_path"] for data in broker.run(changes)]
    assert told[:3] == ["clients/c1", "users/u1", "users/u1/clients/c1"]
    assert "users/we%20ird%2F%3D%C3%BC/clients/<default>" in told


def alter(client: WireClient, ip: str | None, rate: float | None) -> None:
    op = OpData(key="connection_creation_rate", value=rate or 0.0, remove=rate is None)
    entity = [AlterClientQuotasRequestEntityData(entity_type="ip", entity_name=ip)]
    answer = client.ask(AlterClientQuotasRequest(entries=[AlterClientQuotasRequestEntryData(entity=entity, ops=[op])]), 1)
    assert [entry.error_code for entry in answer.entries] == [0]


def described(client: WireClient) -> dict[str | None, float]:
    components = [ComponentData(entity_type="ip", match_type=2, match=None)]
    answer = client.ask(DescribeClientQuotasRequest(components=components), 1)
    return {entry.entity[0].entity_name: entry.values[0].value for entry in answer.entries}


def is_accepted(broker: InProcessBroker) -> bool:
    with socket.create_connection(("127.0.0.1", broker.port), 10) as connection:
        connection.sendall(bytes.fromhex("0000000a00120000000000010000"))
        try:
            return bool(connection.recv(1))
        except ConnectionError:
            return False


def test_a_malformed_node_keeps_no_other_from_being_described(client: WireClient, broker: InProcessBroker) -> None:
    ((request, _, version),) = exchanges("sasl", CREDENTIALS)
    client.send(request, api(CREDENTIALS), version)

    async def damage() -> None:
        store = broker.services.administration.store
        await store.create("/config/users/bad", b"{")
        await store.create("/config/ips/10.0.0.1", b"{")

    everyone = client.ask(DescribeUserScramCredentialsRequest(users=None), 0).results
    alter(client, "10.0.0.2", 5)
    broker.run(damage)
    bad, *others = sorted(client.ask(DescribeUserScramCredentialsRequest(users=None), 0).results, key=lambda each: each.user != "bad")
    assert (bad.user, bad.error_code, bad.credential_infos) == ("bad", -1, [])
    assert others == everyone
    named = [UserName(name=name) for name in ("bad", everyone[0].user)]
    assert [each.error_code for each in client.ask(DescribeUserScramCredentialsRequest(users=named), 0).results] == [-1, 0]
    assert described(client) == {"10.0.0.2": 5}
    op = OpData(key="connection_creation_rate", value=7.0, remove=False)
    entities = [[AlterClientQuotasRequestEntityData(entity_type="ip", entity_name=f"10.0.0.{number}")] for number in (1, 2)]
    request = AlterClientQuotasRequest(entries=[AlterClientQuotasRequestEntryData(entity=each, ops=[op]) for each in entities])
    assert [each.error_code for each in client.ask(request, 1).entries] == [-1, 0]
    deletions = [ScramCredentialDeletion(name=name, mechanism=mechanism) for name, mechanism in (("bad", 1), (everyone[0].user, 1))]
    answer = client.ask(AlterUserScramCredentialsRequest(deletions=deletions), 0)
    assert {each.user: each.error_code for each in answer.results} == {"bad": -1, everyone[0].user: 0}


@pytest.mark.parametrize("name", [None, "127.0.0.1"])
def test_the_quota_of_an_address_is_in_force_at_once_and_after_a_restart(tmp_path: Path, name: str | None) -> None:
    with a_broker_in_process(tmp_path) as broker, a_wire_client(broker.port) as client:
        alter(client, name, 0)
        assert not is_accepted(broker)
        alter(client, name, None)
        assert is_accepted(broker)
        assert described(client) == {}
        alter(client, name, 5)
        assert described(client) == {name: 5.0}
        alter(client, name, 0)
    with a_broker_in_process(tmp_path) as broker:
        assert not is_accepted(broker)


def part(kind: str, name: str | None) -> ComponentData:
    """The component that selects a name, or every name."""
    return ComponentData(entity_type=kind, match_type=2 if name is None else 0, match=name)


@pytest.mark.parametrize(
    ("components", "strict", "read", "found"),
    [
        ([part("user", "u/")], False, [["u%2F"], ["u%2F/clients/c"]], 2),
        ([part("user", "u/")], True, [["u%2F"]], 1),
        ([part("user", "u/"), part("client-id", "c")], False, [["u%2F/clients/c"]], 1),
        ([part("user", "u/"), part("client-id", None)], True, [["u%2F/clients/c"]], 1),
        ([part("user", "nobody"), part("client-id", None)], True, [[]], 0),
        ([part("user", "..")], True, [[]], 0),
    ],
)
def test_the_quotas_of_a_user_are_found_without_those_of_other_users(
    client: WireClient,
    broker: InProcessBroker,
    monkeypatch: pytest.MonkeyPatch,
    components: list[ComponentData],
    strict: bool,
    read: list[list[str]],
    found: int,
) -> None:
    admin = broker.services.administration.config_admin
    for entity in ("u%2F", "v", "<default>", "u%2F/clients/c", "v/clients/c"):
        broker.run(admin.alter_entity_config, "users", entity, lambda _: {"consumer_byte_rate": "7.5"})
    asked: list[list[str]] = []
    read_many = admin.read_many

    async def noted(entity_type: str, entities: Sequence[str], malformed: Malformed | None = None) -> dict[str, dict[str, str]]:
        asked.append(list(entities))
        return await read_many(entity_type, entities, malformed)

    monkeypatch.setattr(admin, "read_many", noted)
    assert len(client.ask(DescribeClientQuotasRequest(components=components, strict=strict), 1).entries) == found
    assert asked == read


def test_a_broker_that_is_not_the_controller_refuses_credentials(client: WireClient, broker: InProcessBroker) -> None:
    def controller() -> object:
        return broker.services.cluster.controller._core

    broker.run(lambda: setattr(controller(), "is_active", False))
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="b", mechanism=1), ScramCredentialDeletion(name="a", mechanism=1)]
    )
    answer = client.ask(request, 0)
    assert [(result.user, result.error_code, result.error_message) for result in answer.results] == [("a", 41, None), ("b", 41, None)]
    broker.run(lambda: setattr(controller(), "is_active", True))
