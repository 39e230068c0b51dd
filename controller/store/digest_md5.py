"""Implements the client's side of SASL DIGEST-MD5 (RFC 2831), by which ZooKeeper's DigestLoginModule authenticates clients.

The mechanism requires MD5. The only stronger mechanism of ZooKeeper is Kerberos.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final, NamedTuple

from ottla.controller.store.sasl_exchange import LoginFailed

DIGEST_URI: Final = "zookeeper/zk-sasl-md5"
"""Service and host of all ZooKeeper servers, whatever their names are."""
MAX_CHALLENGE_BYTES: Final = 2048
"""Longest challenge, bytes; RFC 2831's limit."""

_DIRECTIVE: Final = re.compile(r'\s*,?\s*([A-Za-z0-9-]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|([^\s,"]+))\s*')


class DigestLogin(NamedTuple):
    """The credential of a JAAS section `Client`."""

    user: str
    password: str


class DigestFailed(LoginFailed):
    """The server's challenge is malformed, or does not prove that the server knows the password."""


class DigestMd5:
    """Implements `SaslExchange`: `respond` answers the challenge, then `verify` checks what the server answers."""

    def __init__(self, login: DigestLogin, cnonce: str) -> None:
        """`cnonce` is a fresh random text without quotes."""
        self._login = login
        self._cnonce = cnonce
        self._rspauth = ""

    def first(self) -> bytes:
        """See `SaslExchange`: the server begins."""
        return b""

    def answer(self, challenge: bytes) -> bytes | None:
        """See `SaslExchange`."""
        if not self._rspauth:
            return self.respond(challenge)
        self.verify(challenge)
        return None

    def respond(self, challenge: bytes) -> bytes:
        """The answer to the server's challenge. Raises DigestFailed."""
        given = _directives(challenge)
        nonce, realm = given.get("nonce"), given.get("realm", "")
        if nonce is None or given.get("algorithm") != "md5-sess" or "auth" not in given.get("qop", "auth").split(","):
            raise DigestFailed("the challenge of DIGEST-MD5 is malformed")
        secret = _md5(f"{self._login.user}:{realm}:{self._login.password}".encode())
        session = _md5(secret + f":{nonce}:{self._cnonce}".encode()).hex()

        def response(method: str) -> str:
            what = _md5(f"{method}:{DIGEST_URI}".encode()).hex()
            return _md5(f"{session}:{nonce}:00000001:{self._cnonce}:auth:{what}".encode()).hex()

        self._rspauth = response("")
        pairs = (
            "charset=utf-8",
            f'username="{_escaped(self._login.user)}"',
            f'realm="{_escaped(realm)}"',
            f'nonce="{_escaped(nonce)}"',
            "nc=00000001",
            f'cnonce="{self._cnonce}"',
            f'digest-uri="{DIGEST_URI}"',
            "maxbuf=65536",
            f"response={response('AUTHENTICATE')}",
            "qop=auth",
        )
        return ",".join(pairs).encode()

    def verify(self, answer: bytes) -> None:
        """Raises DigestFailed unless the server has proven that it knows the password."""
        if not hmac.compare_digest(_directives(answer).get("rspauth", "").encode(), self._rspauth.encode()):
            raise DigestFailed("ZooKeeper does not know the password of its client")


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _directives(data: bytes) -> dict[str, str]:
    text = data.decode("utf-8", "replace")
    if len(data) > MAX_CHALLENGE_BYTES:
        raise DigestFailed("the challenge of DIGEST-MD5 is too long")
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _DIRECTIVE.match(text, position)
        if match is None:
            raise DigestFailed("the challenge of DIGEST-MD5 is malformed")
        quoted = match[2]
        found.setdefault(match[1].lower(), re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else match[3])
        position = match.end()
    return found
