"""Implements the client's side of SASL mechanisms: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER with unsecured tokens, and GSSAPI.

Brokers use it to log in to other brokers, and the command line to any broker. Only GSSAPI does I/O, in the Kerberos library. `login` sends
the tokens.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from ottla.broker.security.sasl.scram import HASHES, MIN_ITERATIONS
from ottla.config.errors import ConfigError
from ottla.config.jaas import LoginModule
from ottla.config.kerberos import kerberos_identity
from ottla.config.sasl import GSSAPI, OAUTHBEARER, PLAIN
from ottla.protocol.sasl_login import SaslClient, ServerNotTrusted

MAX_ITERATIONS: Final = 1_000_000
"""Largest iteration count that a server may ask for; half a second of work. Apache Kafka stores at most 16,384."""
NONCE_BYTES: Final = 20

_SERVER_FIRST: Final = re.compile(r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/]+={0,2}),i=([1-9][0-9]{0,9})(?:,.*)?", re.DOTALL)
_CLAIM: Final = re.compile(r"unsecuredLogin(String|Number|List)Claim_(.+)")
_EXTENSION: Final = "unsecuredLoginExtension_"
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7E \t\r\n]+")


class SaslContext(NamedTuple):
    """The sources of random numbers and time, and the server. `now_ms` is the time of day, `host` the name by which the server was
    addressed."""

    random_bytes: Callable[[int], bytes]
    now_ms: Callable[[], int]
    host: str = ""


class PlainClient(SaslClient):
    """Sends the password (RFC 4616)."""

    __slots__ = ("_password", "_user")

    def __init__(self, user: str, password: str) -> None:
        super().__init__(PLAIN)
        self._user = user
        self._password = password

    def first(self) -> bytes:
        """See `SaslClient`."""
        return f"\0{self._user}\0{self._password}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """See `SaslClient`."""
        if challenge:
            raise ServerNotTrusted("it sent a challenge, which PLAIN does not have")
        return None


class ScramClient(SaslClient):
    """Proves that it knows the password, and requires the same proof from the server (RFC 5802)."""

    __slots__ = ("_bare", "_expected", "_hash", "_nonce", "_password")

    def __init__(self, mechanism: str, user: str, password: str, nonce: str, *, is_token: bool = False) -> None:
        """`nonce` is a fresh random text. `is_token`: user and password are those of a delegation token (KIP-48)."""
        super().__init__(mechanism)
        self._hash = HASHES[mechanism]
        self._password = password
        self._nonce = nonce
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={escaped},r={nonce}{',tokenauth=true' if is_token else ''}"
        self._expected: bytes | None = None
        """The server's last token, once the own proof was sent."""

    def first(self) -> bytes:
        """See `SaslClient`."""
        return f"n,,{self._bare}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """See `SaslClient`."""
        if self._expected is None:
            return self._prove(challenge.decode("utf-8", "replace"))
        if not hmac.compare_digest(challenge, self._expected):
            raise ServerNotTrusted("its signature is wrong: it does not know the user's credential")
        return None

    def _prove(self, text: str) -> bytes:
        message = _SERVER_FIRST.fullmatch(text)
        if message is None:
            raise ServerNotTrusted("its first message is malformed")
        nonce, salt, iterations = message[1], message[2], int(message[3])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ServerNotTrusted("its nonce does not begin with that of this client")
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise ServerNotTrusted(f"it asks for {iterations} iterations; {MIN_ITERATIONS} to {MAX_ITERATIONS} are allowed")
        try:
            salt_bytes = base64.b64decode(salt, validate=True)
        except ValueError:
            raise ServerNotTrusted("its salt is not base64") from None
        client_key, server_key = _keys(self._hash, self._password, salt_bytes, iterations)
        without_proof = f"c=biws,r={nonce}"  # biws is the header `n,,` in base64
        signed = f"{self._bare},{text},{without_proof}".encode()
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), signed, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._expected = b"v=" + base64.b64encode(hmac.digest(server_key, signed, self._hash))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


@lru_cache(maxsize=16)
def _keys(hash_name: str, password: str, salt: bytes, iterations: int) -> tuple[bytes, bytes]:
    """The client's and the server's key. They are kept, because all brokers have the same salt for a user: computing them takes 2 ms."""
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    return hmac.digest(salted, b"Client Key", hash_name), hmac.digest(salted, b"Server Key", hash_name)


class OAuthBearerClient(SaslClient):
    """Sends a bearer token (RFC 7628)."""

    __slots__ = ("_extensions", "_token")

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        super().__init__(OAUTHBEARER)
        self._token = token
        self._extensions = extensions

    def first(self) -> bytes:
        """See `SaslClient`."""
        extensions = "".join(f"\x01{name}={value}" for name, value in self._extensions.items())
        return f"n,,\x01auth=Bearer {self._token}{extensions}\x01\x01".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """See `SaslClient`. A challenge is the status of a refused token, and the server expects a byte before it fails."""
        return b"\x01" if challenge else None


def sasl_client(mechanism: str, module: LoginModule, context: SaslContext) -> Callable[[], SaslClient]:
    """A function that begins exchanges with the credential of a JAAS entry. Raises ConfigError, whose text has no secret."""
    options = module.options
    if mechanism == OAUTHBEARER:
        unsecured_token(options, 0)
        extensions = _extensions(options)
        return lambda: OAuthBearerClient(unsecured_token(options, context.now_ms()), extensions)
    if mechanism == GSSAPI:
        # Few programs have the package and the library that it loads.
        from ottla.broker.security.sasl.kerberos_library import initiating

        return initiating(kerberos_identity(module), context.host)
    for name in ("username", "password"):
        if not options.get(name):
            raise ConfigError(f"the login module {module.name} has no option {name}")
    user, password = options["username"], options["password"]
    if mechanism == PLAIN:
        return lambda: PlainClient(user, password)
    is_token = options.get("tokenauth", "").lower() == "true"
    return lambda: ScramClient(mechanism, user, password, context.random_bytes(NONCE_BYTES).hex(), is_token=is_token)


def unsecured_token(options: Mapping[str, str], now_ms: int) -> str:
    """The token of the options `unsecuredLogin...`, as Kafka's OAuthBearerUnsecuredLoginCallbackHandler makes it. Raises ConfigError."""
    claims: dict[str, object] = {}
    for name, value in options.items():
        claim = _CLAIM.fullmatch(name)
        if claim is not None:
            claims[claim[2]] = _claim(claim[1], name, value)
    lifetime = options.get("unsecuredLoginLifetimeSeconds", "3600")
    if not lifetime.isdecimal():
        raise ConfigError("the option unsecuredLoginLifetimeSeconds is not a number of seconds")
    principal_claim = options.get("unsecuredLoginPrincipalClaimName", "sub")
    if not claims.get(principal_claim):
        raise ConfigError(f"the login module has no option unsecuredLoginStringClaim_{principal_claim}, which names the principal")
    now = now_ms / 1000
    claims = {"iat": now, "exp": now + int(lifetime), **claims}
    return f"{_base64({'alg': 'none'})}.{_base64(claims)}."


def _claim(kind: str, name: str, value: str) -> object:
    if kind == "List":
        # The first character separates the others.
        return value[1:].split(value[0]) if value else []
    if kind == "String":
        return value
    try:
        return float(value)
    except ValueError:
        raise ConfigError(f"the option {name} is not a number") from None


def _extensions(options: Mapping[str, str]) -> dict[str, str]:
    found = {name.removeprefix(_EXTENSION): value for name, value in options.items() if name.startswith(_EXTENSION)}
    for name, value in found.items():
        if name == "auth" or _EXTENSION_NAME.fullmatch(name) is None or _EXTENSION_VALUE.fullmatch(value) is None:
            raise ConfigError(f"the option {_EXTENSION}{name} is no valid extension")
    return found


def _base64(document: Mapping[str, object]) -> str:
    text = json.dumps(document, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()
