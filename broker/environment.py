"""Provides what a broker uses outside of its own code: clock, random numbers, disk, threads, sockets, metadata store.

`ottla.broker.server` reaches them only here. The simulation replaces them, and runs the same broker on a virtual clock without a socket or
a thread.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import Executor
from random import Random, SystemRandom
from typing import Any

from ottla.broker.loop.clock import SystemClock
from ottla.broker.loop.worker_threads import WorkerThreads
from ottla.broker.metadata_store import is_listening
from ottla.broker.metrics.request_metrics import RequestMetrics
from ottla.broker.network.acceptor import check_addresses
from ottla.broker.network.host_names import known_hosts
from ottla.broker.network.limits import NetworkLimits, limits_of
from ottla.broker.network.peer_connection import PeerConnections
from ottla.broker.network.socket_server import SocketServer
from ottla.config.broker import BrokerConfig
from ottla.controller.registration import RandomBytes
from ottla.controller.store.metadata_store import MetadataStore
from ottla.protocol.client_security import ClientSecurity
from ottla.replication.ports.peer import Connect
from ottla.replication.waiting.timing_wheel import Cancellable
from ottla.storage.disk.clock import Clock
from ottla.storage.disk.filesystem import FileSystem, RealFileSystem
from ottla.storage.remote.ports import RemoteStore


class Environment:
    """The real machine. A simulation overrides all of this."""

    clock: Clock
    store_clock: Clock
    """The clock of the metadata store, whose sessions are shared with other brokers."""
    clock_ns: Callable[[], int]
    """Nanoseconds since an arbitrary point, for work that is cut into slices; read after every step."""
    random: Random
    random_bytes: RandomBytes
    file_system: FileSystem
    is_process = True
    """Whether the broker has the process to itself, and may therefore configure the garbage collector."""
    has_store_process = True
    """Whether the remote store works in a process of its own, which has only the real disk."""
    measures_requests = False

    def __init__(self) -> None:
        self.clock = self.store_clock = SystemClock()
        self.clock_ns = time.monotonic_ns
        self.random = SystemRandom()
        self.random_bytes = os.urandom
        self.file_system = RealFileSystem()

    @property
    def call_later(self) -> Callable[[float, Callable[[], object]], Cancellable]:
        """The function that calls back after seconds of `clock`: the timers of the broker's rules, such as sessions and retention."""
        return asyncio.get_running_loop().call_later

    def workers(self, config: BrokerConfig) -> Executor:
        """Threads for work that blocks or computes long."""
        return WorkerThreads(config)

    def request_metrics(self, *arguments: Any) -> RequestMetrics:
        """Measures requests. With `measures_requests` all brokers do, otherwise those that expose metrics or log slow requests."""
        return RequestMetrics(*arguments)

    async def check_addresses(self, config: BrokerConfig) -> None:
        """Raises BindFailed unless all listeners can be bound now."""
        limits = limits_of(config, await known_hosts(config))
        await check_addresses(config.listeners.listeners, limits, asyncio.get_running_loop())

    def socket_server(self, limits: NetworkLimits) -> SocketServer:
        """The server to which clients and other brokers connect."""
        return SocketServer(limits)

    def connect(self, max_response_bytes: int, security: ClientSecurity) -> Connect:
        """Opens connections to other brokers."""
        return PeerConnections(max_response_bytes, security)

    def metadata_store(self, open_store: Callable[[], MetadataStore]) -> MetadataStore:
        """The metadata store; `open_store` opens the one that the configuration names."""
        return open_store()

    def remote_store(self, store: RemoteStore) -> RemoteStore:
        """The store of remote segments; `store` is the one that the configuration names."""
        return store

    async def is_listening(self, host: str, port: int) -> bool:
        """Whether a process listens at this address."""
        return await is_listening(host, port)
