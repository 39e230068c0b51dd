"""The exchanges of SASL mechanisms from the server's side."""

import base64
import contextlib
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.configuration.scram_credentials import ScramCredentials
from ottla.broker.security.sasl.bearer_tokens import validate_unsecured
from ottla.broker.security.sasl.mechanism import AuthenticationRefused, InvalidCredentials, SaslServer
from ottla.broker.security.sasl.oauthbearer import OAuthBearerServer
from ottla.broker.security.sasl.plain import PlainServer
from ottla.broker.security.sasl.scram import ScramCredential, ScramServer, TokenCredential, parse_credential
from ottla.broker.security.sasl.session import AuthenticationFailed, Offer, OfferedMechanism, SaslSession
from ottla.client.user_admin import new_credential
from ottla.config.sasl import UnsecuredTokens
from ottla.controller.admin.scram_credentials import Upsertion, credential
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from ottla.protocol.scram_salts import SALT_BYTES, salt_of
from tests.support.scram_client import ScramClient

PASSWORDS = {"alice": "alice-secret", "ünal": "pässword"}
WRONG = "Authentication failed: Invalid username or password"
OTHER_NAME = "Authentication failed: Client requested an authorization id that is different from username"
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
NOW_MS = 1_700_000_000_000


def plain(token: str) -> SaslServer:
    server = PlainServer(PASSWORDS.get)
    assert server.evaluate(token.encode()) == b""
    return server


@pytest.mark.parametrize("token", ["\0alice\0alice-secret", "alice\0alice\0alice-secret", "\0ünal\0pässword"])
def test_plain_accepts_the_password_of_a_user(token: str) -> None:
    assert plain(token).authorization_id == token.split("\0")[1]


@pytest.mark.parametrize(
    ("token", "text"),
    [
        ("\0alice\0wrong", WRONG),
        ("\0bob\0alice-secret", WRONG),
        ("\0bob\0None", WRONG),
        ("bob\0alice\0alice-secret", OTHER_NAME),
    ],
)
def test_plain_says_why_it_refuses(token: str, text: str) -> None:
    with pytest.raises(AuthenticationRefused) as refused:
        plain(token)
    assert str(refused.value) == text


@pytest.mark.parametrize(
    ("token", "text"),
    [
        ("", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        ("alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        ("\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        ("\0alice\0alice-secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        ("\0" * 500_000, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        ("\0\0password", "Authentication failed: username not specified"),
        ("\0\0", "Authentication failed: username not specified"),
        ("\0alice\0", "Authentication failed: password not specified"),
    ],
)
def test_plain_refuses_malformed_tokens_in_the_words_of_apache_kafka(token: str, text: str) -> None:
    with pytest.raises(AuthenticationRefused) as refused:
        plain(token)
    assert str(refused.value) == text


def stored(mechanism: int, password: str, salt: bytes = b"salt1234", iterations: int = 4096) -> ScramCredential:
    """The credential in the form in which AlterUserScramCredentials stores it."""
    salted = hashlib.pbkdf2_hmac("sha256" if mechanism == 1 else "sha512", password.encode(), salt, iterations)
    return parse_credential(credential(Upsertion("alice", mechanism, iterations, salt, salted)))


def scram(mechanism: int = 1, known: ScramCredential | None = None, nonce: str = "nonce") -> ScramServer:
    found = known or stored(mechanism, "alice-secret")
    token = TokenCredential("owner", found, NOW_MS + 5)
    return ScramServer(
        MECHANISMS[mechanism],
        lambda user: found if user in ("alice", "a,b=c", "user") else None,
        lambda token_id: token if token_id == "token" else None,
        nonce,
        b"cluster",
    )


def test_scram_answers_as_in_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    server = scram(known=stored(1, "pencil", salt), nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert server.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == first
    final = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert server.evaluate(final) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.authorization_id == "user"


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "a,b=c"])
def test_scram_accepts_the_password_and_proves_itself(mechanism: int, user: str) -> None:
    server, client = scram(mechanism), ScramClient(MECHANISMS[mechanism], user, "alice-secret")
    final = client.final(server.evaluate(client.first))
    assert server.authorization_id is None
    assert client.is_server(server.evaluate(final))
    assert server.authorization_id == user


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "alice-secret")])
def test_scram_refuses_a_wrong_password_and_an_unknown_user_in_the_same_step(user: str, password: str) -> None:
    server, client = scram(), ScramClient("SCRAM-SHA-256", user, password)
    final = client.final(server.evaluate(client.first))
    with pytest.raises(InvalidCredentials, match="Invalid client credentials"):
        server.evaluate(final)
    assert server.authorization_id is None


def test_a_client_that_repeats_its_nonce_before_that_of_the_server_is_accepted() -> None:
    """As librdkafka 2.0 does, which Debian's kcat uses."""
    server, client = scram(), ScramClient("SCRAM-SHA-256", "alice", "alice-secret", nonce="abc", repeats_nonce=True)
    assert client.is_server(server.evaluate(client.final(server.evaluate(client.first))))
    assert server.authorization_id == "alice"


def test_an_unknown_user_has_the_same_salt_in_every_attempt_and_another_one_than_others() -> None:
    first = scram().evaluate(ScramClient("SCRAM-SHA-256", "nobody", "").first)
    assert scram().evaluate(ScramClient("SCRAM-SHA-256", "nobody", "").first) == first
    assert scram().evaluate(ScramClient("SCRAM-SHA-256", "nemo", "").first) != first


def test_an_unknown_user_has_the_iterations_of_most_users_and_an_unknown_token_those_of_tokens() -> None:
    for extension, iterations in ((b"", b"8192"), (b",tokenauth=true", b"4096")):
        server = ScramServer("SCRAM-SHA-256", lambda _: None, lambda _: None, "nonce", b"key", usual_iterations=lambda: 8192)
        assert server.evaluate(b"n,,n=nobody,r=abc" + extension).endswith(b",i=" + iterations)


class Changes:
    """Passes changes of users' configurations on, in place of a DynamicConfig."""

    def on_entity_change(self, _: str, then: Callable[[str, dict[str, str]], None]) -> None:
        self.change = then

    async def undisturbed(self, read: Callable[[], Awaitable[None]]) -> None:
        await read()


def test_the_usual_iterations_are_those_of_most_users_of_the_mechanism() -> None:
    changes: Any = Changes()
    admin: Any = None
    credentials = ScramCredentials(admin, changes, os.urandom)
    assert credentials.usual_iterations("SCRAM-SHA-256") == 4096
    for user, iterations in (("a", 8192), ("b", 8192), ("c", 4096)):
        changes.change(user, {"SCRAM-SHA-256": f"salt=c2FsdA==,stored_key=AAAA,server_key=AAAA,iterations={iterations}"})
    assert credentials.usual_iterations("SCRAM-SHA-256") == 8192
    assert credentials.usual_iterations("SCRAM-SHA-512") == 4096
    changes.change("b", {})
    changes.change("a", {})
    assert credentials.usual_iterations("SCRAM-SHA-256") == 4096


def test_only_users_have_credentials_and_neither_their_default_nor_their_pairs_with_client_ids() -> None:
    changes: Any = Changes()
    admin: Any = None
    credentials = ScramCredentials(admin, changes, os.urandom)
    stored = {"SCRAM-SHA-256": "salt=c2FsdA==,stored_key=AAAA,server_key=AAAA,iterations=4096"}
    changes.change("<default>", stored)
    changes.change("alice/clients/app", stored)
    assert [credentials.credential_of("SCRAM-SHA-256", name) for name in ("<default>", "alice/clients/app", "alice")] == [None] * 3
    changes.change("alice%2Fclients%2Fapp", stored)
    changes.change("alice/clients/app", {"producer_byte_rate": "5"})
    assert credentials.credential_of("SCRAM-SHA-256", "alice/clients/app") is not None


def test_the_salt_of_an_unknown_user_looks_like_those_of_users() -> None:
    """A number of 130 bits in base 36, as Kafka's tools make it."""
    answers = [scram().evaluate(ScramClient("SCRAM-SHA-256", f"nobody{number}", "").first) for number in range(50)]
    matches = [re.fullmatch(rb"r=[^,]+,s=([^,]+),i=4096", answer) for answer in answers]
    unknown = [base64.b64decode(match[1]) for match in matches if match]
    assert len(unknown) == len(answers)
    users = [new_credential("alice", "SCRAM-SHA-256", "secret", iterations=1).salt for _ in range(50)]
    for salts in (unknown, users, [salt_of(os.urandom(SALT_BYTES)) for _ in range(50)]):
        assert len(set(salts)) == 50
        assert all(re.fullmatch(rb"[0-9a-z]{20,26}", salt) for salt in salts)


def test_a_salt_is_the_number_that_java_would_write() -> None:
    """BigInteger.toString(36)."""
    assert salt_of(b"\xff" * SALT_BYTES) == b"1omfro7zwmumr3umxudzyj6scf"
    assert salt_of(bytes(SALT_BYTES)) == b"0"
    assert int(salt_of(bytes(range(SALT_BYTES))), 36) == int.from_bytes(range(SALT_BYTES), "big") >> 6


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,n=alice",
        b"y,,n=alice,r=n",
        b"p=tls-unique,,n=alice,r=n",
        b"n,,m=must,n=alice,r=n",
        b"n,,n=ali=2Dce,r=n",
        b"n,,n=\xff\xfe,r=n",
        b"n,,n=alice,r=n" + b",x" * 100_000,
        b"\0" * 500_000,
    ],
)
def test_scram_refuses_malformed_first_messages(first: bytes) -> None:
    with pytest.raises(InvalidCredentials):
        scram().evaluate(first)


def test_scram_ignores_a_hundred_thousand_extensions() -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "alice-secret", extensions=",x=y" * 100_000)
    server = scram()
    assert client.is_server(server.evaluate(client.final(server.evaluate(client.first))))


LONG = 500_000
"""Length of a text in a message of half a MiB, the longest of a stranger."""


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        ("SCRAM-SHA-256", b"n,,n=" + b"a" * LONG + b",r=x"),
        ("SCRAM-SHA-256", b"n,a=" + b"a" * LONG + b",n=alice,r=x"),
        ("SCRAM-SHA-256", b"n,,n=" + b"a" * LONG),
        ("SCRAM-SHA-256", b"n,,n=" + b"=2C" * (LONG // 3) + b",r=x"),
        ("SCRAM-SHA-256", b"n,,n=" + b"a=3D" * (LONG // 4) + b"=,r=x"),
        ("OAUTHBEARER", b"n,a=" + b"a" * LONG + b",\x01auth=Bearer a.b.\x01\x01"),
    ],
)
def test_the_long_name_of_a_stranger_is_read_at_once(mechanism: str, message: bytes) -> None:
    server: SaslServer = oauthbearer() if mechanism == "OAUTHBEARER" else scram()
    before = time.thread_time()
    with contextlib.suppress(InvalidCredentials, AuthenticationRefused):
        server.evaluate(message)
    assert time.thread_time() - before < 0.05


@pytest.mark.parametrize(
    "final",
    [
        b"c=" + b"a" * 4 * LONG,
        b"c=biws,r=" + b"x" * 4 * LONG,
        b"c=biws,r=x,p=" + b"a" * 4 * LONG,
        b"c=biws,r=x,p=" + b"a" * 4 * LONG + b"!",
    ],
)
def test_the_long_final_message_of_a_stranger_is_read_at_once(final: bytes) -> None:
    server = scram()
    server.evaluate(b"n,,n=nobody,r=n")
    before = time.thread_time()
    with pytest.raises(InvalidCredentials):
        server.evaluate(final)
    assert time.thread_time() - before < 0.05


@pytest.mark.parametrize("user", ["alice", "a" * 200_000])
def test_scram_keeps_little_of_a_long_first_message(user: str) -> None:
    client = ScramClient("SCRAM-SHA-256", user, "alice-secret", nonce="n" * 100_000, extensions=",x=y" * 40_000)
    server = scram()
    final = client.final(server.evaluate(client.first))
    kept = (getattr(server, name) for name in (*ScramServer.__slots__, *SaslServer.__slots__))
    assert max(map(sys.getsizeof, kept)) < 500
    if user == "alice":
        assert client.is_server(server.evaluate(final))


@pytest.mark.parametrize("extensions", [",tokenauth=true", ",x=y,tokenauth=TRUE,z=y"])
def test_a_delegation_token_authenticates_its_owner_until_it_expires(extensions: str) -> None:
    server, client = scram(), ScramClient("SCRAM-SHA-256", "token", "alice-secret", extensions=extensions)
    assert client.is_server(server.evaluate(client.final(server.evaluate(client.first))))
    assert (server.authorization_id, server.credential_expires_ms, server.token_authenticated) == ("owner", NOW_MS + 5, True)


def test_only_the_first_message_of_a_token_is_prepared_for() -> None:
    asked: list[str] = []
    server = ScramServer("SCRAM-SHA-256", lambda _: None, lambda _: None, "nonce", b"cluster", asked.append)
    first = b"n,,n=to=2Cken,r=x,tokenauth=true"
    for other in (b"", b"n,,n=alice,r=x", b"n,,n=token,r=x,tokenauth=false", b"n,a=alice,n=token,r=x,tokenauth=true", first + b"\xff"):
        assert server.preparation(other) is None
    assert asked == []
    server.preparation(first)
    assert asked == ["to,ken"]
    server.evaluate(first)
    server.preparation(first)
    assert asked == ["to,ken"]


@pytest.mark.parametrize(
    ("name", "extensions"), [("alice", ",tokenauth=true"), ("token", ""), ("token", ",tokenauth=false"), ("token", ",tokenauths=true")]
)
def test_a_token_is_no_user_and_a_user_no_token(name: str, extensions: str) -> None:
    server, client = scram(), ScramClient("SCRAM-SHA-256", name, "alice-secret", extensions=extensions)
    final = client.final(server.evaluate(client.first))
    with pytest.raises(InvalidCredentials, match="Invalid client credentials"):
        server.evaluate(final)
    assert (server.authorization_id, server.credential_expires_ms, server.token_authenticated) == (None, None, False)


def test_scram_refuses_another_name_and_few_iterations() -> None:
    with pytest.raises(AuthenticationRefused) as refused:
        scram().evaluate(b"n,a=bob,n=alice,r=n")
    assert str(refused.value) == OTHER_NAME
    with pytest.raises(InvalidCredentials, match="Iterations 4095 is less than the minimum 4096"):
        scram(known=stored(1, "alice-secret", iterations=4095)).evaluate(b"n,,n=alice,r=n")


@given(st.binary(max_size=200))
def test_no_final_message_but_the_right_one_is_accepted(final: bytes) -> None:
    server = scram()
    server.evaluate(b"n,,n=alice,r=n")
    with pytest.raises(InvalidCredentials):
        server.evaluate(final)


@pytest.mark.parametrize("proof", [b"", b"AAAA", base64.b64encode(bytes(32)), base64.b64encode(bytes(64))])
def test_a_proof_of_another_length_or_value_is_refused(proof: bytes) -> None:
    server = scram()
    server.evaluate(b"n,,n=alice,r=n")
    with pytest.raises(InvalidCredentials, match="Invalid client credentials"):
        server.evaluate(b"c=biws,r=nnonce,p=" + proof)


@pytest.mark.parametrize("text", ["", "salt=YQ==", "salt=!,stored_key=YQ==,server_key=YQ==,iterations=4096", "a,b,c,d"])
def test_a_malformed_credential_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="SCRAM credential"):
        parse_credential(text)


def encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def token_of(header: object = None, **claims: object) -> str:
    return f"{encoded(header or {'alg': 'none'})}.{encoded({'sub': 'alice', 'exp': NOW_MS / 1000 + 60, **claims})}."


def bearer(compact: str, name: str = "", extensions: str = "") -> bytes:
    return f"n,{name},\x01auth=Bearer {compact}\x01{extensions}\x01".encode()


def oauthbearer(scope: tuple[str, ...] = ()) -> OAuthBearerServer:
    accepted = UnsecuredTokens("sub", "scope", scope, 0)
    return OAuthBearerServer(lambda compact: validate_unsecured(compact, accepted, NOW_MS))


@pytest.mark.parametrize("message", [bearer(token_of()), bearer(token_of(), "a=alice"), bearer(token_of(), extensions="trace=x\x01")])
def test_an_unsecured_token_authenticates_until_it_expires(message: bytes) -> None:
    server = oauthbearer()
    assert server.evaluate(message) == b""
    assert (server.authorization_id, server.credential_expires_ms) == ("alice", NOW_MS + 60_000)


@pytest.mark.parametrize(
    "compact",
    [
        "a",
        "a.b.c",
        "..",
        token_of(exp=NOW_MS / 1000),
        token_of(exp="soon"),
        token_of(exp=True),
        token_of(exp=None),
        token_of(iat=NOW_MS / 1000 + 1),
        token_of(sub=" "),
        token_of(sub=5),
        token_of({"alg": "HS256"}),
        token_of() + "YQ",
        f"{encoded([])}.{encoded({})}.",
        f"{encoded({'alg': 'none'})}.{base64.urlsafe_b64encode(b'[' * 100_000).decode().rstrip('=')}.",
    ],
)
def test_a_token_that_is_not_valid_is_answered_with_a_status_and_then_refused(compact: str) -> None:
    server = oauthbearer()
    status = server.evaluate(bearer(compact))
    assert json.loads(status) == {"status": "invalid_token"}
    assert server.authorization_id is None
    with pytest.raises(AuthenticationRefused) as refused:
        server.evaluate(b"\x01")
    assert str(refused.value) == status.decode()


def test_a_token_needs_the_required_scopes() -> None:
    assert oauthbearer(("a", "b")).evaluate(bearer(token_of(scope=["b", "a", "c"]))) == b""
    assert oauthbearer(("a",)).evaluate(bearer(token_of(scope="a"))) == b""
    expected = b'{"status":"insufficient_scope", "scope":"[a, b]"}'
    for given_scope in (["a"], "a b", 5, None, {"a": "b"}):
        assert oauthbearer(("a", "b")).evaluate(bearer(token_of(scope=given_scope))) == expected


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic YQ==\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01other=x\x01\x01",
        b"\xff" * 500_000,
    ],
)
def test_a_malformed_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(InvalidCredentials):
        oauthbearer().evaluate(message)


def test_the_error_for_a_client_with_a_long_name_fits_into_an_answer() -> None:
    session = SaslSession(
        Offer({"OAUTHBEARER": OfferedMechanism(oauthbearer, 0)}, ["OAUTHBEARER"]), lambda: 0, lambda: NOW_MS, lambda principal: None
    )
    assert session.on_handshake("OAUTHBEARER", with_headers=True)
    with pytest.raises(AuthenticationFailed) as failed:
        session.on_token(bearer(token_of(), "a=" + "b" * 40_000))
    assert failed.value.client_text is not None
    answer = SaslAuthenticateResponse(error_code=58, error_message=failed.value.client_text).encode(2)
    assert b"authorization id (bbbb" in answer


def test_another_name_than_that_of_the_token_is_refused() -> None:
    with pytest.raises(AuthenticationRefused, match=r"authorization id \(bob\) that is different from the token"):
        oauthbearer().evaluate(bearer(token_of(), "a=bob"))
