"""Prepares the metadata store for a broker that starts: paths, cluster id, the broker's registration."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from ottla.config.schema.metadata_version import is_at_least
from ottla.controller.errors import BrokerIdInUse, NodeExists, NoNode, SessionExpired, StoreError
from ottla.controller.store.metadata_store import Create, Get, MetadataStore, Multi, SetData, WatchedEvent, data_and_stat, parent_of
from ottla.controller.znodes.layout import (
    BROKER_SEQUENCE_ID,
    CLUSTER_ID,
    PERSISTENT_PATHS,
    BrokerRegistration,
    Endpoint,
    broker_id_path,
    decode_broker,
    decode_cluster_id,
    encode_broker,
    encode_cluster_id,
)
from ottla.controller.znodes.topic_ids import random_uuid
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.protocol.uuid import to_text

logger = logging.getLogger(__name__)

RandomBytes = Callable[[int], bytes]
T = TypeVar("T")
IsListening = Callable[[str, int], Awaitable[bool]]
"""(host, port) -> whether a process listens at this address."""


_BODIES = ((5, "2.7-IV0"), (4, "0.10.0-IV1"))
_OLDEST_BODY = 2


def registration_version(inter_broker_protocol_version: str) -> int:
    """The version of the body in which a broker registers, so that all brokers of the cluster can read it."""
    return next((version for version, since in _BODIES if is_at_least(inter_broker_protocol_version, since)), _OLDEST_BODY)


def startup_paths() -> list[str]:
    """The persistent paths with their parents, each once, in the order in which Kafka creates them."""
    paths: dict[str, None] = {}
    for path in PERSISTENT_PATHS:
        if parent_of(path) != "/":
            paths[parent_of(path)] = None
        paths[path] = None
    return list(paths)


async def in_session(store: MetadataStore, work: Callable[[], Awaitable[T]]) -> T:
    """The result of `work`, which is repeated from its beginning in a new session if the session ends meanwhile.

    A session can end while the process is suspended for too long. For the start of a broker; Apache Kafka's client also begins the next
    session by itself.
    """
    while True:
        try:
            await store.open_session()
            return await work()
        except SessionExpired:
            logger.warning("the session with the metadata store ended while this broker starts; it goes on in a new one")


async def prepare_store(store: MetadataStore, random_bytes: RandomBytes) -> str:
    """Create the paths of a cluster where they are missing, and return the cluster id, which the first broker
    generates."""
    outcomes = await store.pipeline([*(Create(path) for path in startup_paths()), Get(CLUSTER_ID)])
    for outcome in outcomes[:-1]:
        if isinstance(outcome, StoreError) and not isinstance(outcome, NodeExists):
            raise outcome
    found = outcomes[-1]
    if isinstance(found, NoNode):
        invented = encode_cluster_id(new_cluster_id(random_bytes))
        # Another broker may do the same at this moment: the id that is stored afterwards is the cluster's.
        found = (await store.pipeline([Create(parent_of(CLUSTER_ID)), Create(CLUSTER_ID, invented), Get(CLUSTER_ID)]))[-1]
    return decode_cluster_id(data_and_stat(found)[0])


def new_cluster_id(random_bytes: RandomBytes) -> str:
    """A random UUID as Kafka prints it."""
    return to_text(random_uuid(random_bytes))


async def never_listening(host: str, port: int) -> bool:
    """The default for callers without network access: no process listens."""
    return False


async def stored_cluster_id(store: MetadataStore) -> str | None:
    """The cluster id in the store; None if there is none yet."""
    (found,) = await store.pipeline([Get(CLUSTER_ID)])
    return None if isinstance(found, NoNode) else decode_cluster_id(data_and_stat(found)[0])


async def check_id_is_free(
    store: MetadataStore,
    broker_id: int,
    own_addresses: Collection[tuple[str, int]],
    own_listeners: Iterable[tuple[str, int]],
    is_listening: IsListening,
    patience_s: float,
) -> None:
    """Raise BrokerIdInUse if a live broker uses this id; called before log directories are marked with the id.

    `own_addresses` are those that this broker will register, `own_listeners` those that it will bind. A proxy may
    listen at the former on behalf of this broker, but only another broker listens at the latter. Waits up to
    `patience_s` for the id, because a broker that died a moment ago may have left the registration.
    """
    path = broker_id_path(broker_id)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while True:
        gone = asyncio.Event()
        (found,) = await store.pipeline([Get(path, partial(_on_change, gone))])
        if isinstance(found, NoNode):
            return
        data, stat = data_and_stat(found)
        if stat.ephemeral_owner == store.session_id:
            return
        registered = {(endpoint.host, endpoint.port) for endpoint in _endpoints(path, data)}
        for host, port in [*(registered - {*own_addresses}), *(own_listeners if registered & {*own_addresses} else ())]:
            if await is_listening(host, port):
                raise _id_in_use(broker_id, stat.ephemeral_owner)
        if not patience_s:
            return  # no process listens there: the registration ends with its session, for which `register_broker` waits
        if loop.time() >= deadline:
            raise _id_in_use(broker_id, stat.ephemeral_owner)
        logger.info(
            "waiting up to %.1f s for the registration at %s to end, as no process listens at its address", deadline - loop.time(), path
        )
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await gone.wait()


async def register_broker(
    store: MetadataStore,
    broker_id: int,
    registration: BrokerRegistration,
    patience_s: float = 0.0,
    is_listening: IsListening = never_listening,
) -> int:
    """Create /brokers/ids/N and return the broker epoch.

    A broker that restarts right after a crash finds its own earlier registration. It waits up to `patience_s` for that
    session to end, where Apache Kafka gives up. Raises BrokerIdInUse when another broker is alive at the registered
    address, or the node remains; StoreError when the store refuses the node.
    """
    path = broker_id_path(broker_id)
    create = Multi((Create(path, None, ephemeral=True), SetData(path, encode_broker(registration))))
    loop = asyncio.get_running_loop()
    deadline: float | None = None
    while True:
        gone = asyncio.Event()
        refused, found = await store.pipeline([create, Get(path, partial(_on_change, gone))])
        if isinstance(found, NoNode):
            if isinstance(refused, StoreError) and not isinstance(refused, NodeExists):
                raise refused
            continue  # deleted between the two requests
        data, stat = data_and_stat(found)
        if stat.ephemeral_owner == store.session_id:
            if isinstance(refused, StoreError) and not isinstance(refused, NodeExists):
                raise refused
            logger.info("registered broker %d at %s, broker epoch %d", broker_id, path, stat.czxid)
            return stat.czxid
        if deadline is None:
            deadline = loop.time() + patience_s
            if patience_s and await _is_another(path, data, registration, is_listening):
                deadline = loop.time()
        if loop.time() >= deadline:
            raise _id_in_use(broker_id, stat.ephemeral_owner)
        logger.info(
            "%s is held by session %#x, which broker %d left behind when it died; waiting up to %.1f s for it to end",
            path, stat.ephemeral_owner & (2**64 - 1), broker_id, deadline - loop.time(),
        )  # fmt: skip
        try:
            async with asyncio.timeout_at(deadline):
                await gone.wait()
        except TimeoutError:
            continue


def _id_in_use(broker_id: int, session_id: int) -> BrokerIdInUse:
    return BrokerIdInUse(
        f"{broker_id_path(broker_id)} is held by another session ({session_id & (2**64 - 1):#x}): another broker with "
        f"broker.id={broker_id} is running; give every broker its own id"
    )


def _on_change(gone: asyncio.Event, _: WatchedEvent) -> None:
    gone.set()


async def _is_another(path: str, data: bytes | None, own: BrokerRegistration, is_listening: IsListening) -> bool:
    """Whether the registered broker is alive: a process listens at its address, and the address is not one of this
    broker, which has bound its own already."""
    ours = {(endpoint.host, endpoint.port) for endpoint in own.endpoints}
    for endpoint in _endpoints(path, data):
        if (endpoint.host, endpoint.port) not in ours and await is_listening(endpoint.host, endpoint.port):
            return True
    return False


def _endpoints(path: str, data: bytes | None) -> tuple[Endpoint, ...]:
    """The addresses in a registration; none in a malformed one, whose session may be about to end like that of any other."""
    try:
        return decode_broker(path, data).endpoints
    except MalformedZNode as error:
        logger.error("the addresses of a registered broker are not known: %s", error)
        return ()


async def next_broker_sequence(store: MetadataStore) -> int:
    """A number that no broker of the cluster had before, for brokers without a broker.id: the version of /brokers/seqid
    after a write."""
    return (await store.set(BROKER_SEQUENCE_ID, b"")).version
