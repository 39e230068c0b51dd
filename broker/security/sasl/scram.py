"""Authenticates by a salted challenge, so that the password never travels (RFC 5802). Kafka's ScramSaslServer.

An unknown user gets a salt derived from the name and fails in the second step, so that the exchange does not reveal which users exist.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.security.sasl.mechanism import AuthenticationRefused, InvalidCredentials, SaslServer

MIN_ITERATIONS: Final = 4096
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS: Final = r"(?:,[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+)*"
_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_CLIENT_FIRST: Final = re.compile(rf"n,(?:a=({_NAME}))?,(n=({_NAME}),r=({_PRINTABLE})({_EXTENSIONS}))")
_CLIENT_FINAL: Final = re.compile(rf"(c={_BASE64},r=({_PRINTABLE}){_EXTENSIONS}),p=({_BASE64})")
_TOKEN_EXTENSION: Final = re.compile(r",tokenauth=true(?:,|$)", re.IGNORECASE)


class ScramCredential(NamedTuple):
    """The stored part of a password: it can check the password, but not take the user's place."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def parse_credential(text: str) -> ScramCredential:
    """The credential in the form of /config/users: `salt=,stored_key=,server_key=,iterations=`. Raises ValueError."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    if fields.keys() != {"salt", "stored_key", "server_key", "iterations"}:
        raise ValueError("a SCRAM credential has the fields salt, stored_key, server_key and iterations")
    try:
        salt, stored_key, server_key = (base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key"))
    except binascii.Error:
        raise ValueError("a SCRAM credential has a field that is not base64") from None
    return ScramCredential(salt, stored_key, server_key, int(fields["iterations"]))


class ScramServer(SaslServer):
    """See the module."""

    __slots__ = ("_credential", "_credential_of", "_first", "_hash", "_is_known", "_nonce", "_server_nonce", "_unknown_key", "_user")

    def __init__(
        self, mechanism: str, credential_of: Callable[[str], ScramCredential | None], server_nonce: str, unknown_key: bytes
    ) -> None:
        """`server_nonce` is a fresh random text. `unknown_key` makes the salts of unknown users; all brokers should have the same."""
        super().__init__()
        self._hash = HASHES[mechanism]
        self._credential_of = credential_of
        self._server_nonce = server_nonce
        self._unknown_key = unknown_key
        self._first = ""
        """The messages of the first step that both sides sign; empty before it."""
        self._nonce = ""
        self._user = ""
        self._is_known = False
        self._credential = ScramCredential(b"", b"", b"", MIN_ITERATIONS)

    def evaluate(self, token: bytes) -> bytes:
        """See `SaslServer`."""
        text = token.decode("utf-8", "replace")
        return self._on_final(text) if self._first else self._on_first(text)

    def _on_first(self, text: str) -> bytes:
        message = _CLIENT_FIRST.fullmatch(text)
        if message is None:
            raise InvalidCredentials("Invalid SCRAM message format")
        authorization_id, bare, name, nonce, extensions = message.groups()
        if _TOKEN_EXTENSION.search(extensions):
            raise InvalidCredentials("delegation tokens are not enabled")
        self._user = name.replace("=2C", ",").replace("=3D", "=")
        if authorization_id is not None and authorization_id != self._user:
            raise AuthenticationRefused("Authentication failed: Client requested an authorization id that is different from username")
        credential = self._credential_of(self._user)
        self._is_known = credential is not None
        self._credential = credential or self._credential_of_unknown(self._user)
        if self._credential.iterations < MIN_ITERATIONS:
            raise InvalidCredentials(f"Iterations {self._credential.iterations} is less than the minimum {MIN_ITERATIONS}")
        self._nonce = nonce + self._server_nonce
        salt = base64.b64encode(self._credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._first = f"{bare},{answer}"
        return answer.encode()

    def _on_final(self, text: str) -> bytes:
        message = _CLIENT_FINAL.fullmatch(text)
        if message is None:
            raise InvalidCredentials("Invalid SCRAM message format")
        without_proof, nonce, proof = message.groups()
        if nonce != self._nonce:
            raise InvalidCredentials("Invalid client nonce in the final client message.")
        signed = f"{self._first},{without_proof}".encode()
        signature = hmac.digest(self._credential.stored_key, signed, self._hash)
        given = base64.b64decode(proof)
        key = bytes(a ^ b for a, b in zip(given, signature, strict=False)) if len(given) == len(signature) else b""
        is_proven = hmac.compare_digest(hashlib.new(self._hash, key).digest(), self._credential.stored_key)
        if not (is_proven and self._is_known):
            raise InvalidCredentials("Invalid client credentials")
        self.authorization_id = self._user
        return b"v=" + base64.b64encode(hmac.digest(self._credential.server_key, signed, self._hash))

    def _credential_of_unknown(self, user: str) -> ScramCredential:
        """A credential that no password fits. Its salt is as long as those of Kafka's tools, and the same in every attempt."""
        made = hmac.digest(self._unknown_key, user.encode("utf-8", "replace"), "sha512")
        return ScramCredential(made[:25], made, made, MIN_ITERATIONS)
