"""Commands reach a secured cluster with --command-config, in the words of Java's clients and of librdkafka's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.security.client_security import ConfiguredSecurity
from ottla.client.cluster import Cluster
from ottla.client.errors import NotAuthenticated
from ottla.config.client_properties import ClientProperties
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.integration.test_cli_cluster import a_detached_cluster
from tests.support.certificates import Identity, java_key_store
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process

MODULE = "org.apache.kafka.common.security"
USERS = f'{MODULE}.plain.PlainLoginModule required user_alice="alice-secret";'


@pytest.fixture(scope="module")
def authority() -> Identity:
    return Identity("CN=authority")


@pytest.fixture(scope="module")
def broker(authority: Identity, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    identity = Identity("CN=broker", authority)
    properties = {
        "listeners": "BOTH://127.0.0.1:0,SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "BOTH:SASL_SSL,SSL:SSL,PLAINTEXT:PLAINTEXT",
        "listener.name.both.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.both.plain.sasl.jaas.config": USERS,
        "listener.name.both.connections.max.reauth.ms": "1000",
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": identity.key_pem(),
        "ssl.keystore.certificate.chain": identity.certificate_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.certificate_pem,
    }
    with a_broker_in_process(tmp_path_factory.mktemp("secured") / "log", **properties) as running:
        yield running


def address(broker: InProcessBroker, listener: str) -> str:
    return next(each for each in broker.broker.addresses if each.startswith(listener)).removeprefix(f"{listener}://")


@pytest.fixture
def words(authority: Identity, tmp_path: Path) -> dict[str, dict[str, str]]:
    """The same, said twice."""
    (tmp_path / "ca.pem").write_text(authority.certificate_pem)
    (tmp_path / "trust.jks").write_bytes(java_key_store("store-secret", authority.jks_certificate()))
    certificate, key = Identity("CN=alice", authority).files(tmp_path, "alice")
    (tmp_path / "alice.p12").write_bytes(Identity("CN=alice", authority).pkcs12("store-secret"))
    return {
        "java": {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{MODULE}.plain.PlainLoginModule required username="alice" password="alice-secret";',
            "ssl.truststore.location": str(tmp_path / "trust.jks"),
            "ssl.truststore.password": "store-secret",
            "ssl.keystore.location": str(tmp_path / "alice.p12"),
            "ssl.keystore.password": "store-secret",
        },
        "librdkafka": {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
            "ssl.ca.location": str(tmp_path / "ca.pem"),
            "ssl.certificate.location": str(certificate),
            "ssl.key.location": str(key),
        },
    }


def run(address: str, config: str, *arguments: str, values: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, because this one has the threads of a broker."""
    command = [sys.executable, "-m", "ottla", *arguments, "-b", address, "--command-config", config]
    return subprocess.run(command, input=values, capture_output=True, text=True, timeout=60, check=False)


def written(tmp_path: Path, properties: dict[str, str]) -> str:
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return str(path)


@pytest.mark.parametrize("of", ["java", "librdkafka"])
def test_commands_write_and_read_over_sasl_ssl(broker: InProcessBroker, words: dict[str, dict[str, str]], tmp_path: Path, of: str) -> None:
    secured = address(broker, "BOTH"), written(tmp_path, words[of])
    assert run(*secured, "topics", "create", of, "-p", "2").returncode == 0
    values = "".join(f"{number:05}{'x' * 900}\n" for number in range(3000))
    produced = run(*secured, "produce", of, values=values)
    assert produced.returncode == 0, produced.stderr
    consumed = run(*secured, "consume", of, "-e")
    assert sorted(consumed.stdout.splitlines()) == values.splitlines()


@pytest.mark.parametrize("of", ["java", "librdkafka"])
def test_a_certificate_is_shown_where_it_is_required(
    broker: InProcessBroker, words: dict[str, dict[str, str]], tmp_path: Path, of: str
) -> None:
    mutual = {name: value for name, value in words[of].items() if not name.startswith("sasl.")} | {"security.protocol": "SSL"}
    listed = run(address(broker, "SSL"), written(tmp_path, mutual), "topics", "list")
    assert listed.returncode == 0, listed.stderr


def test_the_doctor_examines_a_secured_cluster(broker: InProcessBroker, words: dict[str, dict[str, str]], tmp_path: Path) -> None:
    examined = run(address(broker, "BOTH"), written(tmp_path, words["java"]), "doctor", "--json")
    assert examined.returncode == 1, examined
    assert json.loads(examined.stdout)["not_examined"] == []
    (expires,) = [each for each in json.loads(examined.stdout)["findings"] if each["id"] == "certificate-expires"]
    assert expires["what"].startswith("the certificate of broker ")  # those of tests are valid for two days
    wrong = written(tmp_path, words["librdkafka"] | {"sasl.password": "wrong-secret"})
    refused = run(address(broker, "BOTH"), wrong, "doctor", "--json")
    (finding,) = json.loads(refused.stdout)["findings"]
    assert (refused.returncode, finding["id"], finding["command"]) == (2, "cluster-unreachable", "correct --command-config")
    assert "Invalid username or password" in finding["what"]


def test_a_supervisor_and_its_commands_reach_secured_brokers(authority: Identity, words: dict[str, dict[str, str]], tmp_path: Path) -> None:
    certificate, key = Identity("CN=broker", authority).files(tmp_path, "broker")
    (tmp_path / "broker.pem").write_text(key.read_text() + certificate.read_text())
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:{port}",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": USERS.replace(";", ' username="alice" password="alice-secret";'),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
    }
    set_all = [argument for name, value in settings.items() for argument in ("--set", f"{name}={value}")]
    config = written(tmp_path, words["librdkafka"])
    with a_detached_cluster(tmp_path / "cluster", "1", *set_all, "--command-config", config) as cluster:
        assert "not every broker's metadata" not in cluster.logs()
        (broker,) = cluster.brokers()
        assert (broker["state"], broker["role"], broker["leads"]) == ("ready", "controller", 0)
        assert cluster("rolling-restart").stdout.startswith("broker 0: restarted in ")


def test_a_session_is_renewed_while_answers_are_on_their_way(broker: InProcessBroker, words: dict[str, dict[str, str]]) -> None:
    security = ConfiguredSecurity(ClientProperties(words["java"]))
    with Cluster(address(broker, "BOTH"), security=security) as cluster:
        connection = cluster.any_connection()
        for _ in range(3):
            connection.send(MetadataRequest(topics=[]))
        connection._renew_at = 0.0
        connection.send(MetadataRequest(topics=[]))
        assert connection._renew_at > 0.0
        assert connection.in_flight == 4
        answers = [connection.receive(20) for _ in range(4)]
        assert [type(each) for each in answers] == [MetadataResponse] * 4
        assert connection is cluster.any_connection()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sasl.password": "wrong-secret"}, "authentication by PLAIN failed: Authentication failed: Invalid username or password"),
        ({"sasl.mechanisms": "SCRAM-SHA-256"}, "does not offer the SASL mechanism SCRAM-SHA-256, but PLAIN"),
        ({"security.protocol": "sasl_plaintext"}, "does it require TLS or SASL (--command-config)?"),
        ({"ssl.ca.location": "/no/such/file"}, "ssl.ca.location=/no/such/file: No such file"),
    ],
)
def test_a_wrong_configuration_is_one_line(
    broker: InProcessBroker, words: dict[str, dict[str, str]], tmp_path: Path, change: dict[str, str], said: str
) -> None:
    wrong = written(tmp_path, words["librdkafka"] | change)
    listed = run(address(broker, "BOTH"), wrong, "topics", "list", "--timeout", "20")
    assert listed.returncode != 0
    assert said in listed.stderr
    assert "secret" not in listed.stderr


def test_a_certificate_of_another_authority_is_not_accepted(
    broker: InProcessBroker, words: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    (tmp_path / "other.pem").write_text(Identity("CN=other").certificate_pem)
    security = ConfiguredSecurity(ClientProperties(words["librdkafka"] | {"ssl.ca.location": str(tmp_path / "other.pem")}))
    with pytest.raises(NotAuthenticated, match="is not accepted"), Cluster(address(broker, "BOTH"), security=security) as cluster:
        cluster.any_connection()


def test_the_same_security_is_said_in_the_words_of_librdkafka(words: dict[str, dict[str, str]], authority: Identity) -> None:
    ours = ConfiguredSecurity(ClientProperties(words["java"])).librdkafka()
    assert ours["ssl.ca.pem"] == authority.certificate_pem
    assert {name: ours[name] for name in ("security.protocol", "sasl.mechanisms", "sasl.username", "sasl.password")} == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "alice-secret",
    }
    assert ours["ssl.key.pem"].startswith("-----BEGIN PRIVATE KEY-----")
