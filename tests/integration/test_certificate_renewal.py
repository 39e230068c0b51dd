"""Certificates of a listener are exchanged while the broker runs, by another path or another file behind the same path."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as confluent
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

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


def alter(broker: InProcessBroker, location: str) -> None:
    host, port = address(broker, "PLAINTEXT")
    entry = ConfigEntry(KEY, location, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": f"{host}:{port}"})
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(60)


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
        with pytest.raises(confluent.KafkaException) as error:
            alter(broker, location)
        assert error.value.args[0].code() == confluent.KafkaError.INVALID_REQUEST
        assert complaint in error.value.args[0].str()
    assert shown_by(broker) == first.der
