"""Signed bearer tokens: which keys, algorithms and claims are accepted, and what hostile tokens cost."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Sequence
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.security.sasl.bearer_tokens import InvalidToken
from ottla.broker.security.sasl.json_web_keys import VerificationKey, listed_keys, parse_jwks
from ottla.broker.security.sasl.jwks_source import JwksUnavailable
from ottla.broker.security.sasl.signed_tokens import MAX_TOKEN_CHARS, SignedTokenValidator
from ottla.config.sasl import JwksSource, SignedTokens

NOW = 1_700_000_000
KEYS: dict[str, Any] = {
    "RS256": rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "ES384": ec.generate_private_key(ec.SECP384R1()),
    "ES512": ec.generate_private_key(ec.SECP521R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
CLAIMS = {"sub": "alice", "iat": NOW - 60, "exp": NOW + 60}


def jwk(algorithm: str, key: Any = None, **more: object) -> dict[str, object]:
    """The public key in the form of a key set."""
    public = (key or KEYS[algorithm]).public_key()
    return {**json.loads(jwt.get_algorithm_by_name(algorithm).to_jwk(public)), "kid": algorithm, **more}


def parsed(*keys: object) -> list[VerificationKey]:
    return parse_jwks(listed_keys(json.dumps({"keys": keys}).encode()))


class FixedKeys:
    """A key set that is not read again. Counts the tokens with an unknown key."""

    def __init__(self, keys: Sequence[VerificationKey]) -> None:
        self._keys = keys
        self.unknown = 0

    def candidates(self, key_id: str | None, algorithm: str) -> list[VerificationKey]:
        found = [each for each in self._keys if algorithm in each.algorithms and key_id in (None, each.key_id)]
        self.unknown += not found
        return found


ALL = [jwk(algorithm) for algorithm in KEYS]


def validator(*keys: object, audience: Sequence[str] = (), issuer: str | None = None, **rules: Any) -> SignedTokenValidator:
    found = FixedKeys(parsed(*(keys or ALL)))
    accepted = SignedTokens(JwksSource("file:/x", 1, 1, 1), frozenset(audience), issuer, **{**RULES, **rules})
    return SignedTokenValidator(accepted, found, lambda: NOW * 1000)  # type: ignore[arg-type]  # the part of JsonWebKeys that it needs


RULES = {"clock_skew_seconds": 30, "scope_claim_name": "scope", "sub_claim_name": "sub"}


def token(algorithm: str = "ES256", claims: object = None, key: Any = None, **header: Any) -> str:
    payload = json.dumps(CLAIMS if claims is None else claims).encode()
    return jwt.PyJWS().encode(payload, key or KEYS[algorithm], algorithm, headers={"kid": algorithm, **header})


def part(value: object) -> str:
    return base64.urlsafe_b64encode(value if isinstance(value, bytes) else json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_token_that_a_key_of_the_set_signed_is_valid(algorithm: str) -> None:
    assert validator().validate(token(algorithm)) == ("alice", (NOW + 60) * 1000)


@pytest.mark.parametrize("algorithm", ["RS384", "RS512", "PS256", "PS512"])
def test_an_rsa_key_serves_for_all_algorithms_of_rsa_unless_it_names_one(algorithm: str) -> None:
    compact = token(algorithm, key=KEYS["RS256"], kid="RS256")
    assert validator(jwk("RS256")).validate(compact).principal_name == "alice"
    with pytest.raises(InvalidToken, match="no key fits"):
        validator(jwk("RS256", alg="RS256")).validate(compact)


def test_a_token_without_a_key_id_is_tried_with_every_key_of_its_kind() -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    compact = jwt.PyJWS().encode(json.dumps(CLAIMS).encode(), KEYS["ES256"], "ES256")
    assert validator(jwk("ES256", other, kid="other"), *ALL).validate(compact).principal_name == "alice"
    with pytest.raises(InvalidToken, match="signature is wrong"):
        validator(jwk("ES256", other)).validate(compact)


def hmac_with_the_public_key() -> str:
    """The oldest attack: the public key, as text, taken for a shared secret."""
    public = KEYS["RS256"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{part({'alg': 'HS256', 'kid': 'RS256'})}.{part(CLAIMS)}"
    return f"{signed}.{part(hmac.digest(public, signed.encode(), 'sha256'))}"


@pytest.mark.parametrize(
    "compact",
    [
        "",
        "..",
        "a.b",
        "a.b.c.d.e",
        token()[:-4] + "AAAA",
        token() + ".",
        token().rpartition(".")[0] + ".",
        token(key=ec.generate_private_key(ec.SECP256R1())),
        token(kid="unknown"),
        token(kid="RS256"),
        hmac_with_the_public_key(),
        f"{part({'alg': 'none', 'kid': 'ES256'})}.{part(CLAIMS)}.",
        f"{part({'alg': 'NONE'})}.{part(CLAIMS)}.",
        f"{part({'alg': ['ES256'], 'kid': 'ES256'})}.{part(CLAIMS)}.{part(bytes(64))}",
        f"{part({'alg': 'ES256', 'kid': 5})}.{part(CLAIMS)}.{part(bytes(64))}",
        f"{part({'alg': 'ES256', 'kid': 'ES256'})}.{part(CLAIMS)}.{part(bytes(64))}",
        f"{part(b'[' * 40_000)}.{part(CLAIMS)}.{part(bytes(64))}",
        token(crit=["exp"], exp=1),
        token(claims=[]),
        token(claims="alice"),
        token(claims={**CLAIMS, "nested": "x" * MAX_TOKEN_CHARS}),
        jwt.PyJWS().encode(token().encode(), KEYS["ES256"], "ES256", headers={"kid": "ES256", "cty": "JWT"}),
        jwt.PyJWS().encode(b"[" * 40_000, KEYS["ES256"], "ES256", headers={"kid": "ES256"}),
        jwt.PyJWS().encode(b"\xff\x00", KEYS["ES256"], "ES256", headers={"kid": "ES256"}),
        "\0" * 1000,
        "ü.ü.ü",
    ],
)
def test_a_malformed_or_forged_token_is_refused(compact: str) -> None:
    with pytest.raises(InvalidToken):
        validator().validate(compact)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": None},
        {"iat": None},
        {"exp": NOW - 30},
        {"exp": "soon"},
        {"exp": True},
        {"exp": 1e300},
        {"exp": -1},
        {"iat": -1},
        {"exp": NOW + 10, "iat": NOW + 11},
        {"nbf": NOW + 31},
        {"nbf": NOW + 60},
        {"sub": None},
        {"sub": " "},
        {"sub": ["alice"]},
        {"scope": ""},
        {"scope": ["a", "a"]},
        {"scope": ["a", 5]},
        {"aud": "kafka"},
        {"aud": ["kafka"]},
    ],
)
def test_a_claim_that_is_missing_or_wrong_refuses_the_token(claims: dict[str, object]) -> None:
    wrong = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    with pytest.raises(InvalidToken):
        validator().validate(token(claims=wrong))


@pytest.mark.parametrize("claims", [{"exp": NOW - 29}, {"nbf": NOW + 30}, {"iat": NOW + 50}, {"scope": ["a", "b"]}, {"scope": "a b"}])
def test_clocks_may_differ_and_scopes_may_be_any(claims: dict[str, object]) -> None:
    assert validator().validate(token(claims={**CLAIMS, **claims})).principal_name == "alice"


def test_audience_and_issuer_have_to_be_those_expected() -> None:
    strict = validator(audience=["kafka", "logs"], issuer="https://issuer")
    right = {**CLAIMS, "aud": ["other", "logs"], "iss": "https://issuer"}
    assert strict.validate(token(claims=right)).principal_name == "alice"
    for wrong in (
        {"aud": "other"},
        {"aud": None},
        {"aud": [5]},
        {"aud": {"logs": 1}},
        {"iss": "https://issuer/"},
        {"iss": None},
        {"iss": 5},
    ):
        with pytest.raises(InvalidToken):
            strict.validate(token(claims={**right, **wrong}))


def test_the_names_of_claims_are_those_configured() -> None:
    mapped = validator(sub_claim_name="email", scope_claim_name="groups")
    found = mapped.validate(token(claims={**CLAIMS, "email": " bob@x ", "groups": ["a"], "scope": ""}))
    assert found.principal_name == "bob@x"


@pytest.mark.parametrize(
    "key",
    [
        jwk("ES256", use="enc"),
        jwk("ES256", alg="HS256"),
        jwk("ES256", alg="ES384"),
        jwk("ES256", kid=5),
        jwk("ES256", x="!"),
        jwk("ES256", x=5),
        jwk("ES256", crv="P-384"),
        {"kty": "oct", "k": "c2VjcmV0", "kid": "ES256", "alg": "HS256"},
        {"kty": "EC", "crv": "secp256k1"},
        {"kty": ["EC"], "crv": "P-256"},
        jwk("RS256", rsa.generate_private_key(public_exponent=65537, key_size=1024)),
        jwk("RS256", n=""),
        {},
        None,
        "key",
    ],
)
def test_a_key_that_verifies_no_signature_is_left_out(key: object, caplog: pytest.LogCaptureFixture) -> None:
    assert [each.key_id for each in parsed(key, jwk("EdDSA"))] == ["EdDSA"]
    with pytest.raises(JwksUnavailable):
        parsed(key)
    assert caplog.text == ""


def test_of_a_private_key_only_the_public_part_is_taken() -> None:
    private = json.loads(jwt.get_algorithm_by_name("RS256").to_jwk(KEYS["RS256"]))
    (found,) = parsed({**private, "kid": "RS256"})
    assert isinstance(found.key, rsa.RSAPublicKey)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"keys":{}}', b'{"keys":[]}', b"\xff", b"[" * 100_000, b"<html></html>"])
def test_what_is_no_key_set_is_refused(data: bytes) -> None:
    with pytest.raises(JwksUnavailable):
        parse_jwks(listed_keys(data))


@given(st.binary(max_size=300))
def test_random_bytes_are_neither_a_key_set_nor_a_token(data: bytes) -> None:
    with pytest.raises(JwksUnavailable):
        parse_jwks(listed_keys(data))
    with pytest.raises(InvalidToken):
        validator().validate(data.decode("latin-1"))


@given(st.data())
def test_a_token_with_one_changed_character_is_refused(data: st.DataObject) -> None:
    compact = token("EdDSA")
    at = data.draw(st.integers(0, len(compact) - 2))  # the last character has bits that no byte uses
    other = data.draw(st.sampled_from("AZaz09-_.").filter(lambda char: char != compact[at]))
    with pytest.raises(InvalidToken):
        validator().validate(compact[:at] + other + compact[at + 1 :])
