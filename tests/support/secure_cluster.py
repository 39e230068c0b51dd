"""Secures running clusters for tests: listeners with TLS and SCRAM, the user of the brokers, rolling restarts."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType, ResourceType

from tests.support.certificates import Identity
from tests.support.cluster import Cluster

SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
BROKER_LOGIN = f'{SCRAM_MODULE} required username="broker" password="broker-secret";'
AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:broker",
    "allow.everyone.if.no.acl.found": "true",
}
REPLICAS = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]


def secure_listeners(directory: Path, authority: Identity, name: str) -> dict[str, str]:
    """Listeners TLS and SECURE beside PLAINTEXT, for a broker of either kind, with a certificate of its own."""
    identity = Identity(f"CN={name}", authority)
    (directory / f"{name}.pem").write_text(identity.key_pem() + identity.certificate_pem)
    (directory / "authority.pem").write_text(authority.certificate_pem)
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL,SECURE:SASL_SSL",
        "listener.name.secure.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.secure.scram-sha-512.sasl.jaas.config": BROKER_LOGIN,
        "listener.name.secure.connections.max.reauth.ms": "3000",
        "listener.name.tls.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / f"{name}.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "authority.pem"),
    }


def allow_on_cluster(cluster: Cluster, user: str, operation: AclOperation) -> None:
    """An ACL of the cluster. From the first one on, other users may do nothing with it."""
    acl = AclBinding(ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, user, "*", operation, AclPermissionType.ALLOW)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for done in admin.create_acls([acl]).values():
        done.result(30)


def roll(cluster: Cluster, changes: dict[str, str], seconds: float = 60.0) -> None:
    """Restart one broker after the other with changed properties."""
    for broker in cluster.brokers.values():
        wait_until_in_sync(cluster, seconds)
        broker.properties.update(changes)
        broker.restart()
    cluster.wait_until_registered()
    wait_until_in_sync(cluster, seconds)


def wait_until_in_sync(cluster: Cluster, seconds: float = 60.0) -> None:
    """All brokers are in sync in all partitions of topic t."""
    for partition in range(len(REPLICAS)):
        cluster.wait_until_isr_is("t", partition, *cluster.brokers, seconds=seconds)
