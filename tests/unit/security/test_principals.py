"""A principal that ACLs, answers, znodes or logs cannot show is refused at login, and before the metadata store gets it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.security.delegation_tokens import DelegationTokens, Lifetimes
from ottla.broker.security.principals import Principal, UnusablePrincipal
from ottla.broker.security.sasl.bearer_tokens import Token
from ottla.broker.security.sasl.kerberos import NO_LAYER_TOKEN, AcceptingContext, KerberosServer
from ottla.broker.security.sasl.mechanism import SaslServer
from ottla.broker.security.sasl.oauthbearer import OAuthBearerServer
from ottla.broker.security.sasl.plain import PlainServer
from ottla.broker.security.sasl.scram import ScramServer, TokenCredential, parse_credential
from ottla.broker.security.sasl.session import AuthenticationFailed, Offer, OfferedMechanism, SaslSession, State
from ottla.broker.security.tls.listener import ListenerTls
from ottla.broker.security.tls.mapping_rules import MappingRules
from ottla.client.user_admin import new_credential
from ottla.controller.admin.scram_credentials import Upsertion, credential
from ottla.controller.errors import InvalidAdminRequest
from ottla.controller.store.memory_store import MemoryEnsemble
from ottla.controller.store.metadata_store import Create
from ottla.controller.znodes.security import TOKENS, DelegationToken, encode_token
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from tests.support.certificates import Identity
from tests.support.clocks import ManualClock
from tests.support.scram_client import ScramClient

ALICE = Principal("User", "alice")
UNUSABLE = ["a\x00b", "a\nb", "\x1b[2Jroot", "a\x7f", "a\x85b", "x" * 32_763, "ü" * 16_382]
"""Names that a text can have: with control characters, or too long with `User:` for a string of the protocol."""
SURROGATES = ["a\ud800", "\udfff", "\udcff\ud83d"]
USABLE = ["alice", "ünal", "CN=a, O=b\\,c", "x" * 32_762, "ü" * 16_381, "a b", "\U0001f600"]


@pytest.mark.parametrize("name", [*UNUSABLE, *SURROGATES])
def test_a_name_that_cannot_be_shown_is_no_principal(name: str) -> None:
    with pytest.raises(UnusablePrincipal) as refused:
        Principal("User", name).check()
    assert name not in str(refused.value)


@pytest.mark.parametrize("name", USABLE)
def test_any_other_name_is_a_principal(name: str) -> None:
    Principal("User", name).check()


def session_of(mechanism: str, begin: Callable[[], SaslServer], known: list[Principal]) -> SaslSession:
    session = SaslSession(Offer({mechanism: OfferedMechanism(begin, 0)}, [mechanism]), lambda: 0, lambda: 0, known.append)
    assert session.on_handshake(mechanism, with_headers=True)
    return session


def plain(name: str, known: list[Principal]) -> None:
    session_of("PLAIN", lambda: PlainServer({name: "a-secret"}.get), known).on_token(f"\0{name}\0a-secret".encode())


def scram(name: str, known: list[Principal], *, by_token: bool = False) -> None:
    client = ScramClient("SCRAM-SHA-256", "token" if by_token else name, "a-secret", extensions=",tokenauth=true" if by_token else "")
    made = new_credential(name, "SCRAM-SHA-256", "a-secret")
    stored = parse_credential(credential(Upsertion(name, 1, made.iterations, made.salt, made.salted_password)))

    def begin() -> ScramServer:
        def token_credential_of(token_id: str) -> TokenCredential:
            return TokenCredential(name, stored, 5)

        return ScramServer("SCRAM-SHA-256", lambda user: stored, token_credential_of, "nonce", b"cluster", lambda token_id: None)

    session = session_of("SCRAM-SHA-256", begin, known)
    first, _ = session.on_token(client.first)
    assert first is not None
    session.on_token(client.final(first))


def delegation_token(name: str, known: list[Principal]) -> None:
    scram(name, known, by_token=True)


def oauthbearer(name: str, known: list[Principal]) -> None:
    session_of("OAUTHBEARER", lambda: OAuthBearerServer(lambda compact: Token(name, 5)), known).on_token(b"n,,\x01auth=Bearer a.b.\x01\x01")


def kerberos(name: str, known: list[Principal]) -> None:
    context = SimpleNamespace(step=lambda token: (b"", True), wrap=lambda data: data, unwrap=lambda data: data, peer="peer")
    session = session_of("GSSAPI", lambda: KerberosServer(cast(AcceptingContext, context), lambda peer: name), known)
    session.on_token(b"`")
    session.on_token(NO_LAYER_TOKEN)


@pytest.mark.parametrize("log_in", [plain, scram, delegation_token, oauthbearer, kerberos])
@pytest.mark.parametrize("name", ["a\x02b", "\x1b[2Jroot", "x" * 32_763])
def test_no_mechanism_lets_such_a_name_in(log_in: Callable[[str, list[Principal]], None], name: str) -> None:
    known: list[Principal] = []
    with pytest.raises(AuthenticationFailed) as failed:
        log_in(name, known)
    assert known == []
    assert failed.value.client_text is not None
    assert failed.value.client_text.startswith("Authentication failed during authentication due to invalid credentials")
    log_in("alice", known)
    assert known == [ALICE]


@pytest.mark.parametrize("message", [b"n,,", b"n,a=bob,"])
def test_half_of_a_surrogate_pair_in_a_bearer_token_is_refused_with_an_answer(message: bytes) -> None:
    name = json.loads('"a\\ud800"')
    known: list[Principal] = []
    session = session_of("OAUTHBEARER", lambda: OAuthBearerServer(lambda compact: Token(name, 5)), known)
    with pytest.raises(AuthenticationFailed) as failed:
        session.on_token(message + b"\x01auth=Bearer a.b.\x01\x01")
    assert (known, session.state) == ([], State.FAILED)
    SaslAuthenticateResponse(error_code=58, error_message=failed.value.client_text).encode(2)
    str(failed.value).encode()


def test_kerberos_refuses_half_of_a_surrogate_pair() -> None:
    with pytest.raises(AuthenticationFailed):
        kerberos("a\ud800", [])


@pytest.mark.parametrize("rules", ["DEFAULT", "RULE:^CN=(.*?),.*$/$1/,DEFAULT"])
def test_a_certificate_with_such_a_name_has_no_principal(rules: str) -> None:
    tls = ListenerTls(cast("Any", None), b"", MappingRules(rules))
    certificate = Identity("CN=a\x1bb,O=c").der
    with pytest.raises(UnusablePrincipal):
        tls.principal_of(certificate)
    assert tls.principal_of(Identity("CN=ab,O=c").der).name in ("CN=ab,O=c", "ab")


async def tokens_of(ensemble: MemoryEnsemble) -> DelegationTokens:
    store = ensemble.store()
    await store.open_session()
    tokens = DelegationTokens(store, ManualClock(), "secret", Lifetimes(5000, 5000), bytes, lambda: -2.0)
    await tokens.load()
    return tokens


@pytest.mark.parametrize("name", [*UNUSABLE, *SURROGATES])
def test_no_token_is_stored_of_for_or_by_such_a_name(name: str) -> None:
    async def scenario() -> None:
        tokens = await tokens_of(MemoryEnsemble(ManualClock()))
        bad = Principal("User", name)
        for owner, requester, renewers in ((bad, ALICE, []), (ALICE, bad, []), (ALICE, ALICE, [ALICE, bad])):
            with pytest.raises(InvalidAdminRequest):
                await tokens.create(owner, requester, renewers, -1)
        assert [*tokens.tokens] == []
        await tokens.close()

    asyncio.run(scenario())


def test_a_stored_token_of_such_a_name_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> list[str]:
        ensemble = MemoryEnsemble(ManualClock())
        first = await tokens_of(ensemble)
        await first.create(ALICE, ALICE, [], -1)
        store = ensemble.store()
        await store.open_session()
        bad = DelegationToken("bad", f"User%3A{'x' * 40_000}", "User%3Aalice", (), 0, 2**40, 2**40)
        await store.pipeline([Create(f"{TOKENS}/bad", encode_token(bad))])
        again = await tokens_of(ensemble)
        owners = [token.owner.name for token in again.tokens]
        await first.close()
        await again.close()
        return owners

    with caplog.at_level(logging.ERROR):
        assert asyncio.run(scenario()) == ["alice"]
    assert "a delegation token is ignored: the delegation token bad" in caplog.text
    assert len(caplog.text) < 1000
