"""A broker that is started wrongly beside a cluster ends with status 1 and one line, and neither its data nor the cluster notices."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, a_cluster
from tests.support.cluster_clients import a_writer, read_all
from tests.support.history import History
from tests.support.serve_command import refused, tree
from tests.support.zookeeper import a_chroot

pytestmark = [pytest.mark.java, pytest.mark.slow]
_numbers = count(1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with a_cluster(tmp_path_factory.mktemp("brokers"), 3, zookeeper=a_chroot()) as running:
        running.create_topic("t", replicas=[[0, 1, 2]])
        yield running


def settings(cluster: Cluster, of: int, **changed: str) -> list[str]:
    """Those of a broker, on another port, with some of them changed."""
    properties = {**cluster.broker(of).properties, "listeners": "PLAINTEXT://127.0.0.1:0"}
    properties.pop("advertised.listeners", None)
    properties |= {name.replace("_", "."): value for name, value in changed.items()}
    return [f"{name}={value}" for name, value in properties.items()]


def assert_it_works(cluster: Cluster) -> None:
    """Three brokers, and nothing lost."""
    cluster.wait_until_registered(0, 1, 2)
    cluster.wait_until_isr_is("t", 0, 0, 1, 2)
    name = f"w{next(_numbers)}"
    history = History()
    cluster.create_topic(name, replicas=[[0, 1, 2]])
    with a_writer(cluster, name, history) as writer:
        writer.go_on_for(20)
    read_all(cluster, name, history)
    assert history.violations() == []


def test_two_brokers_on_one_directory_are_one_too_many(cluster: Cluster, tmp_path: Path) -> None:
    said = refused(tmp_path, *settings(cluster, 1, broker_id="7"))
    assert "another broker uses this log directory" in said
    assert str(cluster.broker(1).data) in said
    cluster.wait_until_registered(0, 1, 2)


def test_a_second_broker_with_an_id_that_is_taken_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    said = refused(tmp_path, *settings(cluster, 1, log_dirs=str(tmp_path / "data")))
    assert "/brokers/ids/1 is held by another session" in said
    assert "broker.id=1" in said
    assert [path.name for path in (tmp_path / "data").iterdir()] == [".lock"]
    cluster.wait_until_registered(0, 1, 2)


@pytest.mark.parametrize("wrong", ["chroot", "cluster.id"])
def test_a_directory_of_another_cluster_is_refused_and_stays_as_it_was(cluster: Cluster, tmp_path: Path, wrong: str) -> None:
    broker = cluster.broker(2)
    assert broker.stop() == 0
    meta = broker.data / "meta.properties"
    right = meta.read_text()
    changed = {}
    if wrong == "chroot":
        changed["zookeeper_connect"] = a_chroot()
    else:
        meta.write_text(
            "".join("cluster.id=somebodyelse0000000000\n" if "cluster.id" in line else f"{line}\n" for line in right.splitlines())
        )
    before = tree(broker.data)
    said = refused(tmp_path, *settings(cluster, 2, **changed))
    assert f"{meta}: cluster.id is " in said
    assert "belongs to another cluster" in said
    assert tree(broker.data) == before
    meta.write_text(right)
    broker.start()
    assert_it_works(cluster)
