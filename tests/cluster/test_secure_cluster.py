"""Three brokers move from PLAINTEXT to SASL_SSL between each other, one listener at a time, while clients go on."""

from __future__ import annotations

import re
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.support.broker_process import eventually
from tests.support.certificates import Identity
from tests.support.cluster import Cluster, a_cluster
from tests.support.cluster_clients import a_writer, read_all
from tests.support.history import History

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
LOGIN = f'{MODULE} required username="broker" password="broker-secret";'
REPLICAS = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]


def secure_listener(authority: Identity) -> dict[str, str]:
    """A listener SECURE of a broker with a certificate of its own."""
    identity = Identity("CN=broker", authority)
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
        "listener.name.secure.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.secure.scram-sha-512.sasl.jaas.config": LOGIN,
        "listener.name.secure.connections.max.reauth.ms": "3000",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": identity.key_pem(),
        "ssl.keystore.certificate.chain": identity.certificate_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.certificate_pem,
    }


def make_user(cluster: Cluster, name: str, password: str) -> None:
    """By AlterUserScramCredentials."""
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(name, credential, password.encode())
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for done in admin.alter_user_scram_credentials([change]).values():
        done.result(30)


def allow_on_cluster(cluster: Cluster, user: str, operation: AclOperation) -> None:
    """An ACL of the cluster. From the first one on, other users may do nothing with it."""
    acl = AclBinding(
        ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, user, "*", operation, AclPermissionType.ALLOW
    )  # fmt: skip
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for done in admin.create_acls([acl]).values():
        done.result(30)


def roll(cluster: Cluster, **changes: str) -> None:
    """Restart one broker after the other with changed properties, whose names have underscores for dots."""
    for broker in cluster.brokers.values():
        wait_until_in_sync(cluster)
        broker.properties.update({name.replace("_", "."): value for name, value in changes.items()})
        broker.restart()
    cluster.wait_until_registered()
    wait_until_in_sync(cluster)


def wait_until_in_sync(cluster: Cluster) -> None:
    for partition in range(len(REPLICAS)):
        cluster.wait_until_isr_is("t", partition, 0, 1, 2)


def test_a_cluster_is_moved_to_sasl_ssl_one_listener_at_a_time_without_a_lost_record(tmp_path: Path) -> None:
    authority = Identity("CN=authority")
    with a_cluster(tmp_path, 3) as cluster:
        cluster.create_topic("t", replicas=REPLICAS)
        make_user(cluster, "broker", "broker-secret")
        history = History()
        with a_writer(cluster, "t", history, partitions=3) as writer:
            writer.go_on_for(100)
            for broker in cluster.brokers.values():
                broker.properties["listeners"] += ",SECURE://127.0.0.1:0"
                broker.properties |= secure_listener(authority)
            roll(cluster)
            writer.go_on_for(100)
            roll(cluster, inter_broker_listener_name="SECURE")
            writer.go_on_for(100)
            roll(
                cluster,
                authorizer_class_name="kafka.security.authorizer.AclAuthorizer",
                super_users="User:broker",
                allow_everyone_if_no_acl_found="true",
            )
            allow_on_cluster(cluster, "User:other", AclOperation.CLUSTER_ACTION)
            writer.go_on_for(1000)  # longer than a session between brokers
            cluster.broker(cluster.controller_id()).restart()
            cluster.wait_until_registered()
            wait_until_in_sync(cluster)
            writer.go_on_for(100)
        read_all(cluster, "t", history, partitions=3)
        assert history.violations() == []
        said = "".join(broker.log() for broker in cluster.brokers.values())
        assert "authenticated as User:broker" not in said
        assert "secret" not in said
        assert "ERROR" not in said


def test_a_broker_without_cluster_action_says_so_in_few_lines_and_is_in_sync_once_it_is_granted(tmp_path: Path) -> None:
    with a_cluster(
        tmp_path, 2, authorizer_class_name="kafka.security.authorizer.AclAuthorizer", allow_everyone_if_no_acl_found="true"
    ) as cluster:
        cluster.create_topic("t", replicas=[[0, 1]] * 20)
        cluster.wait_until_isr_is("t", 0, 0, 1)
        allow_on_cluster(cluster, "User:ANONYMOUS", AclOperation.ALTER)
        told = re.compile(r"ERROR.*ClusterAction")
        eventually(lambda: told.search(cluster.broker(1).log()) is not None, 30, "the follower says what is missing")
        assert len(told.findall(cluster.broker(1).log())) <= 4
        allow_on_cluster(cluster, "User:ANONYMOUS", AclOperation.CLUSTER_ACTION)
        for partition in range(20):
            cluster.wait_until_isr_is("t", partition, 0, 1)
