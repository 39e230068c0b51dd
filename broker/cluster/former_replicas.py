"""Sets aside the logs of deleted topics that another log directory has the log of a later topic of the same name beside.

Without ZooKeeper a topic is gone although a log directory with a replica of it is offline, and another topic of its name may get a replica
in another directory. At the next start both directories have a log of that partition. The metadata store has the id of the topic that
exists. The log of the other one is renamed before the logs are opened, because two logs with records would stop the broker.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from contextlib import suppress

from ottla.broker.loop.background import in_thread
from ottla.config.broker import BrokerConfig
from ottla.controller.errors import NoNode
from ottla.controller.store.metadata_store import Get, MetadataStore, data_and_stat
from ottla.controller.znodes.layout import decode_topic, topic_path
from ottla.controller.znodes.topic_ids import frees_names
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.storage.manager.former_logs import logs_of_several_topics, set_aside
from ottla.storage.manager.log_manager import LogManager


async def set_former_replicas_aside(store: MetadataStore, config: BrokerConfig, logs: LogManager, workers: Executor) -> None:
    """Before `LogManager.load`. Raises StoreError."""
    filesystem, log_dirs = logs.context.filesystem, [directory.path for directory in logs.directories.live]
    if len(log_dirs) == 1 or not frees_names(config):
        return
    found = await asyncio.get_running_loop().run_in_executor(workers, logs_of_several_topics, filesystem, log_dirs)
    for topic_partition, ids in found.items():
        topic_id: bytes | None = None
        path = topic_path(topic_partition.topic)
        (outcome,) = await store.pipeline([Get(path)])
        if not isinstance(outcome, NoNode):
            with suppress(MalformedZNode):
                topic_id = decode_topic(path, data_and_stat(outcome)[0]).topic_id
            if topic_id is None:
                continue
        for log_dir, found_id in ids.items():
            if found_id not in (None, topic_id):
                await in_thread(workers, set_aside, filesystem, log_dir, topic_partition)
