"""Java opens trust stores in its own formats, whole and damaged, and trusts the certificates that we trust."""

from __future__ import annotations

import base64
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore, serialize_key_and_certificates

from ottla.broker.security.tls.stores import certificates_from_store
from ottla.config.errors import ConfigError
from tests.support.apache_kafka.java import KEYTOOL
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.certificates import Identity, java_key_store
from tests.support.security_judge import Verdict, encoded, verdicts

pytestmark = needs_apache_kafka

CASES = 300
SEED = 26
PASSWORD = "store-secret"
AUTHORITY, OTHER = Identity("CN=authority,O=x"), Identity("CN=other authority")
BROKER = Identity("CN=broker", AUTHORITY)
ALIASES = ("a", "b", "c c", "\u00e9")

Store = tuple[str, str | None, bytes]
"""The type, the password and the content."""


def theirs_of(stores: Sequence[Store]) -> list[set[bytes]]:
    """What Java trusts; nothing if it refuses the store, which leaves a broker without a trusted certificate as well."""

    def certificates(verdict: Verdict) -> set[bytes]:
        return set() if verdict.is_refused else {base64.b64decode(line) for line in verdict.text.splitlines()}

    questions = [("trusted", encoded(kind), encoded(password or ""), encoded(content)) for kind, password, content in stores]
    return list(map(certificates, verdicts(questions)))


def ours_of(store: Store) -> set[bytes]:
    _, password, content = store
    try:
        return set(certificates_from_store(content, password, "store"))
    except ConfigError:
        return set()


def a_java_key_store(chance: random.Random) -> bytes:
    """Up to four entries, some of them with one alias."""

    def entry() -> bytes:
        alias = chance.choice(ALIASES)
        identity = chance.choice((AUTHORITY, OTHER, BROKER))
        return identity.jks_key(PASSWORD, alias) if chance.random() < 0.3 else identity.jks_certificate(alias)

    return java_key_store(PASSWORD, *(entry() for _ in range(chance.randrange(5))))


def damaged(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content))
    return content[:at] + chance.randbytes(chance.randrange(1, 4)) + content[at + chance.randrange(4) :]


def test_java_key_stores_are_trusted_as_by_java() -> None:
    chance = random.Random(SEED)
    whole = [a_java_key_store(chance) for _ in range(CASES)]
    stores: list[Store] = [("JKS", password, content) for content in whole for password in (PASSWORD, None)]
    stores += [("JKS", PASSWORD, damaged(content, chance)) for content in whole]
    expected = theirs_of(stores)
    found = list(map(ours_of, stores))
    assert [each for each in zip(stores, found, expected, strict=True) if each[1] != each[2]][:3] == []
    assert CASES < sum(map(bool, expected)) < 2 * CASES


def test_a_damaged_java_key_store_without_a_password_is_trusted_as_by_java_or_refused() -> None:
    """Java refuses a certificate that it cannot read, which OpenSSL does later here. Java does not miss the end of the store."""
    chance = random.Random(SEED)
    stores: list[Store] = [("JKS", None, damaged(a_java_key_store(chance), chance)) for _ in range(CASES)]
    expected = theirs_of(stores)
    read = [(store, found, theirs) for store, theirs in zip(stores, expected, strict=True) if theirs and (found := ours_of(store))]
    assert [each for each in read if each[1] != each[2]][:3] == []
    assert len(read) > CASES // 8


def pkcs12(others: Sequence[PKCS12Certificate], *, has_key: bool = True) -> bytes:
    key, own = (BROKER.key, BROKER.certificate) if has_key else (None, None)
    return serialize_key_and_certificates(b"broker", key, own, others, BestAvailableEncryption(PASSWORD.encode()))


def by_keytool(folder: Path) -> bytes:
    """A key with its chain, whose issuer is no entry of its own, and another authority, which is one."""
    (folder / "source.p12").write_bytes(BROKER.pkcs12(PASSWORD))
    (folder / "other.pem").write_text(OTHER.certificate_pem)
    source = ["-srckeystore", "source.p12", "-srcstoretype", "PKCS12", "-srcstorepass", PASSWORD]
    for command in (["-importkeystore", *source], ["-importcert", "-file", "other.pem", "-alias", "other"]):
        store = ["-deststoretype", "PKCS12", "-deststorepass", PASSWORD, "-destkeystore", "store.p12"]
        if command[0] == "-importcert":
            store = ["-storetype", "PKCS12", "-storepass", PASSWORD, "-keystore", "store.p12"]
        subprocess.run([*KEYTOOL, *command, *store, "-noprompt"], cwd=folder, check=True, capture_output=True)
    return (folder / "store.p12").read_bytes()


def test_pkcs12_stores_are_trusted_as_by_java(tmp_path: Path) -> None:
    issuer = PKCS12Certificate(AUTHORITY.certificate, None)
    marked = [PKCS12Certificate(each.certificate, name) for each, name in ((AUTHORITY, b"one"), (OTHER, b"two"))]
    stores = {
        "a key with its issuer": (pkcs12([issuer]), {BROKER.der}),
        "a key alone": (pkcs12([]), {BROKER.der}),
        "of keytool": (by_keytool(tmp_path), {BROKER.der, OTHER.der}),
        "authorities alone": (serialize_java_truststore(marked, BestAvailableEncryption(PASSWORD.encode())), {AUTHORITY.der, OTHER.der}),
    }
    asked: dict[str, Store] = {name: ("PKCS12", PASSWORD, content) for name, (content, _) in stores.items()}
    theirs = dict(zip(stores, theirs_of(list(asked.values())), strict=True))
    assert theirs == {name: expected for name, (_, expected) in stores.items()}
    assert {name: ours_of(store) for name, store in asked.items()} == theirs


def test_only_we_trust_authorities_without_the_mark_of_java() -> None:
    """Such stores are made by `openssl pkcs12 -export -nokeys`; Java finds nothing in them."""
    store: Store = ("PKCS12", PASSWORD, pkcs12([PKCS12Certificate(AUTHORITY.certificate, None)], has_key=False))
    assert theirs_of([store]) == [set()]
    assert ours_of(store) == {AUTHORITY.der}
