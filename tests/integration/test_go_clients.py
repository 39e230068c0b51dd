"""franz-go, sarama and kafka-go write and read over SASL_SSL by SCRAM, PLAIN and OAUTHBEARER, and over SSL with a certificate."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.security.sasl.clients import unsecured_token
from ottla.client.cluster import Cluster
from ottla.client.user_admin import alter_users, new_credential
from tests.integration.test_sasl_listener import MODULE, port_of
from tests.support.certificates import Identity
from tests.support.go_programs import compiled_program, needs_go
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process

COUNT = 2000

pytestmark = [needs_go, pytest.mark.soak, pytest.mark.timeout(900)]  # Go compiles its standard library, a minute of processor time


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clients."""
    return compiled_program("secured", tmp_path_factory.mktemp("go"))


@pytest.fixture(scope="module")
def authority() -> Identity:
    return Identity("CN=authority")


@pytest.fixture(scope="module")
def broker(authority: Identity, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    identity = Identity("CN=localhost", authority)
    with a_broker_in_process(
        tmp_path_factory.mktemp("secured") / "log",
        listeners="PLAINTEXT://127.0.0.1:0,CERTIFICATES://127.0.0.1:0,USERS://127.0.0.1:0",
        **{
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CERTIFICATES:SSL,USERS:SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
            "listener.name.users.plain.sasl.jaas.config": f'{MODULE}.plain.PlainLoginModule required user_alice="alice-secret";',
            "listener.name.users.oauthbearer.sasl.jaas.config": f"{MODULE}.oauthbearer.OAuthBearerLoginModule required;",
            "listener.name.users.scram-sha-256.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
            "listener.name.certificates.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": identity.key_pem(),
            "ssl.keystore.certificate.chain": identity.certificate_pem,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": authority.certificate_pem,
            "auto.create.topics.enable": "true",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice;User:CN=alice",
        },
    ) as running:
        with Cluster(f"127.0.0.1:{port_of(running, 'PLAINTEXT')}") as cluster:
            assert alter_users(cluster, [new_credential("alice", "SCRAM-SHA-256", "alice-secret")]) == {"alice": None}
        yield running


def credentials_of(mode: str, authority: Identity, folder: Path) -> list[str]:
    """The last two arguments of the program."""
    if mode == "mutual":
        return [str(path) for path in Identity("CN=alice", authority).files(folder, "alice")]
    if mode == "oauthbearer":
        return ["alice", unsecured_token({"unsecuredLoginStringClaim_sub": "alice"}, time.time_ns() // 1_000_000)]
    return ["alice", "alice-secret"]


@pytest.mark.parametrize(
    ("library", "mode"),
    [
        *((library, mode) for library in ("franz", "sarama", "kafka-go") for mode in ("scram", "plain", "mutual")),
        ("franz", "oauthbearer"),
        ("sarama", "oauthbearer"),
    ],
)
def test_a_client_writes_and_reads_everything_in_order(
    program: Path, broker: InProcessBroker, authority: Identity, tmp_path: Path, library: str, mode: str
) -> None:
    (tmp_path / "ca.pem").write_text(authority.certificate_pem)
    address = f"127.0.0.1:{port_of(broker, 'CERTIFICATES' if mode == 'mutual' else 'USERS')}"
    credentials = credentials_of(mode, authority, tmp_path)
    command = [str(program), library, address, f"{library}-{mode}", str(COUNT), str(tmp_path / "ca.pem"), mode, *credentials]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, f"{COUNT}\n"), done.stderr


def test_kafka_go_creates_describes_and_deletes_acls(program: Path, broker: InProcessBroker, authority: Identity, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(authority.certificate_pem)
    address = f"127.0.0.1:{port_of(broker, 'USERS')}"
    command = [str(program), "kafka-go-acls", address, "guarded", "3", str(tmp_path / "ca.pem"), "scram", "alice", "alice-secret"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_a_client_with_a_wrong_password_is_refused(program: Path, broker: InProcessBroker, authority: Identity, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(authority.certificate_pem)
    address = f"127.0.0.1:{port_of(broker, 'USERS')}"
    command = [str(program), "sarama", address, "refused", "1", str(tmp_path / "ca.pem"), "scram", "alice", "wrong-secret"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "SASL Authentication failed" in done.stderr
