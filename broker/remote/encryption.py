"""Encrypts the chunks and indexes of copies as Aiven's plugin does, and keeps the RSA keys that protect the keys of the copies.

Each copy has an AES-256 key of its own. The manifest has it encrypted by OAEP with SHA3-512 and the public key of
`encryption.key.pair.id`. A chunk is a nonce of 12 bytes, the ciphertext of AES-GCM and its tag of 16. All chunks
have the additional data that the manifest names.

A copy that is repeated has to have the same bytes under its uuid. So keys and nonces of copies follow from a secret of the broker, which
it gives to each process that makes copies for it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Any, Final

from ottla.config.errors import ConfigError
from ottla.config.remote_store import EncryptionSettings
from ottla.storage.remote.manifest import Encryption
from ottla.storage.remote.ports import RemoteStoreError

OVERHEAD_BYTES: Final = 28
"""Bytes that a chunk grows by: nonce and tag."""
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
_KEY_BYTES: Final = 32
_MIN_KEY_BITS: Final = 2048


class CopyCipher:
    """Encrypts and decrypts the parts of one copy. For any thread."""

    __slots__ = ("_aad", "_cipher", "_key")

    def __init__(self, key: bytes, aad: bytes) -> None:
        """`key` has 32 bytes."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # most brokers do not need it

        self._key = key
        self._cipher = AESGCM(key)
        self._aad = aad

    def encrypt(self, data: bytes, part: bytes) -> bytes:
        """Encrypts one part, whose name no other part of the copy has. The same part has the same ciphertext."""
        nonce = self._nonce(part)
        return nonce + self._cipher.encrypt(nonce, data, self._aad)

    def encrypt_pieces(self, pieces: Iterable[bytes], part: bytes) -> Iterator[bytes]:
        """Encrypts one part as `encrypt` does, piece by piece."""
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        nonce = self._nonce(part)
        encryptor = Cipher(algorithms.AES(self._key), modes.GCM(nonce)).encryptor()
        encryptor.authenticate_additional_data(self._aad)
        yield nonce
        for piece in pieces:
            yield encryptor.update(piece)
        yield encryptor.finalize() + encryptor.tag

    def decryption(self, nonce: bytes) -> PartDecryption:
        """Decrypts one part piece by piece; `nonce` is the first NONCE_BYTES of it."""
        return PartDecryption(self._key, self._aad, nonce)

    def _nonce(self, part: bytes) -> bytes:
        return hmac.new(self._key, b"nonce" + part, hashlib.sha256).digest()[:NONCE_BYTES]

    def decrypt(self, data: bytes | memoryview) -> bytes:
        """Decrypts one part. Raises OSError for bytes that are not those that were encrypted."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], self._aad)
        except (InvalidTag, ValueError):
            raise OSError("an encrypted part was changed, or is of another copy") from None


class PartDecryption:
    """Decrypts one part of a copy. Its user waits for `finish` before it uses any of the plaintext."""

    __slots__ = ("_decryptor",)

    def __init__(self, key: bytes, aad: bytes, nonce: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self._decryptor = Cipher(algorithms.AES(key), modes.GCM(nonce)).decryptor()
        self._decryptor.authenticate_additional_data(aad)

    def update(self, data: bytes | memoryview) -> bytes:
        """Decrypts the next bytes, which are behind the nonce and before the tag."""
        return self._decryptor.update(data)

    def finish(self, tag: bytes) -> None:
        """Raises OSError unless all bytes are those that were encrypted."""
        from cryptography.exceptions import InvalidTag

        try:
            self._decryptor.finalize_with_tag(tag)
        except (InvalidTag, ValueError):
            raise OSError("an encrypted part was changed, or is of another copy") from None


class KeyRing:
    """The RSA keys of a broker: the one that writes, and all that read."""

    def __init__(self, settings: EncryptionSettings, secret: bytes) -> None:
        """Reads the files of the keys. `secret` is a `new_secret`. Raises ConfigError, in one line, for a key that cannot be used."""
        self._writes = settings.key_pair_id
        self._public: dict[str, Any] = {}
        self._private: dict[str, Any] = {}
        for name, (public, private) in settings.pairs.items():
            self._public[name] = _read_key(name, public, is_private=False)
            self._private[name] = _read_key(name, private, is_private=True)
            if self._private[name].public_key() != self._public[name]:
                raise ConfigError(f"the files of the encryption key {name} do not belong together: {public} and {private}")
        self._secret = secret

    def seal(self, uuid: bytes) -> tuple[Encryption, CopyCipher]:
        """Returns what the manifest of a new copy says, and its cipher; the same cipher for the same copy. Takes a millisecond."""
        key, aad = (hmac.new(self._secret, kind + uuid, hashlib.sha256).digest() for kind in (b"key", b"aad"))
        return Encryption(self._writes, _oaep(self._public[self._writes]).encrypt(key), aad), CopyCipher(key, aad)

    def unseal(self, encryption: Encryption) -> CopyCipher:
        """Returns the cipher of a copy. Takes some milliseconds. Raises RemoteStoreError if its key is not here, or is another one."""
        key = self._private.get(encryption.key_id)
        if key is None:
            raise RemoteStoreError(
                f"it is encrypted with the key {encryption.key_id}, which encryption.key.pairs does not have; add the pair of that key"
            )
        try:
            return CopyCipher(_oaep(key).decrypt(encryption.encrypted_key), encryption.aad)
        except (ValueError, TypeError):
            raise RemoteStoreError(
                f"the key {encryption.key_id} of encryption.key.pairs is not the one that it was encrypted with; use the files of that one"
            ) from None


def new_secret() -> bytes:
    """Makes the secret of a broker, which no other one ever has."""
    return os.urandom(_KEY_BYTES)


def open_key_ring(settings: EncryptionSettings | None, secret: bytes) -> KeyRing | None:
    """Opens the keys, if there are any. Raises ConfigError, also if the libraries are missing."""
    if settings is None:
        return None
    if find_spec("Crypto") is None or find_spec("cryptography") is None:
        raise ConfigError("encryption of remote segments needs cryptography and pycryptodome: pip install 'ottla[tiered]'")
    return KeyRing(settings, secret)


def _read_key(name: str, path: str, *, is_private: bool) -> Any:
    from Crypto.PublicKey import RSA

    kind = "private" if is_private else "public"
    try:
        with open(path, "rb") as file:
            key = RSA.import_key(file.read())
    except OSError as error:
        raise ConfigError(f"the {kind} encryption key {name} cannot be read: {path}: {error.strerror or error}") from None
    except (ValueError, IndexError, TypeError):
        raise ConfigError(f"the {kind} encryption key {name} is no RSA key in PEM: {path}") from None
    if key.has_private() is not is_private or key.size_in_bits() < _MIN_KEY_BITS:
        raise ConfigError(f"the {kind} encryption key {name} has to be a {kind} RSA key of {_MIN_KEY_BITS} bits or more: {path}")
    return key


def _oaep(key: Any) -> Any:
    from Crypto.Cipher import PKCS1_OAEP
    from Crypto.Hash import SHA3_512

    return PKCS1_OAEP.new(key, hashAlgo=SHA3_512)
