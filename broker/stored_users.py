"""Changes SCRAM users directly in the metadata store, before the first start of a broker or while none runs.

Brokers that authenticate to each other by SCRAM need their user before they can start. `ottla users` calls this; like
`kafka-configs.sh --zookeeper` it needs no broker. While a broker runs, the users are changed by requests to it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from ottla.broker.loop.clock import SystemClock
from ottla.broker.metadata_store import open_metadata_store
from ottla.config.broker import BrokerConfig
from ottla.config.keys.log import LOG_DIRS
from ottla.config.validation import log_dirs
from ottla.controller.admin.config_admin import ConfigAdmin
from ottla.controller.admin.scram_credentials import Deletion, Outcome, Upsertion, alter_scram_credentials
from ottla.controller.registration import in_session, prepare_store
from ottla.controller.znodes.layout import desanitize
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.manager.log_directories import LogDirectories, LogDirectory

T = TypeVar("T")


def stored_users(config: BrokerConfig) -> dict[str, dict[str, str]]:
    """The stored configuration of each user. Raises StoreError, StorageError."""

    async def read(admin: ConfigAdmin) -> dict[str, dict[str, str]]:
        return {desanitize(name): found for name, found in (await admin.read_all("users")).items()}

    return _with_store(config, read)


def alter_stored_users(config: BrokerConfig, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]) -> list[tuple[str, Outcome]]:
    """Store and delete credentials; the outcome for each user. Raises StoreError, StorageError."""
    return _with_store(config, lambda admin: alter_scram_credentials(admin, deletions, upsertions))


def _with_store(config: BrokerConfig, work: Callable[[ConfigAdmin], Awaitable[T]]) -> T:
    async def run(directories: Sequence[LogDirectory]) -> T:
        store = open_metadata_store(config, SystemClock(), directories)
        try:
            await in_session(store, lambda: prepare_store(store, os.urandom))
            return await work(ConfigAdmin(store, -1, config))
        finally:
            await store.close()

    with _directories(config) as directories:
        return asyncio.run(run(directories))


@contextmanager
def _directories(config: BrokerConfig) -> Iterator[Sequence[LogDirectory]]:
    """The log directories, locked as by a broker, if they are to hold the metadata file; none for ZooKeeper."""
    if not config.standalone:
        yield []
        return
    directories = LogDirectories(log_dirs(config[LOG_DIRS]), RealFileSystem())
    directories.open()
    try:
        yield directories.live
    finally:
        directories.unlock()
