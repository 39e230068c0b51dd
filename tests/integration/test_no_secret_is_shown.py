"""One broker with every kind of secret at the level DEBUG: neither its log, nor its answers, nor its metrics show one of them."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import socket
import ssl
import struct
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from ottla.protocol.messages.describe_configs import DescribeConfigsResource
from ottla.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource
from tests.integration.test_sasl_listener import MODULE, Wire, port_of
from tests.support.certificates import Identity
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.scram_client import ScramClient
from tests.support.secrets import keep_secret, secrets_in

BROKER = 4
SALT = b"0123456789abcdef"
ITERATIONS = 4096
PASSWORDS = (
    "alice-secret",
    "bob-secret",
    "wrong-secret",
    "store-secret",
    "encoder-secret",
    "token-secret",
    "dynamic-secret",
    "jaas-secret",
)


class WatchedWire(Wire):
    """A connection that adds all that the broker sends to `seen`; to the listener BOTH by TLS."""

    def __init__(self, broker: InProcessBroker, listener: str, authority: Identity, seen: list[bytes]) -> None:
        super().__init__(port_of(broker, listener))
        self._seen = seen
        if listener == "BOTH":
            context = ssl.create_default_context(cadata=authority.certificate_pem)
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")

    def receive(self) -> bytes | None:
        found = super().receive()
        self._seen.append(found or b"")
        return found


Connect = Callable[[], WatchedWire]


def bearer_token() -> str:
    claims = {"sub": "carol", "exp": time.time() + 3600, "jti": "a token that is long enough"}
    header, body = (base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in ({"alg": "none"}, claims))
    return f"{header}.{body}."


def settings(authority: Identity) -> dict[str, Any]:
    identity = Identity("CN=localhost", authority)
    key = identity.key_pem("store-secret")
    keep_secret(*(line for line in key.splitlines()[1:-1] if len(line) == 64))
    lines = {
        "plain": f'{MODULE}.plain.PlainLoginModule required user_alice="alice-secret";',
        "scram-sha-256": f"{MODULE}.scram.ScramLoginModule required;",
        "oauthbearer": f"{MODULE}.oauthbearer.OAuthBearerLoginModule required;",
    }
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,BOTH://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BOTH:SASL_SSL",
        "broker.id": BROKER,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key,
        "ssl.key.password": "store-secret",
        "ssl.keystore.certificate.chain": identity.certificate_pem,
        "password.encoder.secret": "encoder-secret",
        "delegation.token.secret.key": "token-secret",
        "connection.failed.authentication.delay.ms": 0,
        "ottla.metrics.listener": "127.0.0.1:0",
        **{f"listener.name.both.{name}.sasl.jaas.config": line for name, line in lines.items()},
    }


def store_users(wire: Wire) -> None:
    salted = hashlib.pbkdf2_hmac("sha256", b"bob-secret", SALT, ITERATIONS)
    keep_secret(salted)
    bob = ScramCredentialUpsertion(name="bob", mechanism=1, iterations=ITERATIONS, salt=SALT, salted_password=salted)
    few = ScramCredentialUpsertion(name="eve", mechanism=1, iterations=1, salt=SALT, salted_password=salted)
    results = wire.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[], upsertions=[bob, few]).results
    codes = {each.user: each.error_code for each in results}
    assert codes == {"bob": ErrorCode.NONE, "eve": ErrorCode.UNACCEPTABLE_CREDENTIAL}
    wire.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)


def change_configurations(wire: Wire) -> None:
    """A password and a JAAS text are stored, a password for PEM is refused, and all keys are described."""
    changes = {
        "listener.name.x.ssl.keystore.password": "dynamic-secret",
        "listener.name.both.ssl.keystore.password": "dynamic-secret",
        "listener.name.both.plain.sasl.jaas.config": f'{MODULE}.plain.PlainLoginModule required user_dave="jaas-secret"',
    }
    codes = []
    for name, value in changes.items():
        config = AlterableConfig(name=name, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=4, resource_name=str(BROKER), configs=[config])
        (answer,) = wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False).responses
        codes.append(answer.error_code)
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    described = DescribeConfigsResource(resource_type=4, resource_name=str(BROKER), configuration_keys=None)
    (result,) = wire.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[described], include_synonyms=True, include_documentation=True).results
    shown = {each.name: each for each in result.configs}
    assert shown["password.encoder.secret"].is_sensitive
    assert shown["listener.name.x.ssl.keystore.password"].value is None


def log_in(connect: Connect) -> None:
    """By each mechanism, well and badly."""
    token = bearer_token()
    keep_secret(token)
    bearer = b"n,,\x01auth=Bearer %s\x01\x01"
    attempts = {
        "PLAIN": [b"\0alice\0alice-secret", b"\0alice\0wrong-secret", b"\0alice-secret\0", b"alice\0wrong-secret"],
        "OAUTHBEARER": [bearer % token.encode(), bearer % (token + "x").encode(), token.encode()],
    }
    for mechanism, messages in attempts.items():
        for message in messages:
            with connect() as wire:
                wire.handshake(mechanism)
                wire.authenticate(message)
    for password in ("bob-secret", "wrong-secret"):
        with connect() as wire:
            wire.handshake("SCRAM-SHA-256")
            client = ScramClient("SCRAM-SHA-256", "bob", password)
            last = wire.authenticate(client.final(bytes(wire.authenticate(client.first).auth_bytes)))
            assert (last.error_code == ErrorCode.NONE) == (password == "bob-secret")
    with connect() as wire:  # a password where a request is expected
        assert wire.ask_raw(b"alice-secret" * 5) is None


def use_a_token(connect: Connect, seen: list[bytes]) -> bytes:
    """The secret of a delegation token that was made, used, renewed and ended, and again after its end."""
    with connect() as wire:
        wire.log_in()
        created = wire.ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, renewers=[], max_lifetime_ms=-1)
        seen.pop()  # the one answer that has to show the secret
        secret = bytes(created.hmac)
        keep_secret(secret)
        assert wire.ask(ApiKey.RENEW_DELEGATION_TOKEN, 2, hmac=secret, renew_period_ms=-1).error_code == ErrorCode.NONE
        for text in (base64.b64encode(secret).decode(), "wrong-secret"):
            with connect() as holder:
                holder.handshake("SCRAM-SHA-256")
                client = ScramClient("SCRAM-SHA-256", created.token_id, text, extensions=",tokenauth=true")
                holder.authenticate(client.final(bytes(holder.authenticate(client.first).auth_bytes)))
        for _ in range(2):
            wire.ask(ApiKey.EXPIRE_DELEGATION_TOKEN, 2, hmac=secret, expiry_time_period_ms=-1)
    return secret


def test_nothing_shows_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    authority = Identity("CN=authority")
    seen: list[bytes] = []
    with a_broker_in_process(tmp_path / "log", **settings(authority)) as broker:
        with WatchedWire(broker, "PLAINTEXT", authority, seen) as wire:
            store_users(wire)
            change_configurations(wire)
        log_in(lambda: WatchedWire(broker, "BOTH", authority, seen))
        token = use_a_token(lambda: WatchedWire(broker, "BOTH", authority, seen), seen)
        with socket.create_connection(("127.0.0.1", port_of(broker, "BOTH")), 10) as plain:
            message = b"\0alice\0alice-secret"
            plain.sendall(struct.pack(">i", len(message)) + message)
            with contextlib.suppress(ConnectionResetError):
                plain.recv(100)  # an alert, or nothing
        endpoint = broker.broker.metrics
        assert endpoint is not None
        with urllib.request.urlopen(f"http://{endpoint.address}/metrics", timeout=30) as response:
            metrics = response.read().decode()
    for user in ("alice", "bob", "carol"):
        assert f"authenticated as User:{user}" in caplog.text
    answers = b"\n".join(seen)
    assert len(seen) > 30
    assert token not in answers
    for shown in (caplog.text, metrics, answers.decode("latin-1")):
        assert secrets_in(shown) == []


@pytest.mark.parametrize("password", PASSWORDS)
def test_a_password_of_a_test_would_be_found(password: str) -> None:
    assert secrets_in(f'[2026-01-01] ERROR option password="{password}" is wrong') == [password]


def test_keys_would_be_found_in_every_form() -> None:
    identity = Identity("CN=somebody")
    number = identity.key.private_numbers().private_value.to_bytes(32, "big")
    shown = [identity.key_pem(), number.hex(), base64.b64encode(number).decode(), f"key={number!r}"]
    assert [text for text in shown if not secrets_in(text)] == []
    assert secrets_in("the key CN=somebody") == []
