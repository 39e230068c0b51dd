"""A broker with a certificate that other brokers would not accept does not start, and has touched nothing by then."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ottla.broker.server import CannotStart
from tests.support.certificates import Identity
from tests.support.in_process_broker import a_broker_in_process
from tests.support.serve_command import refused, tree

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{MODULE} required username="broker" password="broker-secret" user_broker="broker-secret";'


@pytest.fixture(scope="module")
def authority() -> Identity:
    return Identity("CN=authority")


def stores(folder: Path, identity: Identity, trusted: Identity | None) -> dict[str, str]:
    """A key store and a trust store in files of their own."""
    (folder / "key.pem").write_text(identity.key_pem() + identity.certificate_pem)
    found = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(folder / "key.pem")}
    if trusted is not None:
        (folder / "trust.pem").write_text(trusted.certificate_pem)
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(folder / "trust.pem")}
    return found


def broker(folder: Path, protocol: str = "SSL") -> dict[str, str]:
    """Of a broker that others reach over TLS."""
    sasl = {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"listener.name.{protocol.lower()}.plain.sasl.jaas.config": JAAS,
    }
    return {
        "broker.id": "1",
        "log.dirs": str(folder / "data"),
        "listeners": f"{protocol}://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": protocol,
        **(sasl if protocol == "SASL_SSL" else {}),
    }


def refusal(folder: Path, properties: dict[str, str]) -> str:
    return refused(folder, *(f"{name}={value}" for name, value in properties.items()))


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_a_certificate_of_an_authority_that_is_not_trusted_ends_the_start(tmp_path: Path, authority: Identity, protocol: str) -> None:
    untrusted = stores(tmp_path, Identity("CN=localhost", Identity("CN=another authority")), authority)
    said = refusal(tmp_path, broker(tmp_path, protocol) | untrusted)
    assert said == (
        f"ottla: listener {protocol}: ssl.keystore.location={tmp_path}/key.pem is not accepted by "
        f"ssl.truststore.location={tmp_path}/trust.pem: unable to get local issuer certificate; "
        "brokers with this configuration cannot connect to each other"
    )
    assert not (tmp_path / "data").exists()


def test_without_a_trust_store_the_certificates_of_the_system_decide(tmp_path: Path, authority: Identity) -> None:
    said = refusal(tmp_path, broker(tmp_path) | stores(tmp_path, Identity("CN=localhost", authority), None))
    assert "is not accepted by the system's certificates, which count since ssl.truststore.location is not set: " in said
    assert not (tmp_path / "data").exists()


def test_an_expired_certificate_ends_the_start(tmp_path: Path, authority: Identity) -> None:
    said = refusal(tmp_path, broker(tmp_path) | stores(tmp_path, Identity("CN=localhost", authority, days=-1), authority))
    assert "certificate has expired; brokers with this configuration cannot" in said


def test_suites_without_one_for_the_key_end_the_start(tmp_path: Path, authority: Identity) -> None:
    suites = {"ssl.enabled.protocols": "TLSv1.2", "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}
    said = refusal(tmp_path, broker(tmp_path) | stores(tmp_path, Identity("CN=localhost", authority), authority) | suites)
    assert f"ssl.keystore.location={tmp_path}/key.pem cannot be used with the versions and cipher suites of the listener: " in said


def test_secrets_in_the_configuration_are_not_shown(tmp_path: Path, authority: Identity) -> None:
    identity = Identity("CN=localhost")
    inline = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": identity.key_pem().replace("\n", " "),
        "ssl.keystore.certificate.chain": identity.certificate_pem.replace("\n", " "),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.certificate_pem.replace("\n", " "),
    }
    said = refusal(tmp_path, broker(tmp_path) | inline)
    assert "ssl.keystore.certificate.chain=[hidden] is not accepted by ssl.truststore.certificates=[hidden]: self-signed" in said


def test_a_listener_for_clients_alone_needs_no_trust_in_itself(tmp_path: Path) -> None:
    properties = broker(tmp_path) | stores(tmp_path, Identity("CN=localhost"), None)
    only_clients = {name: value for name, value in properties.items() if name not in ("log.dirs", "security.inter.broker.protocol")}
    with a_broker_in_process(tmp_path / "data", **only_clients) as running:
        assert {each.partition(":")[0] for each in running.broker.addresses} == {"SSL", "PLAINTEXT"}


def test_a_broker_that_had_started_leaves_its_directory_as_it_was(tmp_path: Path, authority: Identity) -> None:
    properties = broker(tmp_path) | stores(tmp_path, Identity("CN=localhost", authority), authority)
    started = {name: value for name, value in properties.items() if name != "log.dirs"}
    with a_broker_in_process(tmp_path / "data", **started):
        pass
    before = tree(tmp_path / "data")
    (tmp_path / "trust.pem").write_text(Identity("CN=another authority").certificate_pem)
    assert "is not accepted by ssl.truststore.location=" in refusal(tmp_path, properties)
    assert tree(tmp_path / "data") == before


def test_a_dynamic_configuration_may_replace_a_certificate_that_is_gone(tmp_path: Path, authority: Identity) -> None:
    properties = broker(tmp_path) | stores(tmp_path, Identity("CN=localhost", authority), authority)
    del properties["log.dirs"]
    second = tmp_path / "second.pem"
    shutil.copy(tmp_path / "key.pem", second)
    with a_broker_in_process(tmp_path / "data", **properties) as running:
        admin, name = running.services.administration.config_admin, "listener.name.ssl.ssl.keystore.location"
        running.run(lambda: admin.set_broker_configs("1", {name: str(second)}))
    (tmp_path / "key.pem").unlink()
    with a_broker_in_process(tmp_path / "data", **properties) as running:
        assert running.config.current.properties[name] == str(second)
    second.unlink()
    complaint = r"^listener SSL: ssl\.keystore\.location=.*second\.pem: No such file"
    with pytest.raises(CannotStart, match=complaint), a_broker_in_process(tmp_path / "data", **properties):
        pass
