"""The exchange of GSSAPI from both sides, with contexts that stand in for the Kerberos library."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.security.principals import Principal
from ottla.broker.security.sasl.kerberos import (
    CLIENT_NOT_YET_VALID,
    NO_LAYER_TOKEN,
    OFFER,
    REPLAY,
    TICKET_NOT_YET_VALID,
    KerberosClient,
    KerberosFailed,
    KerberosServer,
)
from ottla.broker.security.sasl.kerberos_names import PrincipalToLocalRules
from ottla.broker.security.sasl.mechanism import InvalidCredentials, TransientFailure
from ottla.broker.security.sasl.session import AuthenticationFailed, Offer, OfferedMechanism, SaslSession
from ottla.protocol.sasl_login import CredentialUnavailable, ServerNotTrusted

RULES = PrincipalToLocalRules(["DEFAULT"], "REALM")
FIXED_TEXT = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
SIGNATURE = b"signed:"


class FakeContext:
    """Takes tokens `asks` and answers `answers`, then is complete; `wrap` writes a mark in front of the message."""

    def __init__(self, *legs: tuple[bytes | None, bytes], peer: str = "alice@REALM", error: KerberosFailed | None = None) -> None:
        self._legs = list(legs)
        self._error = error
        self.peer = peer

    def step(self, token: bytes | None) -> tuple[bytes, bool]:
        if self._error is not None:
            raise self._error
        expected, answer = self._legs.pop(0)
        if token != expected:
            raise KerberosFailed("A token was invalid")
        return answer, not self._legs

    def wrap(self, message: bytes) -> bytes:
        return SIGNATURE + message

    def unwrap(self, token: bytes) -> bytes:
        if not token.startswith(SIGNATURE):
            raise KerberosFailed("A token had an invalid Message Integrity Check (MIC)")
        return token.removeprefix(SIGNATURE)


def server(*legs: tuple[bytes | None, bytes], peer: str = "alice@REALM") -> KerberosServer:
    return KerberosServer(FakeContext(*(legs or ((b"ticket", b"proof"),)), peer=peer), RULES.name_of)


def at_the_layer() -> KerberosServer:
    found = server()
    assert found.evaluate(b"ticket") == b"proof"
    assert found.evaluate(b"") == SIGNATURE + OFFER
    return found


def test_both_sides_know_each_other_and_use_no_layer() -> None:
    theirs = server()
    ours = KerberosClient(FakeContext((None, b"ticket"), (b"proof", b"")))
    token: bytes | None = ours.first()
    while token is not None:
        assert theirs.authorization_id is None
        token = ours.answer(theirs.evaluate(token) or b"")
    assert theirs.authorization_id == "alice"
    assert (theirs.credential_expires_ms, theirs.token_authenticated) == (None, False)


def test_a_client_that_wants_no_proof_hears_of_the_layers_at_once() -> None:
    found = server((b"ticket", b""))
    assert found.evaluate(b"ticket") == SIGNATURE + b"\x01\x01\0\0"
    assert found.evaluate(SIGNATURE + b"\x01\0\0\0") is None
    assert found.authorization_id == "alice"


def test_a_context_may_take_several_tokens() -> None:
    found = server((b"one", b"two"), (b"three", b"four"))
    assert [found.evaluate(token) for token in (b"one", b"three", b"")] == [b"two", b"four", SIGNATURE + OFFER]


@pytest.mark.parametrize("authorization_id", [b"", b"alice@REALM", b"bob", b"\xff\xfe", b"x" * 100_000])
def test_the_authorization_id_of_a_client_is_ignored(authorization_id: bytes) -> None:
    found = at_the_layer()
    assert found.evaluate(SIGNATURE + NO_LAYER_TOKEN + authorization_id) is None
    assert found.authorization_id == "alice"


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (SIGNATURE, "too short"),
        (SIGNATURE + b"\x01\0\0", "too short"),
        (SIGNATURE + b"\x02\0\x10\0", "security layer 2"),
        (SIGNATURE + b"\x04\0\x10\0", "security layer 4"),
        (SIGNATURE + b"\0\0\0\0", "security layer 0"),
        (NO_LAYER_TOKEN, "Message Integrity Check"),
        (b"", "Message Integrity Check"),
    ],
)
def test_a_client_that_chooses_no_offered_layer_is_refused(token: bytes, reason: str) -> None:
    found = at_the_layer()
    with pytest.raises(InvalidCredentials, match=reason):
        found.evaluate(token)
    assert found.authorization_id is None


def test_data_in_place_of_the_empty_token_is_refused() -> None:
    found = server()
    found.evaluate(b"ticket")
    with pytest.raises(InvalidCredentials, match="sent data"):
        found.evaluate(b"more")


@pytest.mark.parametrize("peer", ["alice@OTHER", "a/b/c@REALM"])
def test_a_principal_without_a_short_name_is_refused(peer: str) -> None:
    found = server((b"ticket", b""), peer=peer)
    found.evaluate(b"ticket")
    with pytest.raises(InvalidCredentials, match=peer):
        found.evaluate(SIGNATURE + NO_LAYER_TOKEN)
    assert found.authorization_id is None


@pytest.mark.parametrize("code", [CLIENT_NOT_YET_VALID, TICKET_NOT_YET_VALID, REPLAY])
def test_a_failure_that_may_pass_is_no_answer(code: int) -> None:
    with pytest.raises(TransientFailure, match="Request is a replay"):
        KerberosServer(FakeContext(error=KerberosFailed("Request is a replay", code)), RULES.name_of).evaluate(b"ticket")


@given(st.lists(st.binary(max_size=40), max_size=4))
def test_no_tokens_of_a_stranger_authenticate(tokens: list[bytes]) -> None:
    found = server()
    try:
        for token in tokens:
            found.evaluate(token)
    except InvalidCredentials:
        pass
    assert found.authorization_id is None


def session(begin: Callable[[], KerberosServer]) -> tuple[SaslSession, list[Principal]]:
    known: list[Principal] = []
    offer = Offer({"GSSAPI": OfferedMechanism(begin, 0)}, ["GSSAPI"])
    return SaslSession(offer, lambda: 0, lambda: 0, known.append), known


def test_a_session_has_the_short_name_and_answers_nothing_to_the_last_token() -> None:
    found, known = session(server)
    assert found.on_handshake("GSSAPI", with_headers=False)
    tokens = [b"ticket", b"", SIGNATURE + NO_LAYER_TOKEN]
    assert [found.on_token(token) for token in tokens] == [(b"proof", 0), (SIGNATURE + OFFER, 0), (None, 0)]
    assert [str(each) for each in known] == ["User:alice"]


def test_a_client_reads_no_reason_and_the_log_has_it() -> None:
    found, _ = session(server)
    found.on_handshake("GSSAPI", with_headers=True)
    with pytest.raises(AuthenticationFailed, match="A token was invalid") as failed:
        found.on_token(b"nonsense")
    assert failed.value.client_text == FIXED_TEXT


def test_a_replay_closes_the_connection_without_a_text() -> None:
    found, _ = session(lambda: KerberosServer(FakeContext(error=KerberosFailed("Request is a replay", REPLAY)), RULES.name_of))
    found.on_handshake("GSSAPI", with_headers=True)
    with pytest.raises(AuthenticationFailed, match="GSSAPI failed for now: Request is a replay") as failed:
        found.on_token(b"ticket")
    assert failed.value.client_text is None


def test_a_session_begins_without_a_handshake_only_where_the_listener_offers_kerberos() -> None:
    found, _ = session(server)
    assert found.begin_without_handshake()
    assert found.on_token(b"ticket") == (b"proof", 0)
    without = SaslSession(Offer({}, []), lambda: 0, lambda: 0, lambda _: None)
    state = without.state
    assert not without.begin_without_handshake()
    assert without.state is state


def test_a_client_without_a_ticket_says_so() -> None:
    with pytest.raises(CredentialUnavailable, match="Cannot contact any KDC"):
        KerberosClient(FakeContext(error=KerberosFailed("Cannot contact any KDC"))).first()


@pytest.mark.parametrize(
    ("challenges", "reason"),
    [
        ([b"forged"], "A token was invalid"),
        ([b"proof", NO_LAYER_TOKEN], "Message Integrity Check"),
        ([b"proof", SIGNATURE + b"\x01"], "malformed"),
        ([b"proof", SIGNATURE + NO_LAYER_TOKEN + b"x"], "malformed"),
        ([b"proof", SIGNATURE + b"\x06\0\x10\0"], "demands a security layer"),
        ([b"proof", SIGNATURE + NO_LAYER_TOKEN, b"more"], "after the last one"),
    ],
)
def test_a_client_does_not_trust_a_server_that_breaks_the_rules(challenges: list[bytes], reason: str) -> None:
    ours = KerberosClient(FakeContext((None, b"ticket"), (b"proof", b"")))
    ours.first()
    with pytest.raises(ServerNotTrusted, match=reason):
        for challenge in challenges:
            ours.answer(challenge)


def test_a_client_accepts_a_server_that_names_a_buffer() -> None:
    ours = KerberosClient(FakeContext((None, b"ticket"), (b"proof", b"")))
    ours.first()
    assert ours.answer(b"proof") == b""
    assert ours.answer(SIGNATURE + b"\x07\x01\0\0") == SIGNATURE + NO_LAYER_TOKEN
    assert ours.answer(b"") is None
