"""A broker that ZooKeeper knows by another identity than the other brokers does not start, and has changed nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import CREATOR_ALL_ACL, READ_ACL_UNSAFE

from tests.support.serve_command import refused, serving
from tests.support.zookeeper import a_chroot

pytestmark = pytest.mark.java

FIRST, OTHER = "kafka:first-secret", "kafka:other-secret"


def broker(folder: Path, connect: str, broker_id: int, login: str | None, **more: str) -> list[str]:
    """Settings of a broker, protecting its nodes if it has a login."""
    protected = [] if login is None else [f"ottla.zookeeper.auth={login}", "zookeeper.set.acl=true"]
    return [
        f"broker.id={broker_id}",
        f"log.dirs={folder}/data-{broker_id}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        f"zookeeper.connect={connect}",
        *protected,
        *(f"{name.replace('_', '.')}={value}" for name, value in more.items()),
    ]


@contextmanager
def a_client(connect: str, login: str) -> Iterator[KazooClient]:
    client = KazooClient(connect, auth_data=[("digest", login)])
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def nodes(connect: str) -> dict[str, tuple[int, int]]:
    """When each node was changed, and how often its children were."""
    found = {}
    with a_client(connect, FIRST) as client:
        paths = ["/"]
        for path in paths:
            stat = client.exists(path)
            found[path] = (stat.mzxid, stat.cversion)
            paths += [f"{path.rstrip('/')}/{name}" for name in client.get_children(path)]
    return found


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_broker_without_the_identity_of_the_cluster_ends_at_the_start_and_changes_nothing(tmp_path: Path) -> None:
    connect = a_chroot()
    with serving(tmp_path, *broker(tmp_path, connect, 0, FIRST)):
        before = nodes(connect)
        wrong = refused(tmp_path, *broker(tmp_path, connect, 1, OTHER))
        none = refused(tmp_path, *broker(tmp_path, connect, 1, None))
        assert nodes(connect) == before
    what = "ZooKeeper does not let this broker change /admin, /brokers, /cluster and "
    assert wrong.startswith(f"ottla: ottla.zookeeper.auth=[hidden]: {what}")
    assert none.startswith(f"ottla: zookeeper.connect={connect} without a login: {what}")
    for said in (wrong, none):
        assert "which belong to another identity: all brokers of a cluster need the same scheme and name: ottla.zookeeper.auth, " in said
    assert files(tmp_path / "data-1") == [".lock"]


def test_a_broker_whose_identity_has_changed_ends_at_the_start_and_its_directory_stays(tmp_path: Path) -> None:
    connect = a_chroot()
    with serving(tmp_path, *broker(tmp_path, connect, 0, FIRST)):
        pass
    before = files(tmp_path / "data-0")
    assert "does not let this broker change /admin, /brokers, " in refused(tmp_path, *broker(tmp_path, connect, 0, OTHER))
    assert files(tmp_path / "data-0") == before
    with serving(tmp_path, *broker(tmp_path, connect, 0, FIRST)) as running:
        assert running.line.startswith("ottla is ready: ")


def test_the_registrations_of_running_brokers_are_enough_where_all_else_is_open(tmp_path: Path) -> None:
    """Both would start, and the first topic that one makes could not be changed by the other as its controller."""
    connect = a_chroot()
    with serving(tmp_path, *broker(tmp_path, connect, 0, None)):
        pass
    with serving(tmp_path, *broker(tmp_path, connect, 0, FIRST)):
        said = refused(tmp_path, *broker(tmp_path, connect, 1, OTHER))
        assert "does not let this broker change /controller, /brokers/ids/0, which belong to another identity" in said
        with serving(tmp_path, *broker(tmp_path, connect, 2, FIRST)) as same:
            assert same.line.startswith("ottla is ready: ")


def test_acls_of_another_identity_end_the_start_of_a_broker_with_an_authorizer(tmp_path: Path) -> None:
    connect = a_chroot()
    with serving(tmp_path, *broker(tmp_path, connect, 0, None)):
        pass
    with a_client(connect, FIRST) as client:
        client.create("/kafka-acl-changes", acl=[*CREATOR_ALL_ACL, *READ_ACL_UNSAFE])
    authorizer = {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer"}
    said = refused(tmp_path, *broker(tmp_path, connect, 0, OTHER, **authorizer))
    assert "does not let this broker change /kafka-acl-changes, which belong to another identity" in said
    with serving(tmp_path, *broker(tmp_path, connect, 0, FIRST, **authorizer)) as running:
        assert running.line.startswith("ottla is ready: ")
