"""Apache Kafka reads the passwords that Ottla stores, and Ottla those that Apache Kafka stores."""

import json
import os
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from ottla.config.passwords import CBC, GCM, PasswordEncoder
from tests.support.apache_kafka import ApacheKafka, known_brokers, run_tool
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import eventually
from tests.support.java_pair import CONFIGS, PASSWORD_SECRET

pytestmark = needs_apache_kafka
NAME = "listener.name.x.ssl.keystore.password"
OTHER_NAME = "listener.name.x.ssl.key.password"
NODE = "/config/brokers/0"
CANNOT_DECODE = "could not be decoded"


def stored_in(client: KazooClient) -> dict[str, str]:
    data, _ = client.get(NODE)
    config: dict[str, str] = json.loads(data)["config"]
    return config


def an_encoder(secret: str, cipher: str) -> PasswordEncoder:
    return PasswordEncoder(secret, "PBKDF2WithHmacSHA256", cipher, 256, 2048, os.urandom)


def check_both_directions(kafka: ApacheKafka, cipher: str) -> None:
    """Restarts the broker, and leaves no password."""
    ours = an_encoder(PASSWORD_SECRET, cipher)
    configure(kafka, "--add-config", f"{NAME}=password 1")
    client = KazooClient(kafka.zookeeper.connect)
    client.start()
    try:
        assert ours.decode(stored_in(client)[NAME]) == "password 1"
        kafka.stop_broker(0)
        stored = {NAME: ours.encode("password 2"), OTHER_NAME: an_encoder("another", cipher).encode("password 3")}
        client.set(NODE, json.dumps({"version": 1, "config": stored}).encode())
        kafka.start_broker(0)
        said = kafka.log_text(0)
        assert f" {OTHER_NAME} {CANNOT_DECODE}" in said
        assert f" {NAME} {CANNOT_DECODE}" not in said
        eventually(lambda: known_brokers("127.0.0.1", kafka.port()) == (0, {0}))
        del stored[OTHER_NAME]  # the broker does not know of it
        client.set(NODE, json.dumps({"version": 1, "config": stored}).encode())
        configure(kafka, "--delete-config", NAME)
        assert stored_in(client) == {}
    finally:
        client.stop()
        client.close()


def configure(kafka: ApacheKafka, *change: str) -> None:
    done = run_tool(CONFIGS, "--bootstrap-server", kafka.bootstrap, "--entity-type", "brokers", "--entity-name", "0", "--alter", *change)
    assert done.returncode == 0, done.stderr


def test_passwords_are_read_in_both_directions(kafka: ApacheKafka) -> None:
    check_both_directions(kafka, CBC)


@pytest.mark.soak
def test_passwords_of_another_cipher_are_read_in_both_directions(tmp_path: Path) -> None:
    config = {"password.encoder.secret": PASSWORD_SECRET, "password.encoder.cipher.algorithm": GCM}
    with ApacheKafka(tmp_path, 1, config, heap="256m") as kafka:
        check_both_directions(kafka, GCM)
