"""A broker of Apache Kafka and one of Ottla share their delegation tokens: each serves, changes and ends the tokens of the other."""

from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode
from tests.integration.test_delegation_tokens import HOUR_MS, User, log_in
from tests.integration.test_sasl_listener import MODULE, Wire
from tests.support.apache_kafka import ApacheKafka, free_ports
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import eventually
from tests.support.in_process_broker import a_broker_in_process

pytestmark = [*needs_apache_kafka, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]  # a JVM, on a busy machine

CONFIG = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl.plain.sasl.jaas.config": f'{MODULE}.plain.PlainLoginModule required user_alice="a" user_bob="b";',
    "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
    "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
    "delegation.token.secret.key": "the secret of all brokers",
    "connection.failed.authentication.delay.ms": "0",
}


def listeners(port: int, sasl: int) -> dict[str, str]:
    text = f"PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{sasl}"
    return {"listeners": text, "advertised.listeners": text}


@pytest.mark.soak
def test_brokers_of_both_kinds_share_their_tokens(tmp_path: Path) -> None:
    their_port, our_port, our_plain = free_ports(3)
    with (
        ApacheKafka(tmp_path / "apache", 1, CONFIG, config_of=lambda _, port: listeners(port, their_port)) as apache,
        a_broker_in_process(
            tmp_path / "log", zookeeper_connect=apache.zookeeper.connect, broker_id=1, **CONFIG, **listeners(our_plain, our_port)
        ),
    ):
        for made_at, used_at in ((their_port, our_port), (our_port, their_port)):
            with User(made_at, "alice") as maker, User(used_at, "alice") as alice, User(used_at, "bob") as bob:
                created = maker.create("bob", max_lifetime_ms=2 * HOUR_MS)
                assert created.error_code == ErrorCode.NONE
                token_hmac = bytes(created.hmac)
                eventually(lambda alice=alice, created=created: created.token_id in alice.ids())
                for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                    with Wire(used_at) as holder:
                        assert log_in(holder, created, mechanism).error_code == ErrorCode.NONE
                        assert holder.metadata() is not None
                renewed = bob.renew(token_hmac, HOUR_MS)
                assert renewed.error_code == ErrorCode.NONE
                assert renewed.expiry_timestamp_ms < created.max_timestamp_ms
                assert bob.expire(token_hmac).error_code == ErrorCode.NONE
                eventually(lambda maker=maker, created=created: created.token_id not in maker.ids())
                assert maker.renew(token_hmac).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
