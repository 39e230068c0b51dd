"""Brokers of Apache Kafka and of Ottla share their ACLs: an ACL that one of them creates or deletes counts for all, both ways."""

from pathlib import Path

import pytest

from tests.support.acl_requests import (
    ALL,
    ANONYMOUS,
    AUTHORIZER,
    CLUSTER,
    DENY,
    GROUP,
    LITERAL,
    PREFIXED,
    TOPIC,
    TRANSACTIONAL_ID,
    create,
    creation,
    delete,
    described,
)
from tests.support.apache_kafka import run_tool
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import eventually
from tests.support.cluster import a_cluster
from tests.support.cluster_stores import needs_zookeeper_store
from tests.support.mixed_cluster import APACHE, a_mixed_cluster
from tests.support.wire_client import WireClient, a_wire_client

pytestmark = [*needs_apache_kafka, needs_zookeeper_store, pytest.mark.slow, pytest.mark.timeout(300)]  # JVMs, on a busy machine

CONFIG = {"authorizer.class.name": AUTHORIZER, "super.users": ANONYMOUS}
DONE = (0, "")
FAILED = (42, "Failed to create ACL")


def acls_of(client: WireClient) -> set[object]:
    """All ACLs that the broker knows, in no order."""
    return {(resource_type, name, pattern, *acl) for resource_type, name, pattern, acls in described(client) for acl in acls}


@pytest.mark.soak
def test_brokers_of_both_kinds_share_their_acls(tmp_path: Path) -> None:
    with a_mixed_cluster(tmp_path, config=CONFIG) as cluster:
        ports = cluster.broker(0).port, cluster.broker(1).port, cluster.broker(APACHE).port
        with a_wire_client(ports[0]) as ours, a_wire_client(ports[1]) as our_other, a_wire_client(ports[2]) as theirs:
            clients = (ours, our_other, theirs)
            for client, name in (ours, "a"), (theirs, "b"):
                assert create(
                    client,
                    creation(TOPIC, name),
                    creation(TOPIC, "shared", principal=f"User:{name}"),
                    creation(TOPIC, name, PREFIXED, operation=ALL),
                    creation(GROUP, f"g-{name}", host="10.0.0.9", permission_type=DENY),
                    creation(TRANSACTIONAL_ID, f"{name}:x", PREFIXED),
                    creation(CLUSTER, "kafka-cluster", principal=f"User:{name}", operation=7),
                    creation(TOPIC, "a/b"),
                    creation(TOPIC, "t", principal="nobody"),
                ) == [DONE] * 6 + [FAILED, (-1, None)]
            eventually(lambda: all(len(acls_of(client)) == 12 for client in clients))
            assert acls_of(ours) == acls_of(our_other) == acls_of(theirs)
            for client, name in (ours, "b"), (theirs, "a"):
                literal = {"resource_type_filter": TOPIC, "resource_name_filter": "shared", "pattern_type_filter": LITERAL}
                of_all_topics = {"resource_type_filter": TOPIC, "resource_name_filter": name, "principal_filter": "User:alice"}
                shared, named = delete(client, literal | {"principal_filter": f"User:{name}"}, of_all_topics)
                assert [acl[4] for acl in shared] == [f"User:{name}"]
                assert {acl[3] for acl in named} == {LITERAL, PREFIXED}
            eventually(lambda: all(len(acls_of(client)) == 6 for client in clients))
            assert acls_of(ours) == acls_of(our_other) == acls_of(theirs)


def test_the_tool_of_apache_kafka_adds_lists_and_removes_acls(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 2, **{name.replace(".", "_"): value for name, value in CONFIG.items()}) as cluster:

        def tool(*arguments: str) -> str:
            ended = run_tool("kafka.admin.AclCommand", "--bootstrap-server", cluster.broker(0).bootstrap, *arguments)
            assert ended.returncode == 0, ended
            return ended.stdout

        prefixed = ("--topic", "pre-", "--resource-pattern-type", "prefixed")
        assert "Adding ACLs for resource" in tool("--add", "--allow-principal", "User:alice", "--producer", *prefixed)
        match = ("--list", "--topic", "pre-1", "--resource-pattern-type", "match")
        listed = str(eventually(lambda: tool(*match).strip(), what="the broker that the tool asks next hears of the ACLs"))
        assert "resource `ResourcePattern(resourceType=TOPIC, name=pre-, patternType=PREFIXED)`" in listed
        for operation in ("WRITE", "DESCRIBE", "CREATE"):
            assert f"(principal=User:alice, host=*, operation={operation}, permissionType=ALLOW)" in listed
        tool("--remove", "--force", *prefixed)
        eventually(lambda: tool("--list").strip() == "", what="every broker hears that the ACLs are gone")
