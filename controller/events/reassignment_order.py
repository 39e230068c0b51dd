"""Reads and updates /admin/reassign_partitions, by which tools before KIP-455 request reassignments. Owned by
`reassignment`.

The node lists partitions and their target replicas. It exists until all of them are done, refused, or superseded by a
request.
"""

import logging
from collections.abc import Iterable

from ottla.controller.errors import NoNode
from ottla.controller.state.core import ControllerCore
from ottla.controller.store.metadata_store import Delete, Get, SetData, Write, data_and_stat
from ottla.controller.znodes.changes import decode_reassignments, encode_reassignments
from ottla.controller.znodes.layout import REASSIGN_PARTITIONS
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


class ReassignmentOrder:
    """The znode; there is at most one."""

    def __init__(self, core: ControllerCore) -> None:
        self._core = core

    async def read(self) -> dict[TopicPartition, tuple[int, ...]]:
        """The requested reassignments; empty when there are none. A node that cannot be decoded is deleted, because no
        other client would do so."""
        (found,) = await self._core.store.pipeline([Get(REASSIGN_PARTITIONS)])
        if isinstance(found, NoNode):
            return {}
        try:
            ordered = decode_reassignments(REASSIGN_PARTITIONS, data_and_stat(found)[0])
            if ordered:
                return ordered
            logger.warning("%s is removed: it names no partition", REASSIGN_PARTITIONS)
        except MalformedZNode as error:
            logger.error("%s is removed: %s", REASSIGN_PARTITIONS, error)
        await self._core.states.write_or_raise([Delete(REASSIGN_PARTITIONS)], ignoring=(NoNode,))
        return {}

    async def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions from the node, and delete it when none is left."""
        done = set(partitions)
        if not done:
            return
        ordered = await self.read()
        left = {partition: target for partition, target in ordered.items() if partition not in done}
        if left == ordered:
            return
        write: Write = SetData(REASSIGN_PARTITIONS, encode_reassignments(left)) if left else Delete(REASSIGN_PARTITIONS)
        await self._core.states.write_or_raise([write], ignoring=(NoNode,))
