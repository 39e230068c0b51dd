"""What a broker touches outside of itself: clock, chance, disk, threads, sockets, metadata store. `broker.server` reaches them here only.

The simulation puts others in their place, and runs the same broker on a virtual clock without a socket or a thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import Executor
from random import Random, SystemRandom

from broker.loop.clock import SystemClock
from broker.loop.worker_threads import WorkerThreads
from broker.metadata_store import is_listening
from broker.network.limits import NetworkLimits
from broker.network.peer_connection import PeerConnections
from broker.network.socket_server import SocketServer
from config.broker import BrokerConfig
from controller.registration import RandomBytes
from controller.store.metadata_store import MetadataStore
from replication.ports.peer import Connect
from storage.disk.clock import Clock
from storage.disk.filesystem import FileSystem, RealFileSystem


class Surroundings:
    """The machine, as it is. Whoever simulates it overrides all of this."""

    clock: Clock
    clock_ns: Callable[[], int]
    """Nanoseconds, for work that is cut into slices: looked at with every step of it."""
    random: Random
    random_bytes: RandomBytes
    file_system: FileSystem
    is_process = True
    """Whether the broker has the process for itself, so that it may set up its garbage collector."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.clock_ns = time.monotonic_ns
        self.random = SystemRandom()
        self.random_bytes = os.urandom
        self.file_system = RealFileSystem()

    def workers(self, config: BrokerConfig) -> Executor:
        """Threads for what blocks or computes long."""
        return WorkerThreads(config)

    def socket_server(self, limits: NetworkLimits) -> SocketServer:
        """What clients and brokers connect to."""
        return SocketServer(limits)

    def connect(self, max_response_bytes: int) -> Connect:
        """The way to other brokers."""
        return PeerConnections(max_response_bytes)

    def metadata_store(self, open_store: Callable[[], MetadataStore]) -> MetadataStore:
        """`open_store` makes the one that the configuration names."""
        return open_store()

    async def is_listening(self, host: str, port: int) -> bool:
        """Whether a process has this address."""
        return await is_listening(host, port)
