"""Checks the brokers of a host before any of them starts and before any data is touched: values, addresses, directories, ids."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Final

from ottla.broker.loop.clock import SystemClock
from ottla.broker.metadata_store import is_listening, open_metadata_store
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.keys.general import BROKER_ID
from ottla.config.keys.log import LOG_DIRS
from ottla.config.keys.network import LISTENERS
from ottla.config.keys.own import OTTLA_LOG_FILE, OTTLA_METRICS_LISTENER, address
from ottla.config.keys.zookeeper import ZOOKEEPER_CONNECT, ZOOKEEPER_CONNECTION_TIMEOUT_MS
from ottla.config.listeners import EndPoint
from ottla.config.loader import remarks
from ottla.config.validation import log_dirs
from ottla.controller.errors import BrokerIdInUse, StoreError
from ottla.controller.registration import check_id_is_free
from ottla.supervisor.host_endpoint import METRICS_OPTION
from ottla.supervisor.layout import Layout
from ottla.supervisor.template import shown

_CONNECT_MS: Final = 5000

Configs = Mapping[int, BrokerConfig]


def check_layout(layout: Layout) -> list[str]:
    """Check all brokers of the layout, each alone and then against each other. Returns the remarks about their properties, each once.

    Raises ConfigError with file, key, value and reason.
    """
    if layout.metrics is not None:
        address(METRICS_OPTION, layout.metrics)
    configs = {broker_id: _config(layout, broker_id) for broker_id in layout.broker_ids}
    if any(config[BROKER_ID] != broker_id for broker_id, config in configs.items()):
        raise ConfigError(
            f"{layout.template.place_of(BROKER_ID.name)}{BROKER_ID.name} cannot be set for a cluster: "
            "every broker has its own; --first-id sets that of the first"
        )
    _check_files(layout, configs)
    _check_directories(layout, configs)
    _check_ports(layout, configs)
    return list(dict.fromkeys(remark for config in configs.values() for remark in remarks(config)))


async def check_ids(layout: Layout, broker_ids: Iterable[int]) -> None:
    """Check at ZooKeeper that no live broker uses these ids. Raises ConfigError.

    A ZooKeeper that does not answer is left to the brokers, which wait for it and say so.
    """
    if not layout.uses_zookeeper:
        return
    config = _config(layout, layout.first_id)
    quick = {ZOOKEEPER_CONNECTION_TIMEOUT_MS.name: str(_CONNECT_MS)}
    try:
        store = open_metadata_store(BrokerConfig({**config.static, **quick}), SystemClock(), ())
        try:
            await store.open_session()
            for broker_id in broker_ids:
                listeners = _config(layout, broker_id).listeners
                await check_id_is_free(store, broker_id, _addresses(listeners.advertised), _addresses(listeners.listeners), is_listening, 0)
        finally:
            await store.close()
    except BrokerIdInUse as error:
        raise ConfigError(f"{ZOOKEEPER_CONNECT.name}={config[ZOOKEEPER_CONNECT]}: {error}; --first-id sets the id of the first") from None
    except StoreError:
        return


def _config(layout: Layout, broker_id: int) -> BrokerConfig:
    """Raises ConfigError, which names the file if the key is from there."""
    try:
        return BrokerConfig(layout.properties(broker_id))
    except ConfigError as error:
        named = [name for name in layout.template.values if name in str(error)]
        set_apart = {setting.partition("=")[0].strip() for setting in layout.settings}
        if named and not set_apart.intersection(named) and str(layout.template.file) not in str(error):
            raise ConfigError(f"{layout.template.file}: {error}") from None
        raise


def _check_files(layout: Layout, configs: Configs) -> None:
    files: dict[str | None, int] = {}
    for broker_id, config in configs.items():
        file = config[OTTLA_LOG_FILE]
        if file in files:
            what = f"{layout.template.place_of(OTTLA_LOG_FILE.name)}{OTTLA_LOG_FILE.name}={file}"
            raise ConfigError(f"{what} is one file for several brokers; put {{id}} into its name")
        files[file] = broker_id


def _check_directories(layout: Layout, configs: Configs) -> None:
    seen: dict[str, int] = {}
    for broker_id, config in configs.items():
        text = config.static.get(LOG_DIRS.name) or config.static.get("log.dir", "")
        name = LOG_DIRS.name if config.static.get(LOG_DIRS.name) else "log.dir"
        for directory in dict.fromkeys(map(os.path.abspath, log_dirs(text))):
            other = seen.setdefault(directory, broker_id)
            if other != broker_id:
                raise ConfigError(
                    f"{layout.template.place_of(name)}{name}={text}: brokers {other} and {broker_id} would both use {directory}; "
                    "put {id} or {dir} into its name"
                )


def _check_ports(layout: Layout, configs: Configs) -> None:
    seen: dict[int, list[tuple[str, int]]] = {}
    for broker_id, config in configs.items():
        text = config.static.get(LISTENERS.name, "")
        found = [(LISTENERS.name, text, each.host or "", each.port) for each in config.listeners.listeners]
        if layout.port(broker_id) not in {port for *_, port in found}:
            raise ConfigError(
                f"{layout.template.place_of(LISTENERS.name)}{shown(LISTENERS.name, text)}: broker {broker_id} would not listen at its port "
                f"{layout.port(broker_id)}; put {{port}} into one of its addresses"
            )
        metrics = config[OTTLA_METRICS_LISTENER]
        if metrics is not None:
            found.append((OTTLA_METRICS_LISTENER.name, metrics, *address(OTTLA_METRICS_LISTENER.name, metrics)))
        for name, value, host, port in found:
            for other_host, other in seen.get(port, ()):
                if port and other != broker_id and (host == other_host or _is_every(host) or _is_every(other_host)):
                    raise ConfigError(
                        f"{layout.template.place_of(name)}{name}={value}: brokers {other} and {broker_id} would both listen at port "
                        f"{port}; put {{port}} or {{id}} into it"
                    )
            seen.setdefault(port, []).append((host, broker_id))


def _is_every(host: str) -> bool:
    """Whether the address is that of every interface."""
    try:
        return not host or ip_address(host).is_unspecified
    except ValueError:  # a name
        return False


def _addresses(endpoints: Iterable[EndPoint]) -> list[tuple[str, int]]:
    return [(endpoint.host or "127.0.0.1", endpoint.port) for endpoint in endpoints if endpoint.port]
