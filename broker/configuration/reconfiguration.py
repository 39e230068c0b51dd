"""Applies changes of the broker's own configuration while it runs: network limits, handler slots, listeners.

Kafka's BrokerReconfigurables. `dynamic_config` follows the keys that are defaults of topics; all other code reads
values when it needs them. Made by the server once it listens.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ottla.broker.loop.background import finish
from ottla.broker.network.acceptor import BindFailed
from ottla.broker.network.host_names import HostNames
from ottla.broker.network.limits import limits_of
from ottla.broker.network.socket_server import SocketServer
from ottla.config.broker import BrokerConfig
from ottla.config.broker_properties import BrokerProperties
from ottla.config.errors import ConfigError
from ottla.config.keys.network import ADVERTISED_LISTENERS, LISTENER_SECURITY_PROTOCOL_MAP, LISTENERS
from ottla.config.listeners import EndPoint, broker_listeners, check_principal_builder
from ottla.controller.errors import StoreError
from ottla.controller.store.metadata_store import MetadataStore
from ottla.controller.znodes.layout import BrokerRegistration, broker_id_path, encode_broker

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 1.0
"""Time for a change of listeners in progress when the broker stops, seconds."""

_LISTENER_KEYS = frozenset({LISTENERS.name, ADVERTISED_LISTENERS.name, LISTENER_SECURITY_PROTOCOL_MAP.name})


class Reconfiguration:
    """Follows the configuration from `start` on."""

    def __init__(
        self,
        config: BrokerConfig,
        hosts: HostNames,
        socket_server: SocketServer,
        store: MetadataStore,
        broker_id: int,
        registration: Callable[[], BrokerRegistration],
        prepare: Callable[[EndPoint], Awaitable[None]],
    ) -> None:
        """`registration` returns the broker's registration with its current listeners. `prepare` is awaited before a listener is added,
        and raises ConfigError for one that cannot be."""
        self._config = config
        self._hosts = hosts
        self._socket_server = socket_server
        self._store = store
        self._broker_id = broker_id
        self._registration = registration
        self._prepare = prepare
        self._names_task: asyncio.Task[None] | None = None
        self._listener_names: list[str] = []
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def start(self) -> None:
        """Begin to follow changes. The configured listeners are bound already."""
        self._listener_names = [endpoint.listener_name for endpoint in self._config.listeners.listeners]
        self._config.on_check(_check_principal_builders)
        self._config.on_change(self._on_change)

    async def close(self) -> None:
        """Finish a change of listeners in progress, and follow no later one."""
        self._is_closed = True
        if self._names_task is not None:
            self._names_task.cancel()
            await asyncio.gather(self._names_task, return_exceptions=True)
        if self._task is not None:
            # Without a connection to the metadata store the registration would wait forever.
            await finish((self._task,), CLOSE_SECONDS)

    def _on_change(self, changed: frozenset[str]) -> None:
        if self._is_closed:
            return
        self._apply_limits()
        if names := self._hosts.unknown(self._config):
            if self._names_task is not None:
                self._names_task.cancel()
            self._names_task = asyncio.get_running_loop().create_task(self._learn(names), name="resolve-hosts")
        if changed & _LISTENER_KEYS:
            previous = self._task
            self._task = asyncio.get_running_loop().create_task(self._change_listeners(previous), name="change-listeners")

    def _apply_limits(self) -> None:
        self._socket_server.apply(limits_of(self._config, self._hosts))

    async def _learn(self, names: list[str]) -> None:
        try:
            await self._hosts.learn(names)
        except ConfigError as error:
            logger.error("%s; the host is not limited until its limit is set again", error)
        self._apply_limits()

    async def _change_listeners(self, previous: asyncio.Task[None] | None) -> None:
        """Remove and add listeners by name, then update the registration, from which the controller informs the
        cluster."""
        if previous is not None:
            await asyncio.gather(previous, return_exceptions=True)
        wanted = {endpoint.listener_name: endpoint for endpoint in self._config.listeners.listeners}
        for name in [name for name in self._listener_names if name not in wanted]:
            self._socket_server.remove_listener(name)
            self._listener_names.remove(name)
            logger.info("listener %s was removed", name)
        for name, endpoint in wanted.items():
            if name in self._listener_names:
                continue
            try:
                await self._prepare(endpoint)
                await self._socket_server.add_listener(endpoint)
            except (BindFailed, ConfigError, ValueError) as error:
                logger.error(
                    "listener %s cannot be added and is not registered: %s; for another attempt remove it from %s, and add it again",
                    endpoint.connection_string, error, LISTENERS.name,
                )  # fmt: skip
            else:
                self._listener_names.append(name)
                logger.info("listener %s was added", endpoint.connection_string)
        try:
            await self._store.set(broker_id_path(self._broker_id), encode_broker(self._registration()))
        except (StoreError, KeyError) as error:
            logger.error("the listeners of broker %d cannot be registered: %s", self._broker_id, error)


def _check_principal_builders(proposed: BrokerProperties) -> None:
    """Raises ConfigError for a class that a listener could not use. Apache Kafka loads the class before it stores the change."""
    for endpoint in broker_listeners(proposed).listeners:
        check_principal_builder(proposed, endpoint.listener_name)
