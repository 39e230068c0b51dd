"""Reads the contents of a metadata store: the persistent nodes, and the counters behind sequential names.

Nodes of sessions (`/controller`, `/brokers/ids/N`), notifications, and nodes outside of Kafka's own tree are left out: brokers write them
again, and other programs may share the root of a ZooKeeper.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.controller.errors import NoNode, StoreError
from ottla.controller.store.metadata_store import (
    Children,
    Exists,
    Get,
    MetadataStore,
    Request,
    Result,
    data_and_stat,
    name_of,
    names,
    parent_of,
)
from ottla.controller.znodes.layout import (
    BROKER_IDS,
    BROKER_SEQUENCE_ID,
    CLUSTER_ID,
    CONFIG_CHANGE_PREFIX,
    ISR_CHANGE_NOTIFICATION,
    LOG_DIR_EVENT_NOTIFICATION,
    decode_cluster_id,
)
from ottla.controller.znodes.security import ACL_CHANGES, EXTENDED_ACL_CHANGES, SCRAM_SECRET, TOKEN_CHANGES

MARKER = "/ottla_transfer"
"""A node of the target: it exists from the first write of a transfer to the last one."""

KRAFT_MIGRATION = "/migration"
"""Apache Kafka's state of a migration to KRaft."""

SEQUENTIAL_PARENTS = (
    parent_of(CONFIG_CHANGE_PREFIX),
    ISR_CHANGE_NOTIFICATION,
    LOG_DIR_EVENT_NOTIFICATION,
    ACL_CHANGES,
    EXTENDED_ACL_CHANGES,
    TOKEN_CHANGES,
)
"""The parents of notifications: sequential nodes that are forgotten once all brokers have read them."""

_ROOTS = {
    "admin", "brokers", "cluster", "config", "consumers", "controller_epoch", "delegation_token", "feature", "isr_change_notification",
    "kafka-acl", "kafka-acl-changes", "kafka-acl-extended", "kafka-acl-extended-changes", "latest_producer_id_block",
    "log_dir_event_notification", name_of(SCRAM_SECRET),
}  # fmt: skip
"""The children of the root that belong to a cluster and outlive its brokers."""

_SESSION_ROOTS = {"controller", name_of(MARKER), name_of(KRAFT_MIGRATION), "zookeeper"}
"""Children of the root that are judged elsewhere, or are ZooKeeper's own."""

_READS_AT_ONCE = 1000
"""Nodes read in one pipeline: many enough to hide the latency, few enough to show progress."""

OnProgress = Callable[[int], None]
"""Called with the number of nodes read so far."""


class Found(NamedTuple):
    """A persistent node."""

    data: bytes | None
    version: int
    created: int
    """The number of children that it ever had; names of sequential children continue there."""


class State(NamedTuple):
    """The few facts of a store that decide whether it may be source or target."""

    cluster_id: str | None
    live_brokers: list[str]
    """The names below /brokers/ids, whose sessions have not ended."""
    marker: bytes | None
    """The body of an unfinished transfer into this store."""
    is_migrating: bool
    """Whether Apache Kafka has begun to migrate the cluster to KRaft."""


class Contents(NamedTuple):
    """The persistent nodes of a cluster by path, parents first, and what was left out."""

    nodes: dict[str, Found]
    ephemeral: list[str]
    sequential: list[str]
    foreign: list[str]
    """Children of the root that are not Kafka's."""

    def next_number(self, path: str) -> int:
        """The counter that must not go back: the version of /brokers/seqid, the next sequential number of a parent."""
        found = self.nodes.get(path)
        if found is None:
            return 0
        return found.version if path == BROKER_SEQUENCE_ID else found.created


async def read_state(store: MetadataStore) -> State:
    """Read the facts. Raises StoreError, MalformedZNode."""
    stored_id, ids, marker, migration = await store.pipeline([Get(CLUSTER_ID), Children(BROKER_IDS), Get(MARKER), Exists(KRAFT_MIGRATION)])
    if isinstance(migration, StoreError):
        raise migration
    return State(
        cluster_id=None if isinstance(stored_id, NoNode) else decode_cluster_id(data_and_stat(stored_id)[0]),
        live_brokers=[] if isinstance(ids, NoNode) else names(ids),
        marker=None if isinstance(marker, NoNode) else data_and_stat(marker)[0] or b"",
        is_migrating=migration is not None,
    )


async def read_contents(store: MetadataStore, on_progress: OnProgress = lambda _: None) -> Contents:
    """Read the tree level by level. Nodes that vanish meanwhile are left out. Raises StoreError."""
    roots = await store.children("/")
    contents = Contents({}, [], [], [f"/{name}" for name in roots if name not in _ROOTS | _SESSION_ROOTS])
    level = [f"/{name}" for name in roots if name in _ROOTS]
    while level:
        below: list[str] = []
        for begin in range(0, len(level), _READS_AT_ONCE):
            some = level[begin : begin + _READS_AT_ONCE]
            requests: list[Request] = [request for path in some for request in (Get(path), Children(path))]
            outcomes = await store.pipeline(requests)
            for place, path in enumerate(some):
                below += _take(contents, path, outcomes[2 * place], outcomes[2 * place + 1])
            on_progress(len(contents.nodes))
        level = below
    return contents


def _take(contents: Contents, path: str, got: Result | StoreError, listed: Result | StoreError) -> Sequence[str]:
    """Add one node to `contents`; returns the children to read next."""
    if isinstance(got, NoNode) or isinstance(listed, NoNode):
        return ()
    data, stat = data_and_stat(got)
    children = names(listed)
    if stat.ephemeral_owner:
        contents.ephemeral.append(path)
        return ()
    # ZooKeeper's cversion counts creations and deletions of children, and adds up to this with those that are left.
    contents.nodes[path] = Found(data, stat.version, (stat.cversion + len(children)) // 2)
    paths = [f"{path}/{name}" for name in children]
    if path in SEQUENTIAL_PARENTS:
        contents.sequential.extend(paths)
        return ()
    return paths
