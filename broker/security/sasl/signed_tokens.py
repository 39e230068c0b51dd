"""Validates signed bearer tokens: JSON Web Tokens (RFC 7519) with a signature of a key that the operator trusts.

Kafka's ValidatorAccessTokenValidator. The key determines the possible algorithms, never the token. Needs the package PyJWT.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ottla.broker.security.sasl.bearer_tokens import InvalidToken, Token, json_object, time_ms
from ottla.broker.security.sasl.json_web_keys import JsonWebKeys
from ottla.config.sasl import SignedTokens

MAX_TOKEN_CHARS: Final = 64 * 1024
"""Longest token, characters; tokens with hundreds of groups have 16 KiB."""


class SignedTokenValidator:
    """See the module."""

    def __init__(self, accepted: SignedTokens, keys: JsonWebKeys, now_ms: Callable[[], int]) -> None:
        self._accepted = accepted
        self._keys = keys
        self._now_ms = now_ms

    def validate(self, compact: str) -> Token:
        """The content of a token in its compact form, `header.claims.signature`. Raises InvalidToken."""
        if len(compact) > MAX_TOKEN_CHARS:
            raise InvalidToken(f"the token is longer than {MAX_TOKEN_CHARS} characters")
        claims = json_object(self._verified(compact))
        self._check_times(claims)
        self._check_parties(claims)
        self._check_scopes(claims.get(self._accepted.scope_claim_name))
        subject = claims.get(self._accepted.sub_claim_name)
        if not isinstance(subject, str) or not subject.strip():
            raise InvalidToken(f"no principal name in claim {self._accepted.sub_claim_name}")
        expires_ms = time_ms(claims, "exp")
        assert expires_ms is not None
        return Token(subject.strip(), int(expires_ms))

    def _verified(self, compact: str) -> bytes:
        """The claims, after their signature was verified."""
        from jwt import PyJWS, PyJWTError

        signer = PyJWS()
        parts = compact.split(".")
        if len(parts) != 3:
            raise InvalidToken("the token is malformed")
        header = json_object(parts[0])
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or not isinstance(key_id, str | None) or "crit" in header or "b64" in header:
            raise InvalidToken("the token's header is not supported")
        candidates = self._keys.candidates(key_id, algorithm)
        if not candidates:
            raise InvalidToken("no key fits the token")
        for each in candidates:
            try:
                payload: bytes = signer.decode_complete(compact, each.key, algorithms=[algorithm])["payload"]
            except (PyJWTError, ValueError, TypeError):
                continue
            return payload
        raise InvalidToken("the signature is wrong")

    def _check_times(self, claims: dict[str, Any]) -> None:
        now_ms, skew_ms = self._now_ms(), self._accepted.clock_skew_seconds * 1000
        expires, issued, begins = (time_ms(claims, name) for name in ("exp", "iat", "nbf"))
        if expires is None or issued is None:
            raise InvalidToken("the token lacks the claim exp or iat")
        if expires < 0 or issued < 0:
            raise InvalidToken("the token has a negative time")
        if now_ms - skew_ms >= expires:
            raise InvalidToken("the token has expired")
        if expires < issued or (begins is not None and expires <= begins):
            raise InvalidToken("the token expires before it begins")
        if begins is not None and now_ms + skew_ms < begins:
            raise InvalidToken("the token is not valid yet")

    def _check_parties(self, claims: dict[str, Any]) -> None:
        accepted = self._accepted
        if accepted.expected_issuer is not None and claims.get("iss") != accepted.expected_issuer:
            raise InvalidToken("the token has another issuer")
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        if audience is None and not accepted.expected_audiences:
            return
        # As in Apache Kafka, a token that names audiences is refused where none is expected.
        if not any(isinstance(each, str) and each in accepted.expected_audiences for each in audiences):
            raise InvalidToken("the token is for another audience")

    def _check_scopes(self, scope: Any) -> None:
        scopes = scope if isinstance(scope, list) else [scope] if isinstance(scope, str) else []
        if not all(isinstance(each, str) and each.strip() for each in scopes):
            raise InvalidToken("the token has an empty scope")
        if len({each.strip() for each in scopes}) < len(scopes):
            raise InvalidToken("the token has a scope twice")
