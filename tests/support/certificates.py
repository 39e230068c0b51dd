"""Makes certificate authorities, certificates and key stores for tests of TLS."""

from __future__ import annotations

import datetime
import ipaddress
import struct
from hashlib import sha1
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from tests.support.secrets import keep_secret

DAY = datetime.timedelta(days=1)
_DATE_MS = 1_600_000_000_000


class Identity:
    """A key and its certificate, signed by `issuer`, or by itself. `subject` is RFC 4514 text. It is valid up to `days` from now, and from
    `starts_in_days` on."""

    def __init__(self, subject: str, issuer: Identity | None = None, *, days: int = 2, starts_in_days: int = -1) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        keep_secret(self.key.private_numbers().private_value.to_bytes(32, "big"))
        keep_secret(*(line for line in self.key_pem().splitlines()[1:-1] if len(line) == 64))
        self.issuer = issuer
        signer = issuer or self
        now = datetime.datetime.now(datetime.UTC)
        name = x509.Name.from_rfc4514_string(subject)
        self.name = name
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(signer.name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + min(days - 1, starts_in_days) * DAY)
            .not_valid_after(now + days * DAY)
            .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
            )
        )
        self.certificate = builder.sign(signer.key, hashes.SHA256())

    @property
    def der(self) -> bytes:
        """The certificate."""
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def certificate_pem(self) -> str:
        """The certificate."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def key_der(self) -> bytes:
        """The key as PKCS #8."""
        none = serialization.NoEncryption()
        return self.key.private_bytes(serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, none)

    def key_pem(self, password: str | None = None) -> str:
        """The key as PKCS #8, encrypted if there is a password."""
        form: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            form = serialization.BestAvailableEncryption(password.encode())
        return self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, form).decode()

    def pkcs12(self, password: str, alias: str = "broker", others: list[pkcs12.PKCS12Certificate] | None = None) -> bytes:
        """A PKCS12 store of the key, its certificate, and `others`, by default that of the issuer."""
        if others is None:
            others = [] if self.issuer is None else [pkcs12.PKCS12Certificate(self.issuer.certificate, None)]
        form = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(alias.encode(), self.key, self.certificate, others, form)

    def named(self, alias: str) -> pkcs12.PKCS12Certificate:
        """The certificate in a PKCS12 store, under this name."""
        return pkcs12.PKCS12Certificate(self.certificate, alias.encode())

    def jks_key(self, password: str, alias: str = "broker") -> bytes:
        """An entry of a JKS store, for `java_key_store`."""
        secret, salt = password.encode("utf-16-be"), bytes(range(20))
        stream, block = b"", salt
        while len(stream) < len(self.key_der):
            block = sha1(secret + block).digest()
            stream += block
        hidden = bytes(left ^ right for left, right in zip(self.key_der, stream, strict=False))
        protected = salt + hidden + sha1(secret + self.key_der).digest()
        algorithm = bytes.fromhex("300e060a2b060104012a021101010500")
        encrypted = _tlv(0x30, algorithm + _tlv(0x04, protected))
        chain = [self.der] if self.issuer is None else [self.der, self.issuer.der]
        return struct.pack(">i", 1) + _text(alias) + struct.pack(">qi", _DATE_MS, len(encrypted)) + encrypted + _chain(chain)

    def jks_certificate(self, alias: str = "ca") -> bytes:
        """An entry of a JKS store, for `java_key_store`."""
        return struct.pack(">i", 2) + _text(alias) + struct.pack(">q", _DATE_MS) + _certificate(self.der)

    def files(self, directory: Path, stem: str) -> tuple[Path, Path]:
        """PEM files of the certificate and of the key."""
        certificate, key = directory / f"{stem}.crt", directory / f"{stem}.key"
        certificate.write_text(self.certificate_pem)
        key.write_text(self.key_pem())
        return certificate, key


def java_key_store(password: str, *entries: bytes, version: int = 2) -> bytes:
    """A JKS store of these entries."""
    body = bytes.fromhex("feedfeed") + struct.pack(">ii", version, len(entries)) + b"".join(entries)
    return body + sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def _certificate(der: bytes) -> bytes:
    return _text("X.509") + struct.pack(">i", len(der)) + der


def _chain(chain: list[bytes]) -> bytes:
    return struct.pack(">i", len(chain)) + b"".join(map(_certificate, chain))


def _tlv(tag: int, content: bytes) -> bytes:
    size = len(content)
    return bytes([tag, 0x82]) + struct.pack(">H", size) + content
