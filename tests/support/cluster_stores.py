"""Names the metadata stores of a cluster, for tests that hold for each: `@each_store`, then `zookeeper=zookeeper_of(store)`."""

import importlib.util

import pytest

needs_zookeeper_store = pytest.mark.skipif(
    importlib.util.find_spec("ottla.broker.metadata_store") is None, reason="brokers can only keep their metadata in the embedded store"
)
each_store = pytest.mark.parametrize("store", ["embedded", pytest.param("zookeeper", marks=[pytest.mark.java, needs_zookeeper_store])])


def zookeeper_of(store: str) -> str | None:
    """The argument of `a_cluster`: None, or an unused path on a real ZooKeeper."""
    if store == "embedded":
        return None
    from tests.support.zookeeper import a_chroot

    return a_chroot()
