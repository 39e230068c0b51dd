"""Reads key stores and trust stores of the formats PEM, PKCS12 and JKS.

Java opens a PKCS12 file under the type JKS, and the reverse, so the first byte of a file decides between these two. PKCS12 needs the
package `cryptography`, the others do not.
"""

from __future__ import annotations

import base64
import binascii
import re
import ssl
import warnings
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.security.tls.der import SEQUENCE, MalformedDer, element
from ottla.broker.security.tls.distinguished_names import subject_of
from ottla.broker.security.tls.java_key_store import MalformedStore, decrypt_key, read_java_key_store
from ottla.config.errors import ConfigError
from ottla.config.regular_file import read_regular_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

MAX_STORE_BYTES: Final = 16 * 1024 * 1024
"""Largest store, bytes; one with the certificates of all public authorities has 300 KiB."""
PEM: Final = "PEM"
_BINARY_TYPES: Final = frozenset({"JKS", "PKCS12"})
# Possessive repetitions: clients may propose these texts, and backtracking over a kilobyte of blanks would take a minute.
_BLOCK: Final = re.compile(r"(?<!-)-++BEGIN ([A-Z0-9 ]++)-++\s([A-Za-z0-9+/=\s]++)-++END \1-+")
_PLAIN_KEY: Final = "PRIVATE KEY"
_ENCRYPTED_KEY: Final = "ENCRYPTED PRIVATE KEY"
_CERTIFICATE: Final = "CERTIFICATE"


class KeyMaterial(NamedTuple):
    """A private key with its certificates, the key's own first."""

    key_pem: str
    chain: tuple[bytes, ...]
    """The certificates in DER."""
    alias: str | None = None
    """The name of the key in its store; None for PEM."""

    @property
    def is_encrypted(self) -> bool:
        """Whether the key needs a password."""
        return _ENCRYPTED_KEY in self.key_pem.partition("\n")[0]

    @property
    def pem(self) -> str:
        """The key followed by its certificates."""
        return self.key_pem + "".join(map(ssl.DER_cert_to_PEM_cert, self.chain))


def key_from_pem(key_text: str, chain_text: str, where: str) -> KeyMaterial:
    """The key and chain of PEM texts, which may be the same text. `where` names them in errors. Raises ConfigError."""
    keys = [(label, data) for label, data in _blocks(key_text, where) if label.endswith(_PLAIN_KEY)]
    chain = _certificates(chain_text, where)
    if len(keys) != 1:
        raise ConfigError(f"{where}: expected one private key in PEM, found {len(keys)}")
    label, data = keys[0]
    if label not in {_PLAIN_KEY, _ENCRYPTED_KEY}:
        raise ConfigError(f"{where}: the key has the format {label}; convert it with `openssl pkcs8 -topk8`")
    if not chain:
        raise ConfigError(f"{where}: there is a private key, but no certificate")
    return KeyMaterial(_pem(label, data), chain)


def certificates_from_pem(text: str, where: str) -> tuple[bytes, ...]:
    """The certificates of a PEM text in DER. Raises ConfigError when there is none."""
    found = _certificates(text, where)
    if not found:
        raise ConfigError(f"{where}: no certificate in PEM was found")
    return found


def key_from_store(data: bytes, store_password: str, key_password: str | None, where: str) -> KeyMaterial:
    """The first private key of a PKCS12 or JKS file. Raises ConfigError."""
    if _is_pkcs12(data):
        return _key_from_pkcs12(data, store_password, where)
    try:
        store = read_java_key_store(data, store_password)
        if not store.keys:
            raise MalformedStore("there is no private key in it")
        entry = store.keys[0]
        if not entry.chain:
            raise MalformedStore(f"the key {entry.alias} has no certificate")
        key = decrypt_key(entry.encrypted_key, store_password if key_password is None else key_password)
    except MalformedStore as reason:
        raise ConfigError(f"{where}: {reason}") from None
    return KeyMaterial(_pem(_PLAIN_KEY, key), entry.chain, entry.alias)


def certificates_from_store(data: bytes, password: str | None, where: str) -> tuple[bytes, ...]:
    """The trusted certificates of a PKCS12 or JKS file, in DER. Raises ConfigError when there is none."""
    if _is_pkcs12(data):
        found = _trusted_of_pkcs12(_open_pkcs12(data, password, where))
    else:
        try:
            java_store = read_java_key_store(data, password)
        except MalformedStore as reason:
            raise ConfigError(f"{where}: {reason}") from None
        # Java trusts the first certificate of a key, too.
        found = (*java_store.trusted, *(key.chain[0] for key in java_store.keys if key.chain))
    if not found:
        raise ConfigError(f"{where}: there is no trusted certificate in it")
    return found


def read_store(location: str, where: str) -> bytes:
    """The contents of a file. Raises ConfigError, also for a device or a pipe, from which reading might never end."""
    try:
        return read_regular_file(location, MAX_STORE_BYTES)
    except (OSError, ValueError) as error:  # ValueError for a path with a zero byte
        raise ConfigError(f"{where}: {error.strerror if isinstance(error, OSError) else error}") from None


def check_store_type(name: str, value: str) -> None:
    """Raises ConfigError for a format that is not supported."""
    if value.upper() not in {PEM, *_BINARY_TYPES}:
        raise ConfigError(f"{name}={value} is not supported; use JKS, PKCS12 or PEM")


def _is_pkcs12(data: bytes) -> bool:
    return data[:1] == bytes([SEQUENCE])


def _blocks(text: str, where: str) -> list[tuple[str, bytes]]:
    found = []
    for match in _BLOCK.finditer(text):
        try:
            data = base64.b64decode("".join(match[2].split()), validate=True)
            element(data)
        except (binascii.Error, MalformedDer):
            raise ConfigError(f"{where}: a block {match[1]} is damaged") from None
        found.append((match[1], data))
    return found


def _certificates(text: str, where: str) -> tuple[bytes, ...]:
    """The certificates of a PEM text in DER, also those of OpenSSL's forms X509 and TRUSTED; the latter has more behind the certificate."""
    return tuple(element(data).encoded for label, data in _blocks(text, where) if label.endswith(_CERTIFICATE))


def _pem(label: str, data: bytes) -> str:
    text = base64.b64encode(data).decode()
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


def _open_pkcs12(data: bytes, password: str | None, where: str) -> PKCS12KeyAndCertificates:
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise ConfigError(
            f"{where}: PKCS12 needs the package cryptography; install it with `pip install ottla[security]`, or use PEM"
        ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # some tools write BER, which is read, too
            return load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def _trusted_of_pkcs12(store: PKCS12KeyAndCertificates) -> tuple[bytes, ...]:
    """The certificates that Java trusts: that of the key, and those that are entries of their own.

    A store with a key has the certificates of its issuers as well. Java trusts them only as entries of their own, which it gives a name.
    Others have no name there, or their subject as name.
    """
    from cryptography.hazmat.primitives.serialization import Encoding

    others = [(each.certificate.public_bytes(Encoding.DER), each.friendly_name) for each in store.additional_certs]
    if store.cert is None:
        return tuple(certificate for certificate, _ in others)
    entries = (certificate for certificate, name in others if name is not None and not _is_subject(name, certificate))
    return store.cert.certificate.public_bytes(Encoding.DER), *entries


def _is_subject(name: bytes, certificate: bytes) -> bool:
    try:
        return name.decode("utf-8", "replace") == subject_of(certificate)
    except MalformedDer:
        return False


def _key_from_pkcs12(data: bytes, password: str, where: str) -> KeyMaterial:
    store = _open_pkcs12(data, password, where)
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if store.key is None or store.cert is None:
        raise ConfigError(f"{where}: there is no private key with a certificate in it")
    chain = [store.cert.certificate]
    by_subject = {each.certificate.subject: each.certificate for each in store.additional_certs}
    while (issuer := by_subject.pop(chain[-1].issuer, None)) is not None:
        chain.append(issuer)
    text = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    alias = None if store.cert.friendly_name is None else store.cert.friendly_name.decode("utf-8", "replace")
    return KeyMaterial(text, tuple(each.public_bytes(Encoding.DER) for each in chain), alias)
