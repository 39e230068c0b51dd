"""The security of a client, from the keys of Java's clients and of librdkafka's."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.config.client_properties import ClientProperties, read_client_properties
from ottla.config.errors import ConfigError
from ottla.config.jaas import KERBEROS_MODULE, PLAIN_MODULE, SCRAM_MODULE
from ottla.config.keys import tls
from ottla.config.listeners import SecurityProtocol

LOGIN = f'{SCRAM_MODULE} required username="alice" password="alice-secret";'
KERBEROS = f"{KERBEROS_MODULE} required useTicketCache=true;"


def test_without_keys_a_client_uses_plaintext() -> None:
    assert ClientProperties({}).protocol is SecurityProtocol.PLAINTEXT
    assert ClientProperties({"group.id": "g", "acks": "all"}).java == {"security.protocol": "PLAINTEXT"}


def test_the_words_of_java_are_taken_as_they_are() -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": LOGIN,
        "ssl.truststore.location": "/trust.jks",
        "ssl.truststore.password": "trust-secret",
    }
    found = ClientProperties({**given, "group.id": "g"})
    assert (found.protocol, found.mechanism, found.java) == (SecurityProtocol.SASL_SSL, "SCRAM-SHA-512", given)
    assert found.login.options == {"username": "alice", "password": "alice-secret"}
    assert found[tls.SSL_TRUSTSTORE_LOCATION] == "/trust.jks"
    password = found[tls.SSL_TRUSTSTORE_PASSWORD]
    assert password is not None
    assert password.value == "trust-secret"
    assert found[tls.SSL_ENDPOINT_IDENTIFICATION_ALGORITHM] == "https"


def test_the_words_of_librdkafka_are_translated(tmp_path: Path) -> None:
    for name in ("ca", "certificate", "key"):
        (tmp_path / name).write_text(f"PEM of the {name}")
    found = ClientProperties(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": 'a"b\\c',
            "ssl.ca.location": str(tmp_path / "ca"),
            "ssl.certificate.location": str(tmp_path / "certificate"),
            "ssl.key.location": str(tmp_path / "key"),
            "ssl.key.password": "key-secret",
            "ssl.endpoint.identification.algorithm": "none",
        }
    )
    assert (found.protocol, found.mechanism) == (SecurityProtocol.SASL_SSL, "PLAIN")
    assert (found.login.name, found.login.options) == (PLAIN_MODULE, {"username": "alice", "password": 'a"b\\c'})
    assert (found[tls.SSL_TRUSTSTORE_TYPE], found[tls.SSL_KEYSTORE_TYPE]) == ("PEM", "PEM")
    texts = (found[tls.SSL_TRUSTSTORE_CERTIFICATES], found[tls.SSL_KEYSTORE_CERTIFICATE_CHAIN], found[tls.SSL_KEYSTORE_KEY])
    assert [each.value for each in texts if each is not None] == ["PEM of the ca", "PEM of the certificate", "PEM of the key"]
    assert not found[tls.SSL_ENDPOINT_IDENTIFICATION_ALGORITHM]
    assert not {"sasl.mechanisms", "sasl.username", "sasl.password", "ssl.ca.location"} & found.java.keys()


def test_the_unsecured_tokens_of_librdkafka_are_translated() -> None:
    config = 'principal=alice scope=a,b lifeSeconds=60 extension_traceId="1 2"'
    found = ClientProperties({"sasl.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.config": config})
    assert found.login.options == {
        "unsecuredLoginStringClaim_sub": "alice",
        "unsecuredLoginListClaim_scope": ",a,b",
        "unsecuredLoginLifetimeSeconds": "60",
        "unsecuredLoginExtension_traceId": "1 2",
    }


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS is not supported"),
        ({"ssl.ca.location": "/no/such/file"}, "ssl.ca.location=/no/such/file: No such file"),
        ({"enable.ssl.certificate.verification": "false"}, "enable.ssl.certificate.verification=false is not supported"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "alice"}, "sasl.password is not set"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.config": "secret=1"}, "secret is not known"),
    ],
)
def test_a_key_that_cannot_be_honoured_is_named(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        ClientProperties(given)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"sasl.mechanism": "GSSAPI"}, "GSSAPI needs sasl.jaas.config; set sasl.mechanism"),
        ({"sasl.mechanism": "NTLM"}, "sasl.mechanism=NTLM is not supported"),
        ({}, "GSSAPI needs sasl.jaas.config; set sasl.mechanism"),
        ({"sasl.jaas.config": KERBEROS}, "sasl.jaas.config: No serviceName defined"),
        ({"sasl.mechanism": "PLAIN"}, "PLAIN needs sasl.jaas.config, or sasl.username"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": LOGIN}, f"sasl.jaas.config: PLAIN needs the login module {PLAIN_MODULE}"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": LOGIN.rstrip(";")}, "sasl.jaas.config: .*semi-colon"),
        ({"sasl.mechanism": "PLAIN", "sasl.login.class": "a.B"}, "sasl.login.class=a.B"),
    ],
)
def test_a_login_that_is_incomplete_is_named_without_secrets(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        _ = ClientProperties({"security.protocol": "SASL_PLAINTEXT", **given}).login
    assert "secret" not in str(refused.value)


def test_an_error_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    with pytest.raises(ConfigError, match=rf"{path} cannot be read: No such file"):
        read_client_properties(path)
    path.write_text("security.protocol=TLS\n")
    with pytest.raises(ConfigError, match=rf"{path}: security.protocol=TLS"):
        read_client_properties(path)
