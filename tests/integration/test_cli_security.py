"""`ottla acls` and `ottla users` against a broker, and users that are added before its first start."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.support.acl_requests import ANONYMOUS, AUTHORIZER
from tests.support.broker_process import a_broker
from tests.support.command_line import CommandLine
from tests.support.in_process_broker import a_broker_in_process
from tests.support.scram_client import ScramClient
from tests.support.wire_client import a_wire_client

SCRAM = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    **{
        f"listener.name.clients.scram-sha-{bits}.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        for bits in (256, 512)
    },
}


@pytest.fixture(scope="module")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    with a_broker(tmp_path_factory.mktemp("cli"), authorizer_class_name=AUTHORIZER, super_users=ANONYMOUS) as broker:
        yield CommandLine(broker.bootstrap)


def test_the_life_of_acls(ottla: CommandLine) -> None:
    assert ottla("acls", "list").rows == []
    added = ottla("acls", "add", "User:alice", "User:bob", "--operation", "read", "--topic", "orders", "--group", "stock")
    assert added.lines == [
        "allow User:alice from * to read topic orders: added",
        "allow User:bob from * to read topic orders: added",
        "allow User:alice from * to read group stock: added",
        "allow User:bob from * to read group stock: added",
    ]
    ottla("acls", "add", "User:*", "--operation", "all", "--topic", "secret-", "--prefixed", "--deny", "--host", "10.0.0.9")
    assert ottla("acls", "list", "--topic", "orders").rows == [
        ["topic", "orders", "literal", "User:alice", "*", "read", "allow"],
        ["topic", "orders", "literal", "User:bob", "*", "read", "allow"],
    ]
    assert ottla("acls", "list", "--topic", "secret-1").rows == []
    assert ottla("acls", "list", "--topic", "secret-1", "--pattern-type", "match", "--json").json == [
        {
            "resource_type": "TOPIC",
            "name": "secret-",
            "pattern_type": "PREFIXED",
            "principal": "User:*",
            "host": "10.0.0.9",
            "operation": "ALL",
            "permission_type": "DENY",
        }
    ]
    assert ottla("acls", "remove", "--principal", "User:bob", "--dry-run").lines == [
        "allow User:bob from * to read topic orders: would be removed",
        "allow User:bob from * to read group stock: would be removed",
    ]
    assert sorted(ottla("acls", "remove", "--principal", "User:bob").lines) == [
        "allow User:bob from * to read group stock: removed",
        "allow User:bob from * to read topic orders: removed",
    ]
    assert ottla("acls", "remove", "--principal", "User:bob").err == "no ACL is selected\n"
    assert len(ottla("acls", "remove", "--all", "--json").json) == 3
    assert ottla("acls", "list", "--json").json == []


def test_what_producers_and_consumers_need_is_added_at_once(ottla: CommandLine) -> None:
    ottla("acls", "add", "User:p", "--producer", "--topic", "t", "--transactional-id", "x", "--cluster")
    assert [[row[0], row[5]] for row in ottla("acls", "list", "--principal", "User:p").rows] == [
        ["topic", "write"],
        ["topic", "create"],
        ["topic", "describe"],
        ["cluster", "idempotent-write"],
        ["transactional-id", "write"],
        ["transactional-id", "describe"],
    ]
    ottla("acls", "add", "User:c", "--consumer", "--topic", "t", "--group", "g")
    assert [[row[0], row[5]] for row in ottla("acls", "list", "--principal", "User:c").rows] == [
        ["topic", "read"],
        ["topic", "describe"],
        ["group", "read"],
    ]
    ottla("acls", "remove", "--all")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("add", "alice", "--operation", "read", "--topic", "t"), "write User:alice"),
        (("add", "User:a", "--operation", "read"), "On which resource?"),
        (("add", "User:a", "--topic", "t"), "Which operations on the topic?"),
        (("add", "User:a", "--topic", "t", "--operation", "fly"), "'fly' is not one of"),
        (("add", "User:a", "--cluster", "--prefixed", "--operation", "alter"), "exclude each other"),
        (("remove",), "Say which ACLs"),
        (("remove", "--all", "--topic", "t"), "Say which ACLs"),
    ],
)
def test_arguments_that_name_no_acl_are_wrong(ottla: CommandLine, arguments: tuple[str, ...], reason: str) -> None:
    assert reason in ottla("acls", *arguments, status=2).err


def test_an_acl_that_the_broker_refuses_is_named(ottla: CommandLine) -> None:
    refused = ottla("acls", "add", "User:a", "--operation", "read", "--topic", "a/b", "--topic", "t", status=1)
    assert refused.out == "allow User:a from * to read topic t: added\n"
    assert refused.err == "ottla: allow User:a from * to read topic a/b: Failed to create ACL (INVALID_REQUEST)\n"
    ottla("acls", "remove", "--all")


def test_the_life_of_users(ottla: CommandLine) -> None:
    assert ottla("users", "list").rows == []
    assert ottla("users", "add", "alice", input="secret\n").out == "alice: added\n"
    ottla("users", "add", "bob", "--mechanism", "scram-sha-512", "--iterations", "8192", input="secret\n")
    assert ottla("users", "list").rows == [
        ["alice", "SCRAM-SHA-256", "4096"],
        ["alice", "SCRAM-SHA-512", "4096"],
        ["bob", "SCRAM-SHA-512", "8192"],
    ]
    assert ottla("users", "list", "bob", "--json").json == [{"user": "bob", "mechanism": "SCRAM-SHA-512", "iterations": 8192}]
    assert ottla("users", "remove", "alice", "--mechanism", "scram-sha-256").out == "alice: removed\n"
    assert ottla("users", "list", "alice").rows == [["alice", "SCRAM-SHA-512", "4096"]]
    assert "RESOURCE_NOT_FOUND" in ottla("users", "remove", "alice", "--mechanism", "scram-sha-256", status=1).err
    assert sorted(ottla("users", "remove", "alice", "bob").lines) == ["alice: removed", "bob: removed"]
    assert "RESOURCE_NOT_FOUND" in ottla("users", "remove", "alice", status=1).err
    assert "The password is empty" in ottla("users", "add", "carol", status=2).err


def test_a_user_that_is_added_before_the_first_start_can_authenticate(tmp_path: Path) -> None:
    ottla = CommandLine("127.0.0.1:1")
    store = ("--set", f"log.dirs={tmp_path / 'log'}")
    assert ottla("users", "list", *store).rows == []
    assert ottla("users", "add", "alice", "--mechanism", "scram-sha-256", *store, input="secret\n").out == "alice: added\n"
    assert ottla("users", "add", "bob", *store, input="secret\n").out == "bob: added\n"
    assert "there is no user carol" in ottla("users", "remove", "carol", *store, status=1).err
    assert ottla("users", "remove", "bob", *store).out == "bob: removed\n"
    assert ottla("users", "list", *store).rows == [["alice", "SCRAM-SHA-256", "4096"]]
    with a_broker_in_process(tmp_path / "log", **SCRAM) as broker:
        (address,) = (each for each in broker.broker.addresses if each.startswith("CLIENTS"))
        assert logs_in(int(address.rpartition(":")[2]), "alice", "secret")
        assert not logs_in(int(address.rpartition(":")[2]), "alice", "wrong")
        running = ottla("users", "list", *store, status=1).err
        assert "leave out --properties and --set" in running
        broker.run(broker.services.administration.store.create, "/config/users/edited", b"{")
    assert "/config/users/edited: not JSON" in ottla("users", "list", *store, status=1).err


def logs_in(port: int, user: str, password: str) -> bool:
    exchange = ScramClient("SCRAM-SHA-256", user, password)
    with a_wire_client(port) as client:
        assert client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).error_code == 0
        first = client.ask(SaslAuthenticateRequest(auth_bytes=exchange.first), 2)
        final = client.ask(SaslAuthenticateRequest(auth_bytes=exchange.final(bytes(first.auth_bytes))), 2)
        return bool(final.error_code == 0 and exchange.is_server(bytes(final.auth_bytes)))
