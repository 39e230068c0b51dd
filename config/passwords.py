"""Encrypts and decrypts the passwords of dynamic configurations with a key derived from `password.encoder.secret`.

Kafka's PasswordEncoder. The stored text contains the parameters of its encryption. So a broker can read what another
broker wrote with other settings, as long as the secret is the same (Apache Kafka also needs the same cipher mode). The
key is derived by PBKDF2 from the secret and 256 random bytes; the cipher is AES in CBC or GCM mode. Only a broker with
`password.encoder.secret` needs the package `cryptography` (`pip install 'ottla[security]'`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from ottla.config.errors import ConfigError
from ottla.config.keys.security import (
    PASSWORD_ENCODER_CIPHER_ALGORITHM,
    PASSWORD_ENCODER_ITERATIONS,
    PASSWORD_ENCODER_KEY_LENGTH,
    PASSWORD_ENCODER_KEYFACTORY_ALGORITHM,
    PASSWORD_ENCODER_OLD_SECRET,
    PASSWORD_ENCODER_SECRET,
)
from ottla.config.schema.types import Password

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

CBC: Final = "AES/CBC/PKCS5Padding"
GCM: Final = "AES/GCM/NoPadding"
_HASHES: Final = {f"PBKDF2WithHmacSHA{size}": f"sha{size}" for size in (1, 224, 256, 384, 512)}
_DEFAULT_KEY_FACTORY: Final = "PBKDF2WithHmacSHA512"
_KEY_LENGTHS: Final = (128, 192, 256)
_BLOCK_BITS: Final = 128
_SALT_BYTES: Final = 256
_CBC_IV_BYTES: Final = 16
_GCM_IV_BYTES: Final = 12
_GCM_TAG_BITS: Final = 128
_MAX_ITERATIONS: Final = 10_000_000
_MAX_KNOWN: Final = 100

RandomBytes = Callable[[int], bytes]


class UndecodablePassword(Exception):
    """The stored text was encrypted with another secret, or is damaged. Carries nothing of the contents."""


class PasswordEncoder:
    """Encrypts with one secret. Deriving a key takes milliseconds, so decrypted texts are cached."""

    def __init__(
        self, secret: str, key_factory: str | None, cipher: str, key_length: int, iterations: int, random_bytes: RandomBytes
    ) -> None:
        """Raises ConfigError for unknown algorithms, and when the package for them is missing."""
        self._secret = secret.encode()
        self._key_factory = key_factory or _DEFAULT_KEY_FACTORY
        self._cipher = cipher
        self._key_length = key_length
        self._iterations = iterations
        self._random_bytes = random_bytes
        self._known: dict[str, str] = {}
        """Password by its stored text."""
        _check(PASSWORD_ENCODER_KEYFACTORY_ALGORITHM.name, self._key_factory, tuple(_HASHES))
        _check(PASSWORD_ENCODER_CIPHER_ALGORITHM.name, cipher, (CBC, GCM))
        _check(PASSWORD_ENCODER_KEY_LENGTH.name, key_length, _KEY_LENGTHS)
        _need_cryptography()

    def encode(self, password: str) -> str:
        """The text to be stored; differs in each call."""
        salt = self._random_bytes(_SALT_BYTES)
        vector = self._random_bytes(_GCM_IV_BYTES if self._cipher == GCM else _CBC_IV_BYTES)
        key = self._key(self._key_factory, salt, self._iterations, self._key_length)
        text = password.encode()
        encrypted = _encrypt_gcm(key, vector, text) if self._cipher == GCM else _encrypt_cbc(key, vector, text)
        fields = {
            "initializationVector": _base64(vector),
            "keyLength": self._key_length,
            "salt": _base64(salt),
            "keyFactoryAlgorithm": self._key_factory,
            "cipherAlgorithm": self._cipher,
            "iterations": self._iterations,
            "passwordLength": _java_length(password),
            "encryptedPassword": _base64(encrypted),
        }
        if self._cipher == GCM:
            fields["authenticationTagLength"] = _GCM_TAG_BITS
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, stored: str) -> str:
        """The password. Raises UndecodablePassword."""
        known = self._known.get(stored)
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            known = self._known[stored] = self._decode(stored)
        return known

    def _decode(self, stored: str) -> str:
        fields = dict(part.strip().rpartition(":")[::2] for part in stored.split(","))
        try:
            factory, cipher = fields.get("keyFactoryAlgorithm", self._key_factory), fields["cipherAlgorithm"]
            key_length, iterations = int(fields["keyLength"]), int(fields["iterations"])
            if (
                factory not in _HASHES
                or cipher not in (CBC, GCM)
                or key_length not in _KEY_LENGTHS
                or not 0 < iterations <= _MAX_ITERATIONS
            ):
                raise UndecodablePassword
            vector, encrypted = _bytes(fields["initializationVector"]), _bytes(fields["encryptedPassword"])
            key = self._key(factory, _bytes(fields["salt"]), iterations, key_length)
            tag_bits = int(fields["authenticationTagLength"]) if cipher == GCM else 0
            decrypted = _decrypt_gcm(key, vector, encrypted, tag_bits) if cipher == GCM else _decrypt_cbc(key, vector, encrypted)
            password = decrypted.decode()
            if _java_length(password) != int(fields["passwordLength"]):
                raise UndecodablePassword
        except (KeyError, ValueError) as error:  # base64, UTF-8, padding and length errors are ValueErrors
            raise UndecodablePassword from error
        return password

    def _key(self, factory: str, salt: bytes, iterations: int, key_length: int) -> bytes:
        import hashlib  # takes 1 ms, and few brokers set password.encoder.secret

        return hashlib.pbkdf2_hmac(_HASHES[factory], self._secret, salt, iterations, key_length // 8)


def encoder_of(config: BrokerConfig, random_bytes: RandomBytes) -> PasswordEncoder | None:
    """The encoder of `password.encoder.secret`; None without it. Raises ConfigError."""
    return _encoder(config, config[PASSWORD_ENCODER_SECRET], random_bytes)


def old_encoder_of(config: BrokerConfig, random_bytes: RandomBytes) -> PasswordEncoder | None:
    """The encoder of `password.encoder.old.secret`, to change the secret; None without it. Raises ConfigError."""
    return _encoder(config, config[PASSWORD_ENCODER_OLD_SECRET], random_bytes)


def _encoder(config: BrokerConfig, secret: Password | None, random_bytes: RandomBytes) -> PasswordEncoder | None:
    if secret is None:
        return None
    return PasswordEncoder(
        secret.value,
        config[PASSWORD_ENCODER_KEYFACTORY_ALGORITHM],
        config[PASSWORD_ENCODER_CIPHER_ALGORITHM],
        config[PASSWORD_ENCODER_KEY_LENGTH],
        config[PASSWORD_ENCODER_ITERATIONS],
        random_bytes,
    )


def _check(name: str, value: object, known: tuple[object, ...]) -> None:
    if value not in known:
        raise ConfigError(f"{name}={value} is not available; use one of {', '.join(map(str, known))}")


def _need_cryptography() -> None:
    if find_spec("cryptography") is None:
        raise ConfigError(
            f"{PASSWORD_ENCODER_SECRET.name} is set, but the package cryptography is not installed; pip install 'ottla[security]'"
        )


def _encrypt_cbc(key: bytes, vector: bytes, text: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.padding import PKCS7

    padder = PKCS7(_BLOCK_BITS).padder()
    encryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
    return encryptor.update(padder.update(text) + padder.finalize()) + encryptor.finalize()


def _decrypt_cbc(key: bytes, vector: bytes, encrypted: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.padding import PKCS7

    decryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor()
    unpadder = PKCS7(_BLOCK_BITS).unpadder()
    return unpadder.update(decryptor.update(encrypted) + decryptor.finalize()) + unpadder.finalize()


def _encrypt_gcm(key: bytes, vector: bytes, text: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key).encrypt(vector, text, None)


def _decrypt_gcm(key: bytes, vector: bytes, encrypted: bytes, tag_bits: int) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if tag_bits != _GCM_TAG_BITS:
        raise UndecodablePassword
    try:
        return AESGCM(key).decrypt(vector, encrypted, None)
    except InvalidTag as error:
        raise UndecodablePassword from error


def _java_length(text: str) -> int:
    """Length in UTF-16 units, as Java counts."""
    return len(text.encode("utf-16-le")) // 2


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise UndecodablePassword from error
