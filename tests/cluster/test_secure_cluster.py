"""Three brokers move from PLAINTEXT to SASL_SSL between each other, one listener at a time, while clients go on."""

from __future__ import annotations

import re
from pathlib import Path

from confluent_kafka.admin import AclOperation, AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.support.broker_process import eventually
from tests.support.certificates import Identity
from tests.support.cluster import Cluster, a_cluster
from tests.support.cluster_clients import a_writer, read_all
from tests.support.history import History
from tests.support.secure_cluster import AUTHORIZER, REPLICAS, allow_on_cluster, roll, secure_listeners, wait_until_in_sync


def make_user(cluster: Cluster, name: str, password: str) -> None:
    """By AlterUserScramCredentials."""
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(name, credential, password.encode())
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for done in admin.alter_user_scram_credentials([change]).values():
        done.result(30)


def test_a_cluster_is_moved_to_sasl_ssl_one_listener_at_a_time_without_a_lost_record(tmp_path: Path) -> None:
    authority = Identity("CN=authority")
    with a_cluster(tmp_path, 3) as cluster:
        cluster.create_topic("t", replicas=REPLICAS)
        make_user(cluster, "broker", "broker-secret")
        history = History()
        with a_writer(cluster, "t", history, partitions=3) as writer:
            writer.go_on_for(100)
            for broker in cluster.brokers.values():
                broker.properties["listeners"] += ",TLS://127.0.0.1:0,SECURE://127.0.0.1:0"
                broker.properties |= secure_listeners(tmp_path, authority, f"broker-{broker.id}")
            roll(cluster, {})
            writer.go_on_for(100)
            roll(cluster, {"inter.broker.listener.name": "SECURE", "control.plane.listener.name": "TLS"})
            writer.go_on_for(100)
            for broker in cluster.brokers.values():
                del broker.properties["control.plane.listener.name"]
            roll(cluster, AUTHORIZER)
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
