"""ACLs in a ZooKeeper of their own (`authorizer.zookeeper.url`), and users that are added to ZooKeeper before the first start."""

from pathlib import Path

import pytest

from tests.support.acl_requests import ANONYMOUS, AUTHORIZER
from tests.support.broker_process import a_broker, eventually
from tests.support.command_line import CommandLine
from tests.support.in_process_broker import a_broker_in_process
from tests.support.zookeeper import a_chroot, shared_zookeeper

pytestmark = [pytest.mark.java, pytest.mark.slow]


def test_two_clusters_share_the_acls_of_one_zookeeper(tmp_path: Path) -> None:
    chroot = a_chroot()
    shared = {"authorizer.class.name": AUTHORIZER, "super.users": ANONYMOUS, "authorizer.zookeeper.url": chroot}
    with a_broker_in_process(tmp_path / "one", **shared) as one, a_broker_in_process(tmp_path / "other", **shared) as other:
        added = CommandLine(one.bootstrap)("acls", "add", "User:alice", "--operation", "read", "--topic", "orders")
        assert added.out == "allow User:alice from * to read topic orders: added\n"
        expected = [["topic", "orders", "literal", "User:alice", "*", "read", "allow"]]
        eventually(lambda: CommandLine(other.bootstrap)("acls", "list").rows == expected)
    tree = shared_zookeeper().tree(chroot[chroot.index("/") :])
    assert [path for path in tree if path.startswith("/kafka-acl/Topic/")] == ["/kafka-acl/Topic/orders"]
    assert "/brokers" not in tree


def test_a_user_is_added_to_zookeeper_before_the_first_broker_starts(tmp_path: Path) -> None:
    chroot = a_chroot()
    properties = tmp_path / "server.properties"
    properties.write_text(f"zookeeper.connect={chroot}\nlog.dirs={tmp_path / 'never-made'}\n", encoding="utf-8")
    ottla = CommandLine("127.0.0.1:1")
    assert ottla("users", "add", "broker", "--properties", str(properties), input="secret\n").out == "broker: added\n"
    assert not (tmp_path / "never-made").exists()
    with a_broker(tmp_path / "broker", zookeeper_connect=chroot) as broker:
        assert [row[:2] for row in CommandLine(broker.bootstrap)("users", "list").rows] == [
            ["broker", "SCRAM-SHA-256"],
            ["broker", "SCRAM-SHA-512"],
        ]
