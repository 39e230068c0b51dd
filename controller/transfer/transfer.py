"""Copies the metadata of a stopped cluster from one store to another, such that an interrupted copy can be repeated.

The first write marks the target (`MARKER`). The last write sets the cluster id and removes the mark, in one transaction. A broker of the
cluster that starts before finds no cluster id, creates one, and ends because its directories have another id. So no broker ever serves a
part of the metadata. Each round reads both stores and writes the differences; a round without differences completes the transfer.
"""

import json
from collections.abc import Callable
from typing import NamedTuple

from ottla.controller.errors import BadVersion, NodeExists, NoNode, NotEmpty, StoreError
from ottla.controller.store.metadata_store import ANY_VERSION, Create, Delete, MetadataStore, Multi, Write
from ottla.controller.transfer.contents import MARKER, Contents, State, read_contents, read_state
from ottla.controller.transfer.difference import Difference, difference, transactions
from ottla.controller.znodes.layout import CLUSTER_ID
from ottla.controller.znodes.znode_json import decode_object, encode_json

_TRANSACTIONS_AT_ONCE = 8
_MOST_ROUNDS = 5
"""Most rounds; a round repeats the writes that a broken connection prevented. More are needed only if another program writes, too."""

OnProgress = Callable[[str, int, int | None], None]
"""Called with the current step, the number done, and the total if it is known."""


class TransferRefused(Exception):
    """The transfer would do harm; nothing was written. The text is one line for the operator."""


class Side(NamedTuple):
    """A store with an open session, and its name in messages."""

    store: MetadataStore
    name: str
    sets_acls: bool = False
    """Whether nodes that this store creates are protected by ACLs."""


class Plan(NamedTuple):
    """The contents of a source, and the writes that the target needs."""

    cluster_id: str
    contents: Contents
    wanted: Difference
    is_resumed: bool
    is_complete: bool
    """Whether the target holds everything already, by an earlier transfer that was completed."""


async def check_source(source: Side) -> str:
    """The id of a cluster that can be transferred. Raises TransferRefused, StoreError, MalformedZNode."""
    state = await read_state(source.store)
    if state.marker is not None:
        raise TransferRefused(f"{source.name} is the target of an unfinished transfer: complete that first, by repeating its command")
    if state.cluster_id is None:
        raise TransferRefused(f"{source.name} holds no cluster: there is no {CLUSTER_ID}")
    await _refuse_brokers(source, state)
    return state.cluster_id


async def plan(source: Side, target: Side, on_progress: OnProgress) -> Plan:
    """Compare both sides. Raises TransferRefused, StoreError, MalformedZNode."""
    contents = await _read(source, on_progress)
    present = await _read(target, on_progress)
    # Asked after the trees: brokers that started meanwhile are seen.
    cluster_id = await check_source(source)
    state = await read_state(target.store)
    await _refuse_brokers(target, state)
    if state.cluster_id not in (None, cluster_id):
        raise TransferRefused(
            f"{target.name} holds cluster {state.cluster_id}, and {source.name} cluster {cluster_id}: "
            "choose an empty target, or delete that one"
        )
    wanted = difference(contents, present)
    is_complete = state.cluster_id is not None and state.marker is None
    if state.marker is not None:
        _check_marker(state.marker, cluster_id, target)
    elif present.nodes and (wanted or not is_complete):
        raise TransferRefused(
            f"{target.name} is not empty ({len(present.nodes)} nodes, {wanted.writes} differ), and no unfinished transfer filled it: "
            "choose an empty target, or delete that one"
        )
    return Plan(cluster_id, contents, wanted, state.marker is not None, is_complete)


async def transfer(source: Side, target: Side, on_progress: OnProgress) -> Plan:
    """Copy everything, and return the plan that the first round carried out.

    Raises TransferRefused, StoreError, MalformedZNode. After a StoreError the transfer can be repeated.
    """
    first = found = await plan(source, target, on_progress)
    if first.is_complete:
        return first
    if not first.is_resumed:
        await _mark(target, first.cluster_id)
    for _ in range(_MOST_ROUNDS):
        if not found.wanted:
            await _complete(target, found)
            return first
        await _write(found, target, on_progress)
        found = await plan(source, target, on_progress)
    raise TransferRefused(f"{target.name} differs again after {_MOST_ROUNDS} rounds: another program writes there, or to {source.name}")


async def _read(side: Side, on_progress: OnProgress) -> Contents:
    return await read_contents(side.store, lambda done: on_progress(f"reading {side.name}", done, None))


async def _refuse_brokers(side: Side, state: State) -> None:
    if state.is_migrating:
        raise TransferRefused(f"{side.name} belongs to a cluster whose migration to KRaft has begun")
    if state.live_brokers:
        alive = ", ".join(state.live_brokers)
        raise TransferRefused(f"{side.name} has live brokers ({alive}): stop all, and wait until the sessions of dead ones have ended")
    others = await side.store.other_sessions()
    if others:
        raise TransferRefused(f"{side.name} is used by {', '.join(others)}: stop all brokers of the cluster")


def _marker(cluster_id: str, target: Side) -> bytes:
    return encode_json({"version": 1, "cluster_id": cluster_id, "acls": target.sets_acls})


def _check_marker(marker: bytes, cluster_id: str, target: Side) -> None:
    """Raises TransferRefused unless this transfer is the one that left the mark."""
    body = decode_object(MARKER, marker)
    if body.get("cluster_id") != cluster_id:
        raise TransferRefused(
            f"{target.name} is the target of an unfinished transfer of cluster {body.get('cluster_id')}, not of {cluster_id}: "
            "complete that one, or delete the target"
        )
    if body.get("acls") != target.sets_acls:
        begun = json.dumps(body.get("acls"))
        raise TransferRefused(f"{target.name} was begun with zookeeper.set.acl={begun}: go on with the same value, or delete the target")


async def _mark(target: Side, cluster_id: str) -> None:
    marker = _marker(cluster_id, target)
    try:
        await target.store.create(MARKER, marker)
    except NodeExists:  # a reply that was lost, or another transfer at this moment
        _check_marker((await target.store.get(MARKER))[0] or b"", cluster_id, target)


async def _write(found: Plan, target: Side, on_progress: OnProgress) -> None:
    """Carry out the writes of a plan. Refused transactions are left to the next round. Raises StoreError."""
    total = found.wanted.writes
    done = 0
    some: list[Multi] = []
    for transaction in transactions(found.wanted, found.contents):
        some.append(transaction)
        if len(some) == _TRANSACTIONS_AT_ONCE:
            done += await _write_some(some, target)
            on_progress(f"writing {target.name}", min(done, total), total)
            some = []
    await _write_some(some, target)


async def _write_some(some: list[Multi], target: Side) -> int:
    for outcome in await target.store.pipeline(some):
        # After a lost connection a transaction may be sent twice, and the second is refused for what the first one did.
        if isinstance(outcome, StoreError) and not isinstance(outcome, NodeExists | BadVersion | NoNode | NotEmpty):
            raise outcome
    return sum(len(transaction.writes) for transaction in some)


async def _complete(target: Side, found: Plan) -> None:
    """Write the cluster id and remove the mark. Raises TransferRefused, StoreError."""
    data = found.contents.nodes[CLUSTER_ID].data
    writes: list[Write] = [Create(CLUSTER_ID, data), Delete(MARKER, ANY_VERSION)]
    try:
        await target.store.multi(writes)
    except (NodeExists, NoNode):
        state = await read_state(target.store)
        if state.marker is not None or state.cluster_id != found.cluster_id:
            raise TransferRefused(
                f"{target.name} got another {CLUSTER_ID} at the last moment: a broker was started. Stop it, delete the target, repeat"
            ) from None
