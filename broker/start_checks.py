"""Checks that the log directories and the metadata store belong together, and that the broker id is free.

`broker.server` calls this once directories are locked and the store has a session, before anything is written into the directories. An
operator's slip then ends the start with one line, and leaves no trace to be cleaned up: another cluster's ZooKeeper or path, an id that is
in use, a directory that was moved.
"""

from __future__ import annotations

from collections.abc import Sequence

from config.broker import BrokerConfig
from config.keys.general import BROKER_ID
from config.keys.zookeeper import ZOOKEEPER_SESSION_TIMEOUT_MS
from config.listeners import EndPoint
from controller.controller import SESSION_PATIENCE
from controller.registration import IsListening, check_id_is_free, stored_cluster_id
from controller.store.metadata_store import MetadataStore
from storage.disk.meta_properties import META_PROPERTIES, check_meta_properties
from storage.disk.start_errors import InconsistentClusterId
from storage.manager.log_directories import LogDirectory

_NO_CLUSTER = "missing: no cluster has used this metadata store yet"
_LOCAL = "127.0.0.1"


async def check_belongings(config: BrokerConfig, store: MetadataStore, directories: Sequence[LogDirectory]) -> None:
    """Check that the directories belong to the store's cluster and, where both ids are known, to this broker.

    Raises InconsistentClusterId, InconsistentBrokerId.
    """
    stored = await stored_cluster_id(store)
    broker_id = config[BROKER_ID]
    for directory in directories:
        found = directory.meta_properties
        if found is None:
            continue
        if stored is None and found.cluster_id is not None:
            raise InconsistentClusterId(f"{directory.path}/{META_PROPERTIES}", _NO_CLUSTER, found.cluster_id)
        if found.broker_id is not None:
            mine = broker_id if broker_id >= 0 else found.broker_id
            check_meta_properties(directory.path, found, stored or "", mine)


async def check_broker_id(
    broker_id: int, config: BrokerConfig, store: MetadataStore, directories: Sequence[LogDirectory], is_listening: IsListening
) -> None:
    """Check that no other broker uses this id. Raises BrokerIdInUse.

    With unused directories, this waits until a registration of the id expires: marking the directories with it could be wrong. A broker
    with directories of its own goes on at once, and reads its logs meanwhile.
    """
    is_new = all(directory.meta_properties is None for directory in directories)
    patience_s = config[ZOOKEEPER_SESSION_TIMEOUT_MS] / 1000 * SESSION_PATIENCE if is_new else 0.0
    listeners = config.listeners
    await check_id_is_free(store, broker_id, _addresses(listeners.advertised), _addresses(listeners.listeners), is_listening, patience_s)


def _addresses(endpoints: Sequence[EndPoint]) -> list[tuple[str, int]]:
    """The addresses with a known port. The kernel has yet to choose the others, so no process can listen there."""
    return [(endpoint.host or _LOCAL, endpoint.port) for endpoint in endpoints if endpoint.port]
