"""Plays the client of a SCRAM exchange (RFC 5802), written apart from the server to judge it."""

from __future__ import annotations

import base64
import hashlib
import hmac

from tests.support.secrets import keep_secret

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class ScramClient:
    """One exchange: send `first`, then `final(answer)`, then check the server with `is_server(answer)`."""

    def __init__(
        self,
        mechanism: str,
        user: str,
        password: str,
        nonce: str = "fyko+d2lbbFgONRv9qkxdawL",
        extensions: str = "",
        *,
        repeats_nonce: bool = False,
    ) -> None:
        """`repeats_nonce`: an error of old versions of librdkafka, which put their nonce before that of the server."""
        self._repeated = nonce if repeats_nonce else ""
        self._hash = HASHES[mechanism]
        self._password = password
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}{extensions}"
        self._signature = b""

    @property
    def first(self) -> bytes:
        """The client's first message."""
        return f"n,,{self._bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """The client's final message."""
        fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key, server_key = hashlib.new(self._hash, client_key).digest(), hmac.digest(salted, b"Server Key", self._hash)
        keep_secret(salted, client_key, stored_key, server_key)
        without_proof = f"c=biws,r={self._repeated}{fields['r']}"
        signed = f"{self._bare},{server_first.decode()},{without_proof}".encode()
        signature = hmac.digest(stored_key, signed, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(server_key, signed, self._hash)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def is_server(self, server_final: bytes) -> bool:
        """Whether the server has proven that it knows the credential."""
        return server_final == b"v=" + base64.b64encode(self._signature)
