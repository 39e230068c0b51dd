"""Runs for election as controller: the first broker that creates /controller wins, and the same write sets the next
epoch.

Kafka's KafkaController.elect with KafkaZkClient.registerControllerAndIncrementControllerEpoch. Called by `controller`.
"""

import logging
from typing import NamedTuple

from ottla.controller.errors import BadVersion, NodeExists, NoNode
from ottla.controller.store.metadata_store import Create, Delete, Exists, Get, MetadataStore, SetData, Stat, Watch, data_and_stat
from ottla.controller.znodes.layout import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    ControllerNode,
    decode_controller,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
)
from ottla.storage.disk.clock import Clock

logger = logging.getLogger(__name__)


class Won(NamedTuple):
    """This broker won the election; `epoch_version` is the version of /controller_epoch."""

    epoch: int
    epoch_version: int


async def run_for_election(store: MetadataStore, broker_id: int, clock: Clock, watch: Watch) -> Won | int:
    """Create /controller if it does not exist; otherwise return the id of the broker that did. /controller is watched
    in any case.

    For a broker that is not active. Raises StoreError.
    """
    while True:
        _, found, epoch = await store.pipeline([Exists(CONTROLLER, watch), Get(CONTROLLER), Get(CONTROLLER_EPOCH)])
        if not isinstance(found, NoNode):
            data, stat = data_and_stat(found)
            if stat.ephemeral_owner == store.session_id:
                # This broker is not active: an earlier attempt failed between the election and the failover. No other
                # broker could be elected while the node exists.
                logger.warning("broker %d removes /controller, which an election it did not complete left behind", broker_id)
                await store.pipeline([Delete(CONTROLLER, stat.version)])
                continue
            return decode_controller(CONTROLLER, data).broker_id
        if isinstance(epoch, NoNode):
            await store.pipeline([Create(CONTROLLER_EPOCH, encode_controller_epoch(0))])
            epoch = (await store.pipeline([Get(CONTROLLER_EPOCH)]))[0]
        data, stat = data_and_stat(epoch)
        new_epoch = decode_controller_epoch(data) + 1
        node = ControllerNode(broker_id, clock.now_ms())
        try:
            results = await store.multi(
                [
                    Create(CONTROLLER, encode_controller(node), ephemeral=True),
                    SetData(CONTROLLER_EPOCH, encode_controller_epoch(new_epoch), stat.version),
                ]
            )
        except (NodeExists, BadVersion):
            won = await _epoch_version_if_won(store, new_epoch)
            if won is None:
                continue
            return Won(new_epoch, won)
        epoch_stat = results[1]
        assert isinstance(epoch_stat, Stat)
        return Won(new_epoch, epoch_stat.version)


async def _epoch_version_if_won(store: MetadataStore, epoch: int) -> int | None:
    """The version of /controller_epoch if a refused election was won nevertheless, otherwise None.

    That happens when the reply was lost with the connection and the request was sent again. No other broker raises the
    epoch as long as /controller belongs to this session.
    """
    found, stored = await store.pipeline([Get(CONTROLLER), Get(CONTROLLER_EPOCH)])
    if isinstance(found, NoNode):
        return None
    owner = data_and_stat(found)[1].ephemeral_owner
    data, stat = data_and_stat(stored)
    return stat.version if owner == store.session_id and decode_controller_epoch(data) == epoch else None
