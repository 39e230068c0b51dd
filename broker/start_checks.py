"""What a broker looks at before it writes into its log directories: that they and the metadata belong together, and its id is free.

Called by `broker.server` once directories are locked and the store has a session. An operator's slip (another cluster's ZooKeeper or path,
an id that is taken, a directory that was moved) ends the start with one line then, and leaves no trace to be cleaned up.
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

_NO_CLUSTER = "not there, for nothing has been kept in that place yet"
_LOCAL = "127.0.0.1"


async def check_belongings(config: BrokerConfig, store: MetadataStore, directories: Sequence[LogDirectory]) -> None:
    """Whether the directories are of the store's cluster and, where both are known, of this broker.

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
    """Whether another broker lives under this id. Raises BrokerIdInUse.

    With directories that no broker has used, whoever is registered is waited for: marking them could be wrong. A broker that comes back to
    its own reads its logs meanwhile.
    """
    is_new = all(directory.meta_properties is None for directory in directories)
    patience_s = config[ZOOKEEPER_SESSION_TIMEOUT_MS] / 1000 * SESSION_PATIENCE if is_new else 0.0
    listeners = config.listeners
    await check_id_is_free(store, broker_id, _addresses(listeners.advertised), _addresses(listeners.listeners), is_listening, patience_s)


def _addresses(endpoints: Sequence[EndPoint]) -> list[tuple[str, int]]:
    """Those that are known: the kernel has yet to choose other ports, where nobody can listen before."""
    return [(endpoint.host or _LOCAL, endpoint.port) for endpoint in endpoints if endpoint.port]
