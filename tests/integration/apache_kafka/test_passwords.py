"""Apache Kafka reads the passwords that Ottla stores, and Ottla those that Apache Kafka stores."""

import json
import os
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from config.passwords import CBC, GCM, PasswordEncoder
from tests.support.apache_kafka import ApacheKafka, run_tool
from tests.support.apache_kafka.marks import needs_apache_kafka

pytestmark = needs_apache_kafka
SECRET = "a secret"
NAME = "listener.name.x.ssl.keystore.password"
OTHER_NAME = "listener.name.x.ssl.key.password"
NODE = "/config/brokers/0"
CONFIG_COMMAND = "kafka.admin.ConfigCommand"
CANNOT_DECODE = "could not be decoded"


def stored_in(client: KazooClient) -> dict[str, str]:
    data, _ = client.get(NODE)
    config: dict[str, str] = json.loads(data)["config"]
    return config


def an_encoder(secret: str, cipher: str) -> PasswordEncoder:
    return PasswordEncoder(secret, "PBKDF2WithHmacSHA256", cipher, 256, 2048, os.urandom)


@pytest.mark.parametrize("cipher", [CBC, pytest.param(GCM, marks=pytest.mark.soak)], ids=["cbc", "gcm"])
def test_passwords_are_read_in_both_directions(tmp_path: Path, cipher: str) -> None:
    ours = an_encoder(SECRET, cipher)
    with ApacheKafka(tmp_path, 1, {"password.encoder.secret": SECRET, "password.encoder.cipher.algorithm": cipher}) as kafka:
        change = ("--entity-type", "brokers", "--entity-name", "0", "--alter", "--add-config", f"{NAME}=password 1")
        done = run_tool(CONFIG_COMMAND, "--bootstrap-server", kafka.bootstrap, *change)
        assert done.returncode == 0, done.stderr
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
        finally:
            client.stop()
            client.close()
