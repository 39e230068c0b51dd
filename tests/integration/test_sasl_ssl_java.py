"""Apache Kafka's own tools at a SASL_SSL listener: SCRAM, certificates of clients, every version of TLS, and delegation tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.integration.test_sasl_clients import address_of
from tests.integration.test_sasl_listener import MODULE
from tests.support.apache_kafka import run_tool
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.certificates import Identity
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.java_pair import CONSUMER, PRODUCER, TOPICS

pytestmark = [*needs_apache_kafka, pytest.mark.slow, pytest.mark.timeout(300)]

TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
SCRAM_MODULE = f"{MODULE}.scram.ScramLoginModule"
SECONDS = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stores of broker and client: `broker.p12`, `alice.p12`, `trust.p12`."""
    folder = tmp_path_factory.mktemp("stores")
    authority = Identity("CN=authority")
    for name, subject in (("broker", "CN=localhost"), ("alice", "CN=alice")):
        (folder / f"{name}.p12").write_bytes(Identity(subject, authority).pkcs12("store-secret"))
    (folder / "ca.pem").write_text(authority.certificate_pem)
    return folder


@pytest.fixture(scope="module")
def broker(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with a_broker_in_process(
        tmp_path_factory.mktemp("data") / "log",
        listeners="PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
        **{
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.clients.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": folder / "broker.p12",
            "ssl.keystore.password": "store-secret",
            "listener.name.clients.ssl.truststore.type": "PEM",
            "listener.name.clients.ssl.truststore.location": folder / "ca.pem",
            "listener.name.clients.ssl.client.auth": "required",
            "delegation.token.secret.key": "token-secret",
            "offsets.topic.num.partitions": 4,
        },
    ) as running:
        admin = AdminClient({"bootstrap.servers": address_of(running, "PLAINTEXT")})
        upsertion = UserScramCredentialUpsertion("alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"alice-secret")
        admin.alter_user_scram_credentials([upsertion])["alice"].result(SECONDS)
        yield running


def settings(folder: Path, name: str, login: str, protocol: str) -> Path:
    """The file of a Java client with this line of JAAS options."""
    file = folder / f"{name}.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={folder}/ca.pem\nssl.enabled.protocols={protocol}\n"
        f"ssl.keystore.type=PKCS12\nssl.keystore.location={folder}/alice.p12\nssl.keystore.password=store-secret\n"
        f"sasl.jaas.config={SCRAM_MODULE} required {login};\n"
    )
    return file


def write_and_read(broker: InProcessBroker, file: Path, topic: str, group: str = "readers") -> None:
    to_topic = ("--bootstrap-server", address_of(broker, "CLIENTS"), "--topic", topic)
    written = run_tool(PRODUCER, *to_topic, "--producer.config", str(file), input="one\ntwo\n")
    assert written.returncode == 0, written.stdout + written.stderr
    bounds = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "60000", "--group", group)
    read = run_tool(CONSUMER, *to_topic, "--consumer.config", str(file), *bounds)
    assert read.stdout == "one\ntwo\n", read.stderr


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_console_clients_write_and_read_by_scram_with_a_certificate(broker: InProcessBroker, folder: Path, protocol: str) -> None:
    file = settings(folder, protocol, 'username="alice" password="alice-secret"', protocol)
    write_and_read(broker, file, f"topic-{protocol}", protocol)


def test_kafka_delegation_tokens_creates_renews_and_expires_a_token_that_logs_in(broker: InProcessBroker, folder: Path) -> None:
    owner = settings(folder, "owner", 'username="alice" password="alice-secret"', "TLSv1.3")

    def tokens(*arguments: str) -> str:
        done = run_tool(TOKENS, "--bootstrap-server", address_of(broker, "CLIENTS"), "--command-config", str(owner), *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    created = tokens("--create", "--max-life-time-period", "3600000", "--renewer-principal", "User:bob")
    assert "User:alice" in created
    assert "User:bob" in created
    (token_id, token_hmac), *_ = re.findall(r"^(\S{22})\s+(\S{88})\s", created, re.MULTILINE)
    assert token_id in tokens("--describe", "--owner-principal", "User:alice")
    assert token_id not in tokens("--describe", "--owner-principal", "User:carol")
    holder = settings(folder, "holder", f'username="{token_id}" password="{token_hmac}" tokenauth="true"', "TLSv1.3")
    write_and_read(broker, holder, "by-token", "by-token")
    assert "Completed renew operation" in tokens("--renew", "--renew-time-period", "60000", "--hmac", token_hmac)
    assert "Completed expire operation" in tokens("--expire", "--expiry-time-period", "-1", "--hmac", token_hmac)
    assert token_id not in tokens("--describe", "--owner-principal", "User:alice")  # without an owner the tool lists none
    refused = run_tool(TOPICS, "--bootstrap-server", address_of(broker, "CLIENTS"), "--command-config", str(holder), "--list")
    assert refused.returncode == 1
    assert "due to invalid credentials with SASL mechanism SCRAM-SHA-512" in refused.stdout + refused.stderr
