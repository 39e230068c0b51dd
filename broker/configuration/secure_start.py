"""Prepares a broker with TLS, users and ACLs, to try security with little effort. `ottla serve --secure` uses it.

Makes a certificate, the users `admin` (a super user) and `alice` (with ACLs), and files with the settings of their clients. Files in
the folder are used again. Passwords are only in these files, which only their owner can read.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from ottla.broker.security.acl_admin import AclAdmin
from ottla.config.errors import ConfigError
from ottla.config.jaas import SCRAM_MODULE
from ottla.config.sasl import SCRAM_SHA_512
from ottla.controller.admin.config_admin import ConfigAdmin
from ottla.controller.admin.scram_credentials import DONE, MECHANISMS, MIN_ITERATIONS, Upsertion, alter_scram_credentials
from ottla.protocol.acls import AccessControlEntry, AclBinding, Operation, PatternType, PermissionType, ResourcePattern, ResourceType
from ottla.protocol.scram_salts import SALT_BYTES, salt_of
from ottla.storage.disk.filesystem import make_directory

ADMIN: Final = "admin"
ALICE: Final = "alice"
LISTENER: Final = "CLIENTS"
VALID_DAYS: Final = 365
_SCRAM_NUMBER: Final = next(number for number, name in MECHANISMS.items() if name == SCRAM_SHA_512)
_OF_ALICE: Final = {
    ResourceType.TOPIC: (Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DESCRIBE_CONFIGS),
    ResourceType.GROUP: (Operation.READ,),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE,),
}
"""The operations that ACLs allow the user on all resources of a type."""


class SecureStart:
    """See the module."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.certificate = self.folder / "certificate.pem"
        self._broker = self.folder / "broker.pem"

    def prepare(self, listeners: str | None = None) -> list[str]:
        """Create the missing files. Returns the broker's settings as KEY=VALUE. Raises ConfigError.

        The listener of the clients has the address of the first of `listeners`, where the configuration has some.
        """
        _require_cryptography()
        try:
            if not self.folder.is_dir():
                make_directory(str(self.folder))
                self.folder.chmod(0o700)  # for the passwords that come into it
            if not self._has_certificate():
                self._make_certificate()
            for user in (ADMIN, ALICE):
                path = self._password_file(user)
                if not path.exists():
                    _write(path, secrets.token_urlsafe(18) + "\n")
        except OSError as error:
            raise ConfigError(f"the files in {self.folder} cannot be made: {error.strerror or error}") from None
        return [
            f"listeners={LISTENER}://{_first_address(listeners)},INTERNAL://127.0.0.1:0",
            f"listener.security.protocol.map={LISTENER}:SASL_SSL,INTERNAL:PLAINTEXT",
            "inter.broker.listener.name=INTERNAL",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={self._broker}",
            f"sasl.enabled.mechanisms={SCRAM_SHA_512}",
            f"listener.name.{LISTENER.lower()}.{SCRAM_SHA_512.lower()}.sasl.jaas.config={SCRAM_MODULE} required;",
            "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
            f"super.users=User:{ADMIN}",
        ]

    async def admit(self, config_admin: ConfigAdmin, acls: AclAdmin | None) -> None:
        """Create the users and the ACLs. Raises ConfigError when the metadata store is out of reach."""
        upsertions = []
        for user in (ADMIN, ALICE):
            salt = salt_of(secrets.token_bytes(SALT_BYTES))
            salted = hashlib.pbkdf2_hmac("sha512", self._password_of(user).encode(), salt, MIN_ITERATIONS)
            upsertions.append(Upsertion(user, _SCRAM_NUMBER, MIN_ITERATIONS, salt, salted))
        outcomes = [outcome for _, outcome in await alter_scram_credentials(config_admin, (), upsertions)]
        bindings = [
            AclBinding(
                ResourcePattern(resource, "*", PatternType.LITERAL),
                AccessControlEntry(f"User:{ALICE}", "*", operation, PermissionType.ALLOW),
            )
            for resource, operations in _OF_ALICE.items()
            for operation in operations
        ]
        failures = [] if acls is None else await acls.create(bindings)
        if any(outcome != DONE for outcome in outcomes) or any(failures):
            raise ConfigError("the users or their ACLs cannot be stored; see the log of the metadata store")

    def write_client_files(self, address: str) -> str:
        """Write the settings of the users' clients, and return instructions for their use. `address` is HOST:PORT."""
        for user in (ADMIN, ALICE):
            password = self._password_of(user)
            _write(
                self.folder / f"{user}.librdkafka",
                f"bootstrap.servers={address}\nsecurity.protocol=sasl_ssl\nssl.ca.location={self.certificate}\n"
                f"sasl.mechanism={SCRAM_SHA_512}\nsasl.username={user}\nsasl.password={password}\n",
            )
            _write(
                self.folder / f"{user}.properties",
                f"bootstrap.servers={address}\nsecurity.protocol=SASL_SSL\nssl.truststore.type=PEM\n"
                f"ssl.truststore.location={self.certificate}\nsasl.mechanism={SCRAM_SHA_512}\n"
                f'sasl.jaas.config={SCRAM_MODULE} required username="{user}" password="{password}";\n',
            )
        alice = self.folder / f"{ALICE}.librdkafka"
        return f"""\
User {ALICE} may read and write all topics, {ADMIN} may do everything. Their settings, with passwords, are in {self.folder}:

kcat:    echo hello | kcat -F {alice} -t greetings -P
         kcat -F {alice} -t greetings -C -e
Java:    kafka-console-producer.sh --bootstrap-server {address} --topic greetings --producer.config {self.folder / f"{ALICE}.properties"}
         kafka-acls.sh --bootstrap-server {address} --list --command-config {self.folder / f"{ADMIN}.properties"}
Python:  settings = dict(line.split("=", 1) for line in open("{alice}").read().splitlines())
         confluent_kafka.Producer(settings)"""

    def _password_file(self, user: str) -> Path:
        return self.folder / f"{user}.password"

    def _password_of(self, user: str) -> str:
        return self._password_file(user).read_text().strip()

    def _has_certificate(self) -> bool:
        """Whether there is a certificate that is valid for another day."""
        if not self.certificate.exists() or not self._broker.exists():
            return False
        from cryptography import x509

        certificate = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        return certificate.not_valid_after_utc > datetime.now(UTC) + timedelta(days=1)

    def _make_certificate(self) -> None:
        """A key, and a certificate for this host that the key signs itself."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
        names = [x509.DNSName("localhost"), *(x509.IPAddress(ip_address(each)) for each in ("127.0.0.1", "::1"))]
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=VALID_DAYS))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, SHA256())
        )
        text = certificate.public_bytes(Encoding.PEM).decode()
        _write(self._broker, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode() + text)
        _write(self.certificate, text)


def _first_address(listeners: str | None) -> str:
    found = (listeners or "").partition(",")[0].partition("://")[2].strip()
    return found or "127.0.0.1:9092"


def _require_cryptography() -> None:
    if find_spec("cryptography") is None:
        raise ConfigError("making a certificate needs the package cryptography; install it with `pip install ottla[security]`")


def _write(path: Path, text: str) -> None:
    """Write a file that only its owner can read.

    It appears with all of its text: a full disk would otherwise leave an empty file, and the next start would take that for a password.
    """
    new = path.with_name(f"{path.name}.new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(new, path)
