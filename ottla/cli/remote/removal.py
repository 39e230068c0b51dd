"""Implements `ottla remote scrub --remove`: removes the objects that belong to no copy, and leaves those whose owner may not be known.

An object may only seem to have no owner: the metadata may be lost, or be those of another cluster. So the store has to name the cluster,
an object has to be a day old, and the metadata have to know its partition: other copies of it, or former ones if the topic is gone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.broker.remote.stored_names import stored_name
from ottla.protocol.errors import ErrorCode
from ottla.protocol.uuid import from_text

if TYPE_CHECKING:
    from ottla.broker.remote.stored_names import StoredName
    from ottla.client.cluster import Cluster
    from ottla.storage.remote.entries import TopicIdPartition
    from ottla.storage.remote.ports import RemoteStore, StoredObject

SAFE_AGE_MS: Final = 24 * 60 * 60 * 1000
"""Age below which no object is removed."""
_NO_COPY: Final = "its name is not that of a part of a copy"
_YOUNG: Final = "it is less than a day old, or another part of the same copy is"
_UNKNOWN: Final = "the metadata have no copy of its partition, and the topic exists: they may be lost"
_STRANGE: Final = "the metadata have never had a copy of its partition: it may belong to another cluster"


async def remove_orphans(
    cluster: Cluster, store: RemoteStore, orphans: Sequence[StoredObject], known: Mapping[TopicIdPartition, int]
) -> dict[str, str | None]:
    """Removes objects of no copy. Returns for each why it stays, None if it is gone. Raises RemoteStoreError, ClientError.

    `known` has the partitions with records in the metadata, which were read after the objects were listed, and how many entries are left.
    """
    of_store = await store.now_ms()
    limit_ms = (int(time.time() * 1000) if of_store is None else of_store) - SAFE_AGE_MS
    names = {each.name: stored_name(each.name) for each in orphans}
    young = {name.copy for each in orphans if (name := names[each.name]) is not None and each.modified_ms > limit_ms}
    unsure = _topics_that_may_exist(cluster, names)
    outcomes: dict[str, str | None] = {}
    copies: set[StoredName] = set()
    for each in orphans:
        name = names[each.name]
        if name is None:
            outcomes[each.name] = _NO_COPY
        elif name.copy in young:
            outcomes[each.name] = _YOUNG
        elif not known.get(name.topic_id_partition) and (name.topic, name.topic_id) in unsure:
            outcomes[each.name] = _UNKNOWN
        elif name.topic_id_partition not in known:
            outcomes[each.name] = _STRANGE
        else:
            outcomes[each.name] = None
            copies.add(name.copy)
    for copy in sorted(copies):
        await store.delete(copy.entry())
    return outcomes


def _topics_that_may_exist(cluster: Cluster, names: Mapping[str, StoredName | None]) -> set[tuple[str, str]]:
    """Name and id of the topics of these objects, but those that the cluster says it does not have."""
    topics = {(name.topic, name.topic_id) for name in names.values() if name is not None}
    if not topics:
        return set()
    answer = cluster.refresh({topic for topic, _ in topics})
    known = {each.name: each for each in answer.topics}

    def may_exist(topic: str, topic_id: str) -> bool:
        found = known[topic]
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        return bool(found.error_code) or not any(found.topic_id) or found.topic_id == from_text(topic_id)

    return {each for each in topics if may_exist(*each)}
