"""Brokers of Apache Kafka and of Ottla with one identity at ZooKeeper protect the same nodes alike, and change what the others made."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ottla.controller.store.zookeeper_wire import SENSITIVE_PATHS, acls
from tests.support.apache_kafka import ApacheKafka
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import eventually
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.serve_command import refused
from tests.support.zookeeper import ZooKeeperServer, a_zookeeper

pytestmark = [*needs_apache_kafka, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]  # JVMs, on a busy machine

MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
SUPER = "super:super-secret"
BOTH = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "token-secret",
    "zookeeper.set.acl": "true",
    "offsets.topic.replication.factor": "1",
}
APACHE, OURS = 0, 1
SECONDS = 60


def a_jaas_file(folder: Path) -> Path:
    """For the server and for its clients."""
    path = folder / "jaas"
    path.write_text(
        f'Server {{ {MODULE} required user_broker="zk-secret"; }};\n'
        f'Client {{ {MODULE} required username="broker" password="zk-secret"; }};\n'
    )
    return path


@contextmanager
def a_protected_cluster(folder: Path) -> Iterator[tuple[ZooKeeperServer, ApacheKafka]]:
    """A broker of Apache Kafka that logs in at its ZooKeeper by SASL."""
    digest = base64.b64encode(hashlib.sha1(SUPER.encode()).digest()).decode()
    options = (
        f"-Djava.security.auth.login.config={a_jaas_file(folder)} "
        f"-Dzookeeper.DigestAuthenticationProvider.superDigest={SUPER.partition(':')[0]}:{digest}"
    )
    sasl = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    with pytest.MonkeyPatch.context() as patches:
        patches.setenv("JAVA_TOOL_OPTIONS", options)
        with a_zookeeper(folder, sasl) as server, ApacheKafka(folder / "apache", 1, BOTH, zookeeper=server) as apache:
            patches.delenv("JAVA_TOOL_OPTIONS")
            yield server, apache


def done(futures: dict[object, object]) -> None:
    for future in futures.values():
        future.result(SECONDS)  # type: ignore[attr-defined]  # of confluent-kafka


def write_nodes_of_all_kinds(bootstrap: str) -> None:
    """A topic with a configuration, a user, a dynamic configuration of the broker, and ACLs of both kinds of names."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    done(admin.create_topics([NewTopic("theirs", 1, 1, config={"retention.ms": "1000000"})]))
    done(
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"alice-secret")]
        )
    )
    entry = ConfigEntry("log.cleaner.threads", "2", incremental_operation=AlterConfigOpType.SET)
    done(admin.incremental_alter_configs([ConfigResource(ResourceType.BROKER, str(APACHE), incremental_configs=[entry])]))
    rights = (AclOperation.READ, AclPermissionType.ALLOW)
    kinds = (ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED)
    done(admin.create_acls([AclBinding(ResourceType.TOPIC, "theirs", kind, "User:alice", "*", *rights) for kind in kinds]))


def protection(server: ZooKeeperServer) -> dict[str, set[tuple[str, str, int]]]:
    """The ACLs of all nodes; without those that go meanwhile, as the nodes of a topic that is being deleted do."""
    client = KazooClient(server.connect, auth_data=[("digest", SUPER)])
    client.start()
    try:
        found = {}
        paths = [f"/{name}" for name in client.get_children("/") if name != "zookeeper"]
        for path in paths:
            with suppress(NoNodeError):
                found[path] = {(each.id.scheme, each.id.id, each.perms) for each in client.get_acls(path)[0]}
                paths += [f"{path}/{name}" for name in client.get_children(path)]
    finally:
        client.stop()
        client.close()
    return found


def ours_of(path: str) -> set[tuple[str, str, int]]:
    """The ACLs that our store gives to a node; ZooKeeper puts the client's identity in the place of its creator."""
    return {
        ("sasl", "broker", each.perms) if each.id.scheme == "auth" else (each.id.scheme, each.id.id, each.perms)
        for each in acls(path, True)
    }


def our_broker(folder: Path, server: ZooKeeperServer) -> dict[str, str]:
    return {
        **BOTH,
        "broker.id": str(OURS),
        "broker.rack": "r1",
        "zookeeper.connect": server.connect,
        "ottla.jaas.file": str(folder / "jaas"),
    }


def check_that_each_changes_what_the_other_made(ours: InProcessBroker, apache: ApacheKafka) -> None:
    for maker, changer, topic in ((ours.bootstrap, apache.bootstrap, "a"), (apache.bootstrap, ours.bootstrap, "b")):
        first, second = AdminClient({"bootstrap.servers": maker}), AdminClient({"bootstrap.servers": changer})
        done(first.create_topics([NewTopic(topic, 1, 2)]))
        eventually(lambda second=second, topic=topic: topic in second.list_topics(timeout=SECONDS).topics)
        done(second.create_partitions([NewPartitions(topic, 2)]))
        done(second.delete_topics([topic]))
        eventually(lambda first=first, topic=topic: topic not in first.list_topics(timeout=SECONDS).topics)


@pytest.mark.soak
def test_brokers_of_both_kinds_protect_nodes_alike_and_another_identity_is_refused(tmp_path: Path) -> None:
    with a_protected_cluster(tmp_path) as (server, apache):
        write_nodes_of_all_kinds(apache.bootstrap)
        found = protection(server)
        assert {path: rights for path, rights in found.items() if rights != ours_of(path)} == {}
        assert {
            "/consumers",
            "/config/users/alice",
            f"/config/brokers/{APACHE}",
            "/brokers/topics/theirs/partitions/0/state",
        } <= found.keys()
        assert {"/kafka-acl/Topic/theirs", "/kafka-acl-extended/prefixed/Topic/theirs", "/delegation_token/tokens"} <= found.keys()
        assert any(found[path] == {("sasl", "broker", 31)} for path in SENSITIVE_PATHS)
        properties = our_broker(tmp_path, server)
        with a_broker_in_process(tmp_path / "ours", **properties) as ours:
            eventually(lambda: protection(server).keys() >= {f"/brokers/ids/{each}" for each in (APACHE, OURS)})
            check_that_each_changes_what_the_other_made(ours, apache)
            assert {path: rights for path, rights in protection(server).items() if rights != ours_of(path)} == {}
        del properties["ottla.jaas.file"]
        foreign = {**properties, "ottla.zookeeper.auth": "broker:zk-secret", "listeners": "PLAINTEXT://127.0.0.1:0"}
        said = refused(tmp_path, *(f"{name}={value}" for name, value in foreign.items()), f"log.dirs={tmp_path}/foreign")
        assert said.startswith(
            "ottla: ottla.zookeeper.auth=[hidden]: ZooKeeper does not let this broker change /admin, /brokers, /cluster and "
        )
