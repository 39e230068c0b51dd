"""Delegation tokens over the wire: who gets them, who sees them, what they are good for, and when they end."""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_delegation_token import CreatableRenewers
from ottla.protocol.messages.describe_delegation_token import DescribeDelegationTokenOwner
from tests.integration.test_sasl_listener import MODULE, Wire, port_of
from tests.support.broker_process import eventually
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.scram_client import ScramClient
from tests.support.secrets import keep_secret

USERS = 'user_admin="a" user_alice="a" user_bob="b" user_carol="c"'
HOUR_MS = 3_600_000
SECRET = "the secret of all brokers"
keep_secret(SECRET)
PROPERTIES: dict[str, Any] = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl.plain.sasl.jaas.config": f"{MODULE}.plain.PlainLoginModule required {USERS};",
    "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
    "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
    "delegation.token.master.key": SECRET,
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
    "connection.failed.authentication.delay.ms": 0,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with a_broker_in_process(tmp_path_factory.mktemp("tokens") / "log", **PROPERTIES) as running:
        yield running


class User(Wire):
    """A connection of a user who has authenticated by PLAIN."""

    def __init__(self, broker: InProcessBroker | int, name: str) -> None:
        """`broker` may be a port."""
        super().__init__(broker if isinstance(broker, int) else port_of(broker, "SASL"))
        assert self.handshake().error_code == ErrorCode.NONE
        assert self.authenticate(f"\0{name}\0{name[0]}".encode()).error_code == ErrorCode.NONE

    def create(self, *renewers: str, owner: str | None = None, version: int = 3, **fields: Any) -> Any:
        given = {"max_lifetime_ms": -1, **fields}
        if owner is not None:
            given |= {"owner_principal_type": "User", "owner_principal_name": owner}
        listed = [CreatableRenewers(principal_type="User", principal_name=name) for name in renewers]
        created = self.ask(ApiKey.CREATE_DELEGATION_TOKEN, version, renewers=listed, **given)
        if created is not None and created.hmac:
            keep_secret(bytes(created.hmac))
        return created

    def ids(self, *owners: str, version: int = 3) -> list[str]:
        """The tokens that the user sees, of these owners or of all."""
        listed = [DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners] or None
        answer = self.ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, version, owners=listed)
        assert answer.error_code == ErrorCode.NONE
        return sorted(each.token_id for each in answer.tokens)

    def renew(self, token_hmac: bytes, period_ms: int = -1) -> Any:
        return self.ask(ApiKey.RENEW_DELEGATION_TOKEN, 2, hmac=token_hmac, renew_period_ms=period_ms)

    def expire(self, token_hmac: bytes, period_ms: int = -1) -> Any:
        return self.ask(ApiKey.EXPIRE_DELEGATION_TOKEN, 2, hmac=token_hmac, expiry_time_period_ms=period_ms)


def log_in(wire: Wire, created: Any, mechanism: str = "SCRAM-SHA-256", extensions: str = ",tokenauth=true") -> Any:
    """The last answer of a login by a token."""
    assert wire.handshake(mechanism).error_code == ErrorCode.NONE
    client = ScramClient(mechanism, created.token_id, base64.b64encode(bytes(created.hmac)).decode(), extensions=extensions)
    first = wire.authenticate(client.first)
    last = wire.authenticate(client.final(bytes(first.auth_bytes)))
    if last.error_code == ErrorCode.NONE:
        assert client.is_server(bytes(last.auth_bytes))
    return last


def log_in_without_headers(wire: Wire, created: Any, mechanism: str) -> None:
    """A login by a token after SaslHandshake 0."""
    assert wire.handshake(mechanism, version=0).error_code == ErrorCode.NONE
    client = ScramClient(mechanism, created.token_id, base64.b64encode(bytes(created.hmac)).decode(), extensions=",tokenauth=true")
    first = wire.ask_raw(client.first)
    assert first is not None
    last = wire.ask_raw(client.final(first))
    assert last is not None
    assert client.is_server(last)


@pytest.mark.parametrize("version", range(4))
def test_a_user_creates_a_token_in_every_version(broker: InProcessBroker, version: int) -> None:
    with User(broker, "alice") as alice:
        created = alice.create("bob", version=version, max_lifetime_ms=HOUR_MS)
        assert created.error_code == ErrorCode.NONE
        assert (created.principal_type, created.principal_name) == ("User", "alice")
        assert created.max_timestamp_ms - created.issue_timestamp_ms == HOUR_MS
        assert created.expiry_timestamp_ms == created.max_timestamp_ms
        assert len(bytes(created.hmac)) == 64
        assert created.token_id in alice.ids(version=version)
        assert alice.expire(bytes(created.hmac)).error_code == ErrorCode.NONE
        assert created.token_id not in alice.ids(version=version)


def test_a_token_with_more_than_a_thousand_renewers_is_refused(broker: InProcessBroker) -> None:
    with User(broker, "alice") as alice:
        assert alice.create(*["bob"] * 1001).error_code == ErrorCode.INVALID_REQUEST
        assert alice.create(*["bob"] * 1001, owner="carol").error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        created = alice.create(*["bob"] * 1000)
        assert created.error_code == ErrorCode.NONE
        assert alice.expire(bytes(created.hmac)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_token_logs_in_as_its_owner_until_it_expires(broker: InProcessBroker, mechanism: str) -> None:
    with User(broker, "alice") as alice, Wire(port_of(broker, "SASL")) as holder:
        created = alice.create(max_lifetime_ms=HOUR_MS)
        last = log_in(holder, created, mechanism)
        assert last.error_code == ErrorCode.NONE
        assert HOUR_MS - 60_000 < last.session_lifetime_ms <= HOUR_MS
        clients = broker.run(lambda: [each.client.principal for each in broker.broker.socket_server.connections()])
        assert {str(each) for each in clients if each.token_authenticated} == {"User:alice"}
        # A token cannot make another one, nor change itself.
        for api, fields in (
            (ApiKey.CREATE_DELEGATION_TOKEN, {"max_lifetime_ms": -1}),
            (ApiKey.RENEW_DELEGATION_TOKEN, {"hmac": bytes(created.hmac), "renew_period_ms": -1}),
            (ApiKey.EXPIRE_DELEGATION_TOKEN, {"hmac": bytes(created.hmac), "expiry_time_period_ms": -1}),
            (ApiKey.DESCRIBE_DELEGATION_TOKEN, {"owners": None}),
        ):
            assert holder.ask(api, 2, **fields).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.mark.parametrize("with_headers", [True, False])
def test_the_loop_does_not_stand_still_for_the_credential_of_a_token(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, with_headers: bool
) -> None:
    threads: list[str] = []
    derive = hashlib.pbkdf2_hmac

    def recorded(*arguments: Any) -> bytes:
        threads.append(threading.current_thread().name)
        return derive(*arguments)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", recorded)
    with User(broker, "alice") as alice, Wire(port_of(broker, "SASL")) as first, Wire(port_of(broker, "SASL")) as second:
        created = alice.create()
        for holder in (first, second):
            if with_headers:
                assert log_in(holder, created, "SCRAM-SHA-512").error_code == ErrorCode.NONE
            else:
                log_in_without_headers(holder, created, "SCRAM-SHA-512")
            assert holder.metadata() is not None
    here = threading.current_thread().name
    assert threads.count(here) == 2  # the clients' own
    assert len([name for name in threads if name != here]) == 1
    assert broker.run(lambda: threading.current_thread().name) not in threads


def test_a_client_that_leaves_while_the_credential_of_its_token_is_made_harms_nobody(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    derive, here = hashlib.pbkdf2_hmac, threading.current_thread()

    def slow(*arguments: Any) -> bytes:
        if threading.current_thread() is not here:
            begun.set()
            assert may_end.wait(10)
        return derive(*arguments)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", slow)
    with User(broker, "alice") as alice:
        created = alice.create()
        with Wire(port_of(broker, "SASL")) as leaving:
            assert leaving.handshake("SCRAM-SHA-256", version=0).error_code == ErrorCode.NONE
            password = base64.b64encode(bytes(created.hmac)).decode()
            leaving.send(ScramClient("SCRAM-SHA-256", created.token_id, password, extensions=",tokenauth=true").first)
            assert begun.wait(10)
        eventually(lambda: broker.run(lambda: len(list(broker.broker.socket_server.connections()))) == 1, what="the client has left")
        may_end.set()
        with Wire(port_of(broker, "SASL")) as holder:
            log_in_without_headers(holder, created, "SCRAM-SHA-256")
            assert holder.metadata() is not None
    assert "Traceback" not in caplog.text
    assert "never retrieved" not in caplog.text


def test_an_ended_token_and_a_wrong_one_do_not_log_in(broker: InProcessBroker) -> None:
    with User(broker, "alice") as alice:
        created = alice.create()
        with Wire(port_of(broker, "SASL")) as user:  # the id is no user
            assert log_in(user, created, extensions="").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert alice.expire(bytes(created.hmac)).error_code == ErrorCode.NONE
        with Wire(port_of(broker, "SASL")) as ended:
            assert log_in(ended, created).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        short = alice.create(max_lifetime_ms=1)
        with Wire(port_of(broker, "SASL")) as expired:  # not removed yet
            assert log_in(expired, short).session_lifetime_ms == 0
            assert expired.metadata() is None


def test_the_active_controller_removes_expired_tokens_from_time_to_time(tmp_path: Path) -> None:
    often = {**PROPERTIES, "delegation.token.expiry.check.interval.ms": 50}
    with a_broker_in_process(tmp_path / "log", **often) as broker, User(broker, "alice") as alice:
        kept, short = alice.create(), alice.create(max_lifetime_ms=1)
        eventually(lambda: alice.ids() == [kept.token_id], what=f"the expired token {short.token_id} is removed")


def test_only_holders_and_those_with_a_right_see_and_change_a_token(broker: InProcessBroker) -> None:
    with User(broker, "alice") as alice, User(broker, "bob") as bob, User(broker, "carol") as carol, User(broker, "admin") as admin:
        created = alice.create("bob")
        token_hmac = bytes(created.hmac)
        for user in (alice, bob, admin):
            assert created.token_id in user.ids()
            assert created.token_id in user.ids("bob")  # a renewer
            assert created.token_id not in user.ids("carol")
        assert created.token_id not in carol.ids()
        assert carol.renew(token_hmac).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert admin.expire(token_hmac).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert bob.renew(token_hmac, HOUR_MS).error_code == ErrorCode.NONE
        assert bob.renew(token_hmac[:-1]).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert bob.expire(token_hmac).error_code == ErrorCode.NONE
        assert alice.renew(token_hmac).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_a_token_for_another_owner_needs_a_right(broker: InProcessBroker) -> None:
    with User(broker, "alice") as alice, User(broker, "admin") as admin, User(broker, "bob") as bob:
        refused = alice.create(owner="bob")
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert (refused.principal_name, refused.token_requester_principal_name) == ("bob", "alice")
        created = admin.create(owner="bob")
        assert created.error_code == ErrorCode.NONE
        assert (created.principal_name, created.token_requester_principal_name) == ("bob", "admin")
        assert bob.ids("bob") == [created.token_id]
        assert admin.renew(bytes(created.hmac)).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        for fields in ({"owner_principal_type": None}, {"owner_principal_type": "Group"}):
            wrong = admin.create(owner_principal_name="bob", **fields)
            assert wrong.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
        group = CreatableRenewers(principal_type="Group", principal_name="bob")
        wrong = alice.ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, renewers=[group], max_lifetime_ms=-1)
        assert wrong.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
        many = alice.create(*("x" * 1000,) * 1000)
        assert many.error_code == ErrorCode.INVALID_REQUEST


def test_strangers_get_no_token(broker: InProcessBroker) -> None:
    with Wire(port_of(broker, "PLAINTEXT")) as stranger:
        answer = stranger.ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, renewers=[], max_lifetime_ms=-1)
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_secrets_of_tokens_are_not_logged(broker: InProcessBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with User(broker, "alice") as alice, Wire(port_of(broker, "SASL")) as holder:
        created = alice.create()
        log_in(holder, created)
        alice.renew(bytes(created.hmac))
        alice.expire(bytes(created.hmac))
    assert created.token_id in caplog.text
    token_hmac = bytes(created.hmac)
    for secret in (SECRET, base64.b64encode(token_hmac).decode(), token_hmac.hex()):
        assert secret not in caplog.text
