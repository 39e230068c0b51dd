"""Authenticates by a salted challenge, so that the password is never sent (RFC 5802). Kafka's ScramSaslServer.

An unknown user gets a salt derived from the name and a secret, and fails in the second step, so that the exchange does not reveal which
users exist. An exchange keeps only digests of the client's messages: unauthenticated clients can begin many exchanges, with messages as
long as a frame.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from ottla.broker.security.sasl.mechanism import SASL_NAME, AuthenticationRefused, InvalidCredentials, SaslServer, is_sasl_name
from ottla.protocol.scram_salts import SALT_BYTES, salt_of

MIN_ITERATIONS: Final = 4096
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]++"
_EXTENSIONS: Final = r"(?:,[A-Za-z]++=[\x01-\x2b\x2d-\x7f]++)*"
_BASE64: Final = r"[a-zA-Z0-9/+]*+={0,2}"  # the length has to be a multiple of four, too
_CLIENT_FIRST: Final = re.compile(rf"n,(?:a=({SASL_NAME}))?,(n=({SASL_NAME}),r=({_PRINTABLE})({_EXTENSIONS}))")
_CLIENT_FINAL: Final = re.compile(rf"(c=({_BASE64}),r=({_PRINTABLE}){_EXTENSIONS}),p=({_BASE64})")
_TOKEN_EXTENSION: Final = re.compile(r",tokenauth=true(?:,|$)", re.IGNORECASE)
"""The extension by which a client names a delegation token instead of a user (KIP-48)."""


class ScramCredential(NamedTuple):
    """The stored part of a password: it verifies the password, but is not sufficient to log in."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class TokenCredential(NamedTuple):
    """The credential of a delegation token. `owner` is the name of the principal, `expires_ms` counts from the epoch."""

    owner: str
    credential: ScramCredential
    expires_ms: int


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

    __slots__ = ("_credential", "_credential_of", "_hash", "_is_known", "_nonce", "_prepare_token", "_principal_name", "_server_nonce",
                 "_signing", "_token_credential_of", "_unknown_key", "_usual_iterations")  # fmt: skip

    def __init__(
        self,
        mechanism: str,
        credential_of: Callable[[str], ScramCredential | None],
        token_credential_of: Callable[[str], TokenCredential | None],
        server_nonce: str,
        unknown_key: bytes,
        prepare_token: Callable[[str], Awaitable[None] | None] = lambda _: None,
        usual_iterations: Callable[[], int] = lambda: MIN_ITERATIONS,
    ) -> None:
        """`credential_of` is called with the name of a user, `token_credential_of` with the id of a delegation token. `server_nonce` is a
        fresh random text. `unknown_key` makes the salts of unknown users: a secret that all brokers have. `prepare_token` gives what has
        to be awaited before `token_credential_of`, or None. `usual_iterations` are those of most users."""
        super().__init__()
        self._prepare_token = prepare_token
        self._hash = HASHES[mechanism]
        self._credential_of = credential_of
        self._token_credential_of = token_credential_of
        self._server_nonce = server_nonce
        self._unknown_key = unknown_key
        self._usual_iterations = usual_iterations
        self._signing: tuple[hmac.HMAC, hmac.HMAC] | None = None
        """The signatures of client and server, which have begun with the messages of the first step; None before it."""
        self._nonce = 0, b""
        """The length of the nonce of both sides, and its digest."""
        self._principal_name = ""
        self._is_known = False
        self._credential = ScramCredential(b"", b"", b"", MIN_ITERATIONS)

    def preparation(self, token: bytes) -> Awaitable[None] | None:
        """See `SaslServer`. The credential of a delegation token is made when a client first uses the token. None for a message that
        `evaluate` refuses."""
        message = None if self._signing is not None else _client_first(token.decode("utf-8", "replace"))
        if message is None or not _TOKEN_EXTENSION.search(message[5]) or message[1] not in (None, _name_of(message)):
            return None
        return self._prepare_token(_name_of(message))

    def evaluate(self, token: bytes) -> bytes:
        """See `SaslServer`."""
        text = token.decode("utf-8", "replace")
        return self._on_first(text) if self._signing is None else self._on_final(text, *self._signing)

    def _on_first(self, text: str) -> bytes:
        message = _client_first(text)
        if message is None:
            raise InvalidCredentials("Invalid SCRAM message format")
        authorization_id, bare, _, nonce, extensions = message.groups()
        user = _name_of(message)
        if authorization_id is not None and authorization_id != user:
            raise AuthenticationRefused("Authentication failed: Client requested an authorization id that is different from username")
        is_token = _TOKEN_EXTENSION.search(extensions) is not None
        credential = self._credential_of_token(user) if is_token else self._credential_of_user(user)
        self._is_known = credential is not None
        self._credential = credential or self._credential_of_unknown(user, MIN_ITERATIONS if is_token else self._usual_iterations())
        if self._credential.iterations < MIN_ITERATIONS:
            raise InvalidCredentials(f"Iterations {self._credential.iterations} is less than the minimum {MIN_ITERATIONS}")
        nonce += self._server_nonce
        self._nonce = len(nonce), _digest(nonce)
        salt = base64.b64encode(self._credential.salt).decode()
        answer = f"r={nonce},s={salt},i={self._credential.iterations}"
        signed = f"{bare},{answer},".encode()
        self._signing = (
            hmac.new(self._credential.stored_key, signed, self._hash),
            hmac.new(self._credential.server_key, signed, self._hash),
        )
        return answer.encode()

    def _on_final(self, text: str, client_signature: hmac.HMAC, server_signature: hmac.HMAC) -> bytes:
        message = _CLIENT_FINAL.fullmatch(text)
        if message is None or len(message[2]) % 4 or len(message[4]) % 4:
            raise InvalidCredentials("Invalid SCRAM message format")
        without_proof, _, nonce, proof = message.groups()
        # Old versions of librdkafka (2.0) repeat their own part in front, which Apache Kafka accepts, too. The proof covers all of it.
        length, digest = self._nonce
        if len(nonce) < length or _digest(nonce[-length:]) != digest:
            raise InvalidCredentials("Invalid client nonce in the final client message.")
        client_signature.update(without_proof.encode())
        server_signature.update(without_proof.encode())
        signature = client_signature.digest()
        given = base64.b64decode(proof)
        key = bytes(a ^ b for a, b in zip(given, signature, strict=False)) if len(given) == len(signature) else b""
        is_proven = hmac.compare_digest(hashlib.new(self._hash, key).digest(), self._credential.stored_key)
        if not (is_proven and self._is_known):
            raise InvalidCredentials("Invalid client credentials")
        self.authorization_id = self._principal_name
        return b"v=" + base64.b64encode(server_signature.digest())

    def _credential_of_user(self, user: str) -> ScramCredential | None:
        found = self._credential_of(user)
        if found is not None:
            self._principal_name = user
        return found

    def _credential_of_token(self, token_id: str) -> ScramCredential | None:
        found = self._token_credential_of(token_id)
        if found is None:
            return None
        self._principal_name, credential, self.credential_expires_ms = found
        self.token_authenticated = True
        return credential

    def _credential_of_unknown(self, user: str, iterations: int) -> ScramCredential:
        """A credential that no password fits, with the same salt in every attempt."""
        made = hmac.digest(self._unknown_key, user.encode("utf-8", "replace"), "sha512")
        return ScramCredential(salt_of(made[:SALT_BYTES]), made, made, iterations)


def _client_first(text: str) -> re.Match[str] | None:
    """The parts of a client's first message; None if it is none."""
    message = _CLIENT_FIRST.fullmatch(text)
    return message if message is not None and is_sasl_name(message[1] or "") and is_sasl_name(message[3]) else None


def _digest(nonce: str) -> bytes:
    return hashlib.sha256(nonce.encode()).digest()


def _name_of(first: re.Match[str]) -> str:
    """The user, or the delegation token, of a client's first message."""
    return first[3].replace("=2C", ",").replace("=3D", "=")
