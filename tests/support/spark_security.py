"""Provides a listener with SASL_SSL beside the plain one, and Spark's settings for it: for tests that send rows through it."""

from __future__ import annotations

from pathlib import Path

from tests.support.certificates import Identity, java_key_store

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SECRETS = ("alice-secret", "store-secret")
"""The password of the user, and that of the trust store."""


def secured_listener(authority: Identity, address: str) -> dict[str, str]:
    """The settings of a broker with a plain listener and, at this address, one with SASL_SSL."""
    identity = Identity("CN=broker", authority)
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:0,CLIENTS://{address}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": f'{_PLAIN} user_alice="{SECRETS[0]}";',
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": identity.key_pem(),
        "ssl.keystore.certificate.chain": identity.certificate_pem,
    }


def secured_in_javas_words(authority: Identity, folder: Path) -> Path:
    """The file for --command-config, with a trust store that has a password."""
    folder.mkdir()
    (folder / "trust.jks").write_bytes(java_key_store(SECRETS[1], authority.jks_certificate()))
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{_PLAIN} username="alice" password="{SECRETS[0]}";',
        "ssl.truststore.location": str(folder / "trust.jks"),
        "ssl.truststore.password": SECRETS[1],
    }
    file = folder / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return file
