"""Three brokers move from PLAINTEXT to GSSAPI over TLS between each other, and a client logs in there by its keytab."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation

from ottla.broker.security.client_security import ConfiguredSecurity
from ottla.client.cluster import Cluster as Client
from ottla.config.client_properties import ClientProperties
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.apache_kafka.ports import free_ports
from tests.support.certificates import Identity
from tests.support.cluster import Cluster, a_cluster
from tests.support.cluster_clients import a_writer, read_all
from tests.support.history import History
from tests.support.kerberos import Realm, a_realm, jaas, needs_kerberos
from tests.support.secure_cluster import AUTHORIZER, REPLICAS, allow_on_cluster, roll, wait_until_in_sync

pytestmark = [needs_kerberos, pytest.mark.timeout(300)]


@pytest.fixture
def realm(tmp_path: Path) -> Iterator[Realm]:
    folder = tmp_path / "realm"
    folder.mkdir()
    with a_realm(folder) as running:
        yield running


def secure_listener(directory: Path, authority: Identity, broker_id: int, keytab: Path) -> dict[str, str]:
    """A listener SECURE beside PLAINTEXT, by whose name for this host tickets are issued."""
    store = directory / f"broker-{broker_id}.pem"
    identity = Identity(f"CN=broker-{broker_id}", authority)
    store.write_text(identity.key_pem() + identity.certificate_pem)
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
        "listener.name.secure.sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.secure.gssapi.sasl.jaas.config": jaas("kafka/localhost", keytab),
        "listener.name.secure.connections.max.reauth.ms": "3000",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "authority.pem"),
    }


def ask_by_keytab(cluster: Cluster, directory: Path, keytab: Path) -> None:
    """A command's connection to each broker, at its listener SECURE."""
    login = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "GSSAPI",
        "sasl.jaas.config": jaas("alice", keytab),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "authority.pem"),
    }
    security = ConfiguredSecurity(ClientProperties(login))
    for broker in cluster.brokers.values():
        (address,) = (each for each in broker.properties["listeners"].split(",") if each.startswith("SECURE:"))
        with Client(f"localhost:{address.rpartition(':')[2]}", security=security) as client:
            answer = client.any_connection().ask(MetadataRequest(topics=[]), MetadataResponse)
            assert {each.node_id for each in answer.brokers} == set(cluster.brokers)
            assert {each.host for each in answer.brokers} == {"localhost"}


def test_a_cluster_moves_to_kerberos_over_tls_without_a_lost_record(realm: Realm, tmp_path: Path) -> None:
    authority = Identity("CN=authority")
    (tmp_path / "authority.pem").write_text(authority.certificate_pem)
    keytab, clients = realm.add("kafka/localhost"), realm.add("alice")
    with a_cluster(tmp_path / "cluster", 3) as cluster:
        cluster.create_topic("t", replicas=REPLICAS)
        history = History()
        with a_writer(cluster, "t", history, partitions=3) as writer:
            writer.go_on_for(100)
            for broker, port in zip(cluster.brokers.values(), free_ports(3), strict=True):
                plain = broker.properties["listeners"]
                broker.properties["listeners"] = f"{plain},SECURE://127.0.0.1:{port}"
                broker.properties["advertised.listeners"] = f"{plain},SECURE://localhost:{port}"
                broker.properties |= secure_listener(tmp_path, authority, broker.id, keytab)
            roll(cluster, {})
            roll(cluster, {"inter.broker.listener.name": "SECURE", **AUTHORIZER, "super.users": "User:kafka"})
            allow_on_cluster(cluster, "User:other", AclOperation.CLUSTER_ACTION)  # only brokers by their tickets may go on
            writer.go_on_for(1000)  # longer than a session between brokers
            cluster.broker(cluster.controller_id()).restart()
            cluster.wait_until_registered()
            wait_until_in_sync(cluster)
            writer.go_on_for(100)
            ask_by_keytab(cluster, tmp_path, clients)
        read_all(cluster, "t", history, partitions=3)
        assert history.violations() == []
        said = "".join(broker.log() for broker in cluster.brokers.values())
        assert "ERROR" not in said
        assert "Traceback" not in said
