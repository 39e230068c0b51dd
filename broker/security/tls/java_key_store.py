"""Reads key stores of the format JKS, in which Java keeps keys and certificates.

Layout: the magic number FEEDFEED, a version, a count, and entries; a SHA-1 digest of the password and all of it ends the file. Private keys
are encrypted with a key stream of repeated SHA-1 digests. The formats JCEKS and BKS are not read.
"""

from __future__ import annotations

import hmac
from hashlib import sha1
from typing import Final, NamedTuple

from ottla.broker.security.tls.der import MalformedDer, element, object_identifier

MAGIC: Final = bytes.fromhex("FEEDFEED")
JCEKS_MAGIC: Final = bytes.fromhex("CECECECE")
_PRIVATE_KEY: Final = 1
_TRUSTED_CERTIFICATE: Final = 2
_DIGEST_BYTES: Final = 20
_WHITENER: Final = b"Mighty Aphrodite"
"""The constant that the format mixes into its digest."""
_KEY_PROTECTOR: Final = "1.3.6.1.4.1.42.2.17.1.1"
"""The algorithm of encrypted keys: Sun's own."""
_MAX_ENTRIES: Final = 100_000


class MalformedStore(ValueError):
    """A file that is no JKS key store, or has another password. The text gives the reason."""


class PrivateKeyEntry(NamedTuple):
    """A private key, still encrypted, with its certificates, the key's own first; all in DER."""

    alias: str
    encrypted_key: bytes
    chain: tuple[bytes, ...]


class JavaKeyStore(NamedTuple):
    """The contents of a key store, in the order of the file."""

    keys: tuple[PrivateKeyEntry, ...]
    trusted: tuple[bytes, ...]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, count: int) -> bytes:
        end = self._position + count
        if end > len(self._data):
            raise MalformedStore("the key store is cut off")
        found = self._data[self._position : end]
        self._position = end
        return found

    def number(self, size: int = 4) -> int:
        return int.from_bytes(self.take(size), "big")

    def text(self) -> str:
        return self.take(self.number(2)).decode("utf-8", "replace")

    def certificate(self, version: int) -> bytes:
        if version == 2 and (kind := self.text()) not in {"X.509", "X509"}:
            raise MalformedStore(f"the key store has a certificate of type {kind}")
        return self.take(self.number())


def read_java_key_store(data: bytes, password: str | None) -> JavaKeyStore:
    """The contents of a JKS file. Without a password the digest is not checked, as in Java. Raises MalformedStore."""
    if data[:4] != MAGIC:
        raise MalformedStore("the file has the format JCEKS, which is not supported" if data[:4] == JCEKS_MAGIC else "this is no JKS file")
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None and not hmac.compare_digest(sha1(_password_bytes(password) + _WHITENER + body).digest(), digest):
        raise MalformedStore("the password is wrong, or the file is damaged")
    reader = _Reader(body)
    reader.take(4)
    version, count = reader.number(), reader.number()
    if version not in {1, 2} or count > _MAX_ENTRIES:
        raise MalformedStore(f"the key store has version {version} and {count} entries")
    entries: dict[bytes, PrivateKeyEntry | bytes] = {}  # of several entries with one alias, Java keeps the last
    for _ in range(count):
        tag, alias = reader.number(), reader.take(reader.number(2))
        reader.take(8)  # the date
        if tag == _PRIVATE_KEY:
            key = reader.take(reader.number())
            chain = tuple(reader.certificate(version) for _ in range(min(reader.number(), _MAX_ENTRIES)))
            entries[alias] = PrivateKeyEntry(alias.decode("utf-8", "replace"), key, chain)
        elif tag == _TRUSTED_CERTIFICATE:
            entries[alias] = reader.certificate(version)
        else:
            raise MalformedStore(f"the key store has an entry of the unknown kind {tag}")
    return JavaKeyStore(
        tuple(each for each in entries.values() if isinstance(each, PrivateKeyEntry)),
        tuple(each for each in entries.values() if isinstance(each, bytes)),
    )


def decrypt_key(encrypted: bytes, password: str) -> bytes:
    """The PKCS #8 key of a private key entry. Raises MalformedStore, for a wrong password, too."""
    try:
        algorithm, protected = element(encrypted).parts()
        number = object_identifier(algorithm.parts()[0].content)
    except (MalformedDer, ValueError, IndexError):
        raise MalformedStore("the private key is no EncryptedPrivateKeyInfo") from None
    if number != _KEY_PROTECTOR:
        raise MalformedStore(f"the private key is encrypted by the unknown algorithm {number}")
    data, secret = protected.content, _password_bytes(password)
    salt, cipher, check = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    stream = bytearray()
    block = salt
    while len(stream) < len(cipher):
        block = sha1(secret + block).digest()
        stream += block
    plain = bytes(left ^ right for left, right in zip(cipher, stream, strict=False))
    if not hmac.compare_digest(sha1(secret + plain).digest(), check):
        raise MalformedStore("the password of the private key is wrong")
    return plain


def _password_bytes(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")
