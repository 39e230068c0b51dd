"""Java's console clients on every protocol, mechanism and version of TLS, its administrative tools, and an exchange of a certificate."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.integration.test_sasl_clients import address_of
from tests.integration.test_sasl_listener import MODULE, port_of
from tests.support.acl_requests import AUTHORIZER
from tests.support.apache_kafka import run_tool
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import eventually
from tests.support.certificates import Identity
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.java_pair import CONFIGS, CONSUMER, PRODUCER, TOPICS

pytestmark = [*needs_apache_kafka, pytest.mark.slow, pytest.mark.timeout(300)]

ACLS = "kafka.admin.AclCommand"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
SECONDS = 60
LISTENERS = {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL", "SASL": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}
LOGINS = {
    "PLAIN": f'{MODULE}.plain.PlainLoginModule required username="alice" password="alice-secret";',
    "SCRAM-SHA-256": f'{MODULE}.scram.ScramLoginModule required username="alice" password="alice-secret";',
    "SCRAM-SHA-512": f'{MODULE}.scram.ScramLoginModule required username="alice" password="alice-secret";',
    "OAUTHBEARER": f'{MODULE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice";',
}
CASES = [
    ("SSL", None, "TLSv1.2"),
    ("SSL", None, "TLSv1.3"),
    *(("SASL", mechanism, None) for mechanism in LOGINS),
    *(("BOTH", mechanism, "TLSv1.3") for mechanism in LOGINS),
    ("BOTH", "PLAIN", "TLSv1.2"),
    ("BOTH", "SCRAM-SHA-256", "TLSv1.2"),
]
ADMINISTRATORS = [("SSL", None), ("BOTH", "PLAIN"), ("BOTH", "SCRAM-SHA-512"), ("BOTH", "OAUTHBEARER")]


@pytest.fixture(scope="module")
def authority() -> Identity:
    return Identity("CN=authority")


@pytest.fixture(scope="module")
def folder(authority: Identity, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stores of broker and client in PEM: `broker.pem`, `alice.pem`, `ca.pem`."""
    folder = tmp_path_factory.mktemp("stores")
    for name, subject in (("broker", "CN=localhost"), ("alice", "CN=alice")):
        write(folder / f"{name}.pem", Identity(subject, authority))
    (folder / "ca.pem").write_text(authority.certificate_pem)
    return folder


def write(path: Path, identity: Identity) -> None:
    path.write_text(identity.key_pem() + identity.certificate_pem)


@pytest.fixture(scope="module")
def broker(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    lines = {
        "plain": f'{MODULE}.plain.PlainLoginModule required user_alice="alice-secret";',
        "scram-sha-256": f"{MODULE}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{MODULE}.scram.ScramLoginModule required;",
        "oauthbearer": f"{MODULE}.oauthbearer.OAuthBearerLoginModule required;",
    }
    with a_broker_in_process(
        tmp_path_factory.mktemp("data") / "log",
        listeners=",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        **{
            "broker.id": 0,
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
            "sasl.enabled.mechanisms": ",".join(LOGINS),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": folder / "broker.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": folder / "ca.pem",
            "ssl.client.auth": "required",
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:ANONYMOUS;User:alice;User:CN=alice",
            "delegation.token.secret.key": "token-secret",
            "offsets.topic.num.partitions": 4,
        },
        **{f"listener.name.{listener}.{name}.sasl.jaas.config": line for listener in ("sasl", "both") for name, line in lines.items()},
    ) as running:
        admin = AdminClient({"bootstrap.servers": address_of(running, "PLAINTEXT")})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            upsertion = UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), b"alice-secret")
            admin.alter_user_scram_credentials([upsertion])["alice"].result(SECONDS)
        yield running


def settings(folder: Path, name: str, listener: str, mechanism: str | None, version: str | None) -> Path:
    """The file of a Java client."""
    lines = [f"security.protocol={LISTENERS[listener]}"]
    if version is not None:
        lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={folder}/ca.pem", f"ssl.enabled.protocols={version}"]
    if listener == "SSL":
        lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={folder}/alice.pem"]
    if mechanism is not None:
        lines += [f"sasl.mechanism={mechanism}", f"sasl.jaas.config={LOGINS[mechanism]}"]
    file = folder / f"{name}.properties"
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.mark.parametrize(("listener", "mechanism", "version"), CASES)
def test_console_clients_write_and_read(
    broker: InProcessBroker, folder: Path, listener: str, mechanism: str | None, version: str | None
) -> None:
    name = "-".join(each for each in (listener, mechanism, version) if each is not None)
    file = settings(folder, name, listener, mechanism, version)
    to_topic = ("--bootstrap-server", address_of(broker, listener), "--topic", name)
    written = run_tool(PRODUCER, *to_topic, "--producer.config", str(file), input="one\ntwo\n")
    assert written.returncode == 0, written.stdout + written.stderr
    bounds = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "60000", "--group", name)
    read = run_tool(CONSUMER, *to_topic, "--consumer.config", str(file), *bounds)
    assert read.stdout == "one\ntwo\n", read.stderr


@pytest.mark.parametrize(("listener", "mechanism"), ADMINISTRATORS)
def test_the_tools_for_acls_configurations_and_tokens_log_in(
    broker: InProcessBroker, folder: Path, listener: str, mechanism: str | None
) -> None:
    name = f"guarded-{mechanism}"
    file = settings(folder, name, listener, mechanism, "TLSv1.3")

    def run(tool: str, *arguments: str) -> str:
        ended = run_tool(tool, "--bootstrap-server", address_of(broker, listener), "--command-config", str(file), *arguments)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    run(TOPICS, "--create", "--topic", name)
    run(ACLS, "--add", "--allow-principal", "User:bob", "--operation", "Read", "--topic", name)
    assert "(principal=User:bob, host=*, operation=READ, permissionType=ALLOW)" in run(ACLS, "--list", "--topic", name)
    run(ACLS, "--remove", "--force", "--topic", name)
    assert "User:bob" not in run(ACLS, "--list", "--topic", name)
    user = ("--entity-type", "users", "--entity-name", name)
    run(CONFIGS, "--alter", *user, "--add-config", "SCRAM-SHA-256=[iterations=4096,password=bob-secret]")
    assert "SCRAM-SHA-256=iterations=4096" in run(CONFIGS, "--describe", *user)
    ((token_id, token_hmac),) = re.findall(r"^(\S{22})\s+(\S{88})\s", run(TOKENS, "--create", "--max-life-time-period", "-1"), re.MULTILINE)
    owner = ("--owner-principal", "User:alice" if mechanism else "User:CN=alice")  # without it the tool lists none
    assert token_id in run(TOKENS, "--describe", *owner)
    run(TOKENS, "--expire", "--expiry-time-period", "-1", "--hmac", token_hmac)
    assert token_id not in run(TOKENS, "--describe", *owner)


def shown_by(broker: InProcessBroker) -> bytes | None:
    """The certificate that a new connection gets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port_of(broker, "BOTH")), 30) as plain, context.wrap_socket(plain) as secure:
        return secure.getpeercert(binary_form=True)


def test_kafka_configs_exchanges_a_certificate(broker: InProcessBroker, folder: Path, authority: Identity) -> None:
    def alter(path: Path) -> tuple[int, str]:
        entity = ("--entity-type", "brokers", "--entity-name", "0", "--alter")
        change = f"listener.name.both.ssl.keystore.location={path}"
        ended = run_tool(CONFIGS, "--bootstrap-server", address_of(broker, "PLAINTEXT"), *entity, "--add-config", change)
        return ended.returncode, ended.stdout + ended.stderr

    second, other = Identity("CN=localhost", authority), Identity("CN=other", authority)
    for name, identity in (("second", second), ("other", other)):
        write(folder / f"{name}.pem", identity)
    status, said = alter(folder / "second.pem")
    assert (status, "Completed updating config for broker 0." in said) == (0, True), said
    eventually(lambda: shown_by(broker) == second.der)
    status, said = alter(folder / "other.pem")
    assert status == 1, said
    assert "the new certificate names CN=other, the old one CN=localhost; ssl.allow.dn.changes is not set" in said
    assert shown_by(broker) == second.der
