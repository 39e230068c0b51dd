"""Opens the remote store that the configuration of a broker names, for a command: with its own threads and caches, and no broker."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ottla.broker.remote.remote_storage import RemoteStorage

config_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--config",
    "config_file",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The server.properties of a broker, which name the remote store.",
)


@asynccontextmanager
async def the_store(config_file: Path, cluster_id: str | None = None) -> AsyncIterator[RemoteStorage]:
    """The store of these properties, which answers. Raises ConfigError, also if it belongs to another cluster than one with this id."""
    from ottla.broker.loop.clock import SystemClock
    from ottla.broker.remote.remote_storage import RemoteStorage
    from ottla.config.broker import BrokerConfig
    from ottla.config.loader import load_properties
    from ottla.storage.disk.filesystem import RealFileSystem

    with ThreadPoolExecutor(2) as threads:
        storage = RemoteStorage(BrokerConfig(load_properties(config_file, os.environ)), RealFileSystem(), threads, SystemClock())
        try:
            await storage.probe(starts=False)
            if cluster_id is not None:
                await storage.check_owner(cluster_id)
            yield storage
        finally:
            await storage.store.close()


@asynccontextmanager
async def the_own_store(config_file: Path, cluster_id: str) -> AsyncIterator[RemoteStorage]:
    """The same for a command that changes something: also raises ConfigError if the store names no cluster at all."""
    from ottla.config.errors import ConfigError
    from ottla.storage.remote.ports import OWNER_NAME

    async with the_store(config_file, cluster_id) as storage:
        if await storage.store.owner() is None:
            raise ConfigError(f"the store has no {OWNER_NAME}, which a broker writes when it starts: its cluster is not known")
        yield storage
