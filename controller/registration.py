"""What every broker does in the metadata store when it starts, before it may become controller: paths, cluster id, its own registration."""

import logging
from collections.abc import Callable

from controller.errors import BrokerIdInUse, NodeExists, NoNode, StoreError
from controller.store import Create, Get, MetadataStore, Multi, SetData, data_and_stat, parent_of
from controller.topic_ids import random_uuid
from controller.znodes import (
    BROKER_SEQUENCE_ID,
    CLUSTER_ID,
    PERSISTENT_PATHS,
    BrokerRegistration,
    broker_id_path,
    decode_cluster_id,
    encode_broker,
    encode_cluster_id,
)
from protocol.uuid import to_text

logger = logging.getLogger(__name__)

RandomBytes = Callable[[int], bytes]


def startup_paths() -> list[str]:
    """The persistent paths with their parents, each once, in the order in which Kafka comes to create them."""
    paths: dict[str, None] = {}
    for path in PERSISTENT_PATHS:
        if parent_of(path) != "/":
            paths[parent_of(path)] = None
        paths[path] = None
    return list(paths)


async def prepare_store(store: MetadataStore, random_bytes: RandomBytes) -> str:
    """Make the paths of a cluster where they are missing, and return the cluster's id, which the first broker invents."""
    outcomes = await store.pipeline([*(Create(path) for path in startup_paths()), Get(CLUSTER_ID)])
    for outcome in outcomes[:-1]:
        if isinstance(outcome, StoreError) and not isinstance(outcome, NodeExists):
            raise outcome
    found = outcomes[-1]
    if isinstance(found, NoNode):
        invented = encode_cluster_id(new_cluster_id(random_bytes))
        # Another broker may be doing the same at this moment: the id that stands there afterwards is the cluster's.
        found = (await store.pipeline([Create(parent_of(CLUSTER_ID)), Create(CLUSTER_ID, invented), Get(CLUSTER_ID)]))[-1]
    return decode_cluster_id(data_and_stat(found)[0])


def new_cluster_id(random_bytes: RandomBytes) -> str:
    """A random UUID as Kafka prints it."""
    return to_text(random_uuid(random_bytes))


async def register_broker(store: MetadataStore, broker_id: int, registration: BrokerRegistration) -> int:
    """Create /brokers/ids/N and return the broker epoch. Raises BrokerIdInUse when another session holds it."""
    path = broker_id_path(broker_id)
    create = Multi((Create(path, None, ephemeral=True), SetData(path, encode_broker(registration))))
    refused, found = await store.pipeline([create, Get(path)])
    _, stat = data_and_stat(found)
    if stat.ephemeral_owner != store.session_id:
        raise BrokerIdInUse(
            f"{path} is held by another session ({stat.ephemeral_owner:#x}): another broker with broker.id={broker_id} is running, "
            "or one that died has not timed out yet; give every broker its own id"
        )
    if isinstance(refused, StoreError) and not isinstance(refused, NodeExists):
        raise refused
    logger.info("registered broker %d at %s, broker epoch %d", broker_id, path, stat.czxid)
    return stat.czxid


async def next_broker_sequence(store: MetadataStore) -> int:
    """A number no broker of the cluster had before, for brokers without a broker.id: every write of /brokers/seqid takes a version."""
    return (await store.set(BROKER_SEQUENCE_ID, b"")).version
