"""The exchanges of SASL mechanisms from the client's side, against the server's side and against servers that lie."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.security.sasl.bearer_tokens import validate_unsecured
from ottla.broker.security.sasl.clients import MAX_ITERATIONS, SaslContext, ScramClient, sasl_client
from ottla.broker.security.sasl.mechanism import SaslServer
from ottla.broker.security.sasl.oauthbearer import OAuthBearerServer
from ottla.broker.security.sasl.plain import PlainServer
from ottla.broker.security.sasl.scram import ScramServer, parse_credential
from ottla.config.errors import ConfigError
from ottla.config.jaas import KERBEROS_MODULE, OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE, parse_jaas
from ottla.config.sasl import LOGIN_MODULES, UnsecuredTokens
from ottla.controller.admin.scram_credentials import Upsertion, credential
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.sasl_login import EARLIEST, SPREAD, LoginFailed, LoginRequest, SaslClient, ServerNotTrusted, log_in, renewal_seconds
from ottla.protocol.schema.fields import Versions
from ottla.protocol.schema.message import Message

NOW_MS = 1_700_000_000_000
CONTEXT = SaslContext(lambda count: bytes(range(count)), lambda: NOW_MS)
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
VERSIONS = {ApiKey.SASL_HANDSHAKE: Versions(0, 1), ApiKey.SASL_AUTHENTICATE: Versions(0, 2)}


def client(mechanism: str, options: str) -> SaslClient:
    module = parse_jaas(f"{LOGIN_MODULES[mechanism]} required {options};")[0]
    return sasl_client(mechanism, module, CONTEXT)()


def scram_server(mechanism: int, user: str, password: str) -> ScramServer:
    salted = hashlib.pbkdf2_hmac("sha256" if mechanism == 1 else "sha512", password.encode(), b"salt1234", 4096)
    stored = parse_credential(credential(Upsertion(user, mechanism, 4096, b"salt1234", salted)))
    return ScramServer(MECHANISMS[mechanism], {user: stored}.get, lambda _: None, "servernonce", b"key")


def exchange(ours: SaslClient, server: SaslServer) -> str | None:
    """The name under which the server knows the client in the end."""
    token: bytes | None = ours.first()
    while token is not None:
        token = ours.answer(server.evaluate(token))
    return server.authorization_id


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("broker", "secret"), ("a=b,c", "p=,w"), ("broker", "pässword")])
def test_scram_logs_in_and_the_server_proves_itself(mechanism: int, user: str, password: str) -> None:
    ours = client(MECHANISMS[mechanism], f'username="{user}" password="{password}"')
    assert exchange(ours, scram_server(mechanism, user, password)) == user


def test_plain_logs_in() -> None:
    assert exchange(client("PLAIN", 'username="broker" password="secret"'), PlainServer({"broker": "secret"}.get)) == "broker"


def test_oauthbearer_logs_in_with_a_token_of_its_options() -> None:
    accepted = UnsecuredTokens("sub", "scope", ("a", "b"), 0)
    server = OAuthBearerServer(lambda compact: validate_unsecured(compact, accepted, NOW_MS + 1000))
    options = 'unsecuredLoginStringClaim_sub="broker" unsecuredLoginListClaim_scope=",a,b" unsecuredLoginLifetimeSeconds="60"'
    ours = client("OAUTHBEARER", f'{options} unsecuredLoginExtension_traceId="1 2"')
    assert b"\x01traceId=1 2\x01\x01" in ours.first()
    assert exchange(ours, server) == "broker"
    assert server.credential_expires_ms == NOW_MS + 60_000


def test_a_claim_of_the_options_replaces_that_of_the_lifetime() -> None:
    first = client("OAUTHBEARER", 'unsecuredLoginStringClaim_sub="x" unsecuredLoginNumberClaim_exp="12"').first()
    claims = first.split(b".")[1]
    assert json.loads(base64.urlsafe_b64decode(claims + b"=" * (-len(claims) % 4))) == {"iat": NOW_MS / 1000, "exp": 12, "sub": "x"}


def test_scram_of_a_delegation_token_says_so() -> None:
    assert client("SCRAM-SHA-256", 'username="id" password="hmac" tokenauth="true"').first().endswith(b",tokenauth=true")


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ("r=other,s=c2FsdA==,i=4096", "nonce"),
        ("r=NONCE,s=c2FsdA==,i=4096", "nonce"),
        ("r=NONCEx,s=c2FsdA==,i=4095", "4095 iterations"),
        (f"r=NONCEx,s=c2FsdA==,i={MAX_ITERATIONS + 1}", "iterations"),
        ("r=NONCEx,s=c2FsdA,i=4096", "base64"),
        ("m=1,r=NONCEx,s=c2FsdA==,i=4096", "malformed"),
        ("e=no", "malformed"),
        ("", "malformed"),
    ],
)
def test_scram_does_not_trust_a_server_that_breaks_the_rules(first: str, reason: str) -> None:
    with pytest.raises(ServerNotTrusted, match=reason):
        ScramClient("SCRAM-SHA-256", "user", "password", "NONCE").answer(first.encode())


def test_scram_does_not_trust_a_server_without_the_credential() -> None:
    ours = ScramClient("SCRAM-SHA-256", "user", "password", "NONCE")
    assert ours.answer(b"r=NONCEx,s=c2FsdA==,i=4096") is not None
    with pytest.raises(ServerNotTrusted, match="signature"):
        ours.answer(b"v=" + base64.b64encode(bytes(32)))


@given(st.lists(st.binary(max_size=80), max_size=3))
def test_no_bytes_of_a_server_do_more_than_end_the_exchange(tokens: list[bytes]) -> None:
    ours = ScramClient("SCRAM-SHA-512", "user", "password", "NONCE")
    for token in tokens:
        with pytest.raises(ServerNotTrusted):
            ours.answer(token)


@pytest.mark.parametrize(
    ("mechanism", "options", "reason"),
    [
        ("PLAIN", 'password="secret"', "no option username"),
        ("SCRAM-SHA-256", 'username="broker"', "no option password"),
        ("OAUTHBEARER", "", "unsecuredLoginStringClaim_sub"),
        ("OAUTHBEARER", 'unsecuredLoginStringClaim_sub="x" unsecuredLoginLifetimeSeconds="soon"', "LifetimeSeconds"),
        ("OAUTHBEARER", 'unsecuredLoginStringClaim_sub="x" unsecuredLoginNumberClaim_n="secret"', "NumberClaim_n is not a number"),
        ("OAUTHBEARER", 'unsecuredLoginStringClaim_sub="x" unsecuredLoginExtension_auth="secret"', "Extension_auth"),
    ],
)
def test_a_credential_that_is_missing_is_named_without_secrets(mechanism: str, options: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        client(mechanism, options)
    assert "secret" not in str(refused.value)


def test_each_mechanism_has_its_login_module() -> None:
    assert set(LOGIN_MODULES.values()) == {PLAIN_MODULE, SCRAM_MODULE, OAUTHBEARER_MODULE, KERBEROS_MODULE}


def played(answers: Callable[[LoginRequest], Message], ours: SaslClient | None = None) -> int:
    """The lifetime in the end of a login."""
    steps = log_in(ours or client("PLAIN", 'username="broker" password="secret"'), VERSIONS)
    asked = next(steps)
    while True:
        try:
            asked = steps.send(answers(asked))
        except StopIteration as end:
            return int(end.value)


def accepting(asked: LoginRequest) -> Message:
    if isinstance(asked.message, SaslHandshakeRequest):
        return SaslHandshakeResponse(mechanisms=[asked.message.mechanism])
    return SaslAuthenticateResponse(session_lifetime_ms=60_000)


def test_a_login_uses_the_versions_of_the_broker_and_returns_the_lifetime() -> None:
    seen: list[tuple[ApiKey, int]] = []

    def answer(asked: LoginRequest) -> Message:
        seen.append((asked.api_key, asked.version))
        return accepting(asked)

    assert played(answer) == 60_000
    assert seen == [(ApiKey.SASL_HANDSHAKE, 1), (ApiKey.SASL_AUTHENTICATE, 2)]


@pytest.mark.parametrize(
    ("handshake", "authenticate", "reason"),
    [
        (SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["GSSAPI"]), None, "PLAIN, but GSSAPI"),
        (SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE), None, "no SASL"),
        (
            SaslHandshakeResponse(),
            SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="no such user"),
            "PLAIN failed: no such user",
        ),
        (SaslHandshakeResponse(), SaslAuthenticateResponse(auth_bytes=b"?"), "challenge"),
    ],
)
def test_a_login_that_fails_says_why(handshake: Message, authenticate: Message | None, reason: str) -> None:
    def answer(asked: LoginRequest) -> Message:
        response = authenticate if isinstance(asked.message, SaslAuthenticateRequest) else handshake
        assert response is not None
        return response

    with pytest.raises(LoginFailed, match=reason) as failed:
        played(answer)
    assert "secret" not in str(failed.value)


def test_a_refused_token_is_answered_with_one_byte_before_the_failure() -> None:
    tokens: list[bytes] = []

    def answer(asked: LoginRequest) -> Message:
        if not isinstance(asked.message, SaslAuthenticateRequest):
            return accepting(asked)
        tokens.append(bytes(asked.message.auth_bytes))
        status = '{"status":"invalid_token"}'
        if len(tokens) == 1:
            return SaslAuthenticateResponse(auth_bytes=status.encode())
        return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=status)

    with pytest.raises(LoginFailed, match="invalid_token"):
        played(answer, client("OAUTHBEARER", 'unsecuredLoginStringClaim_sub="x"'))
    assert tokens[1:] == [b"\x01"]


def test_a_broker_without_the_apis_of_sasl_is_named() -> None:
    with pytest.raises(LoginFailed, match=r"Kafka 1\.0"):
        next(log_in(client("PLAIN", 'username="x" password="y"'), {ApiKey.SASL_HANDSHAKE: Versions(0, 0)}))


def test_a_session_is_renewed_after_85_to_95_percent_of_its_life() -> None:
    assert renewal_seconds(10_000, bytes) == pytest.approx(10 * EARLIEST)
    assert renewal_seconds(10_000, lambda count: b"\xff" * count) == pytest.approx(10 * (EARLIEST + SPREAD), rel=1e-4)
    assert renewal_seconds(0, bytes) == float("inf")
