"""Certificates of a listener are exchanged while the broker runs, by another path or another file behind the same path."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as confluent
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from ottla.broker.security.tls.listener import ListenerTls
from tests.support.broker_process import eventually
from tests.support.certificates import Identity
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process

KEY = "listener.name.ssl.ssl.keystore.location"


@pytest.fixture(scope="module")
def authority() -> Identity:
    return Identity("CN=authority")


def write(path: Path, identity: Identity) -> str:
    path.write_text(identity.key_pem() + identity.certificate_pem)
    return str(path)


@pytest.fixture
def first(authority: Identity) -> Identity:
    return Identity("CN=localhost", authority)


@pytest.fixture
def broker(tmp_path: Path, first: Identity) -> Iterator[InProcessBroker]:
    settings = {"ssl_keystore_type": "PEM", "ssl_keystore_location": write(tmp_path / "first.pem", first)}
    listeners = "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"
    with a_broker_in_process(tmp_path / "data", listeners=listeners, broker_id=0, **settings) as running:
        yield running


def address(broker: InProcessBroker, name: str) -> tuple[str, int]:
    found = next(each for each in broker.broker.addresses if each.startswith(f"{name}:"))
    return "127.0.0.1", int(found.rpartition(":")[2])


def shown_by(broker: InProcessBroker) -> bytes | None:
    """The certificate that a new connection gets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(address(broker, "SSL"), 30) as plain, context.wrap_socket(plain) as secure:
        return secure.getpeercert(binary_form=True)


def alter(broker: InProcessBroker, location: str, **more: str) -> None:
    """Change the key store, and further keys `ssl.*` of the listener, which have underscores for dots."""
    host, port = address(broker, "PLAINTEXT")
    values = {KEY: location} | {f"listener.name.ssl.ssl.{name.replace('_', '.')}": value for name, value in more.items()}
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in values.items()]
    resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": f"{host}:{port}"})
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(60)


def is_refused(broker: InProcessBroker, location: str, complaint: str, **more: str) -> None:
    with pytest.raises(confluent.KafkaException) as error:
        alter(broker, location, **more)
    assert error.value.args[0].code() == confluent.KafkaError.INVALID_REQUEST
    assert complaint in error.value.args[0].str()


@pytest.fixture
def of_brokers(tmp_path: Path, first: Identity, authority: Identity) -> Iterator[InProcessBroker]:
    """A broker that others reach at its listener SSL, with a certificate."""
    (tmp_path / "trust.pem").write_text(authority.certificate_pem)
    settings = {
        "ssl_keystore_type": "PEM",
        "ssl_keystore_location": write(tmp_path / "first.pem", first),
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": str(tmp_path / "trust.pem"),
        "ssl_client_auth": "required",
        "security_inter_broker_protocol": "SSL",
    }
    listeners = "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"
    with a_broker_in_process(tmp_path / "data", listeners=listeners, broker_id=0, **settings) as running:
        yield running


def test_a_new_path_and_a_new_file_behind_the_same_path_count_for_new_connections(
    broker: InProcessBroker, authority: Identity, first: Identity, tmp_path: Path
) -> None:
    assert shown_by(broker) == first.der
    second, third = Identity("CN=localhost", authority), Identity("CN=localhost", authority)
    path = tmp_path / "second.pem"

    alter(broker, write(path, second))
    eventually(lambda: shown_by(broker) == second.der)

    alter(broker, write(path, third))
    eventually(lambda: shown_by(broker) == third.der)


def test_a_certificate_that_cannot_be_used_is_refused_and_the_old_one_stays(
    broker: InProcessBroker, authority: Identity, first: Identity, tmp_path: Path
) -> None:
    (tmp_path / "damaged.pem").write_text("nothing")
    for location, complaint in (
        (str(tmp_path / "damaged.pem"), "expected one private key"),
        ("/no/such/file", "No such file"),
        (write(tmp_path / "renamed.pem", Identity("CN=other", authority)), "the new certificate names CN=other, the old one CN=localhost"),
    ):
        is_refused(broker, location, complaint)
    assert shown_by(broker) == first.der


def test_a_trust_store_is_not_added_to_a_listener_without_one(broker: InProcessBroker, authority: Identity, tmp_path: Path) -> None:
    (tmp_path / "trust.pem").write_text(authority.certificate_pem)
    trust = {"truststore_type": "PEM", "truststore_location": str(tmp_path / "trust.pem")}
    is_refused(broker, str(tmp_path / "first.pem"), "it has no trust store, and none can be added while the broker runs", **trust)


def test_the_case_of_a_name_may_change(broker: InProcessBroker, authority: Identity, tmp_path: Path) -> None:
    louder = Identity("CN=LOCALHOST", authority)
    alter(broker, write(tmp_path / "louder.pem", louder))
    eventually(lambda: shown_by(broker) == louder.der)


def test_brokers_with_the_old_and_the_new_stores_have_to_reach_each_other(
    of_brokers: InProcessBroker, authority: Identity, tmp_path: Path
) -> None:
    """Otherwise the first broker that changes leaves the cluster until the last one has changed."""
    other = Identity("CN=other authority")
    (tmp_path / "other.pem").write_text(other.certificate_pem)
    (tmp_path / "both.pem").write_text(other.certificate_pem + authority.certificate_pem)
    of_other = write(tmp_path / "of-other.pem", Identity("CN=localhost", other))
    first = str(tmp_path / "first.pem")
    is_refused(of_brokers, of_other, "cannot connect to one with the")
    is_refused(of_brokers, first, "cannot connect to one with the", truststore_location=str(tmp_path / "other.pem"))
    is_refused(of_brokers, of_other, "cannot connect to one with the", truststore_location=str(tmp_path / "both.pem"))
    # In three steps nothing is ever cut off.
    for location, trust in ((first, "both.pem"), (of_other, "both.pem"), (of_other, "other.pem")):
        before = tls_of(of_brokers)
        alter(of_brokers, location, truststore_location=str(tmp_path / trust))
        eventually(lambda before=before: tls_of(of_brokers) is not before)


def test_brokers_with_the_new_stores_have_to_reach_each_other(
    of_brokers: InProcessBroker, authority: Identity, first: Identity, tmp_path: Path
) -> None:
    """Otherwise the next start with these stores would be refused."""
    other = Identity("CN=other authority")
    (tmp_path / "both.pem").write_text(other.certificate_pem + authority.certificate_pem)
    of_other = write(tmp_path / "of-other.pem", Identity("CN=localhost", other))
    before = tls_of(of_brokers)
    alter(of_brokers, str(tmp_path / "first.pem"), truststore_location=str(tmp_path / "both.pem"))
    eventually(lambda: tls_of(of_brokers) is not before)
    present = tls_of(of_brokers)
    only_old = str(tmp_path / "trust.pem")
    complaint = f"ssl.keystore.location={of_other} is not accepted by ssl.truststore.location={only_old}: unable to get local issuer"
    is_refused(of_brokers, of_other, complaint, truststore_location=only_old)
    assert tls_of(of_brokers) is present
    assert present.certificate == first.der


def tls_of(broker: InProcessBroker) -> ListenerTls:
    (found,) = (each.tls for each in broker.broker.socket_server.acceptors if each.tls is not None)
    return found
