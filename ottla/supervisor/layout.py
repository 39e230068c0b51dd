"""Defines the brokers of a cluster on this host: ids, ports, racks, directories, properties, and the command of each process.

All files are in one directory: the metadata file that the brokers share (without ZooKeeper), and the data, the properties and the log
of each broker.
"""

import os
import random
import socket
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ottla.config.keys.general import (
    BROKER_ID,
    BROKER_RACK,
    CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS,
    DEFAULT_REPLICATION_FACTOR,
    MIN_INSYNC_REPLICAS,
)
from ottla.config.keys.groups import OFFSETS_TOPIC_REPLICATION_FACTOR
from ottla.config.keys.log import LOG_DIR, LOG_DIRS
from ottla.config.keys.network import LISTENERS
from ottla.config.keys.own import OTTLA_LOG_FILE, OTTLA_METADATA_FILE, OTTLA_METRICS_LISTENER
from ottla.config.keys.transactions import TRANSACTION_STATE_LOG_MIN_ISR, TRANSACTION_STATE_LOG_REPLICATION_FACTOR
from ottla.config.keys.zookeeper import ZOOKEEPER_CONNECT
from ottla.config.loader import parse_assignment
from ottla.supervisor.template import Template, fill, properties_text

MOST_REPLICAS = 3
BASE_PORT = 9092
"""The port of the first broker of a new cluster."""
_PORTS = 65536
_CHOICE = range(20_000, 32_000)
"""Ports to choose from. They are below those that the kernel assigns to outgoing connections, so only another chooser
can take one before it is bound."""


@dataclass(frozen=True)
class Layout:
    """A cluster. The `template` and the `settings`, which are `key=value`, are for all brokers, and override the properties set here.

    In their values `{id}`, `{port}`, `{host}` and `{dir}` are those of a broker. `command_config` names the properties of TLS and SASL by
    which the supervisor and the commands reach the ports. Without a number of `racks` the name of the host is the rack of all brokers.
    """

    directory: Path
    ports: tuple[int, ...]
    racks: int | None = None
    zookeeper: str | None = None
    settings: tuple[str, ...] = ()
    first_id: int = 0
    host: str = "127.0.0.1"
    command_config: Path | None = None
    template: Template = field(default_factory=Template)
    metrics: str | None = None
    """The address of the metrics of all brokers; each broker then has one of its own on a free port of 127.0.0.1."""
    host_name: str = field(default_factory=socket.gethostname)

    @property
    def broker_ids(self) -> range:
        """The ids in the order of the ports."""
        return range(self.first_id, self.first_id + len(self.ports))

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers for clients."""
        return ",".join(self.address(broker_id) for broker_id in self.broker_ids)

    def port(self, broker_id: int) -> int:
        """The port of the broker."""
        return self.ports[broker_id - self.first_id]

    def address(self, broker_id: int) -> str:
        """host:port; an IPv6 address is in brackets."""
        return address_of({"host": self.host, "port": self.port(broker_id)})

    def rack(self, broker_id: int) -> str:
        """The rack of the broker. Brokers of one rack are expected to fail together. A `broker.rack` in the settings
        takes precedence."""
        return self.properties(broker_id)[BROKER_RACK.name]

    @property
    def sets_racks(self) -> bool:
        """Whether the settings or the template define racks."""
        return BROKER_RACK.name in self.template.values or any(parse_assignment(text)[0] == BROKER_RACK.name for text in self.settings)

    @property
    def uses_zookeeper(self) -> bool:
        """Whether the brokers keep their metadata in ZooKeeper."""
        return bool(self.properties(self.first_id).get(ZOOKEEPER_CONNECT.name))

    def of_size(self, count: int) -> "Layout":
        """The same cluster with this many brokers: the last ones are left out, or new ones follow them."""
        more = count - len(self.ports)
        if more <= 0:
            return replace(self, ports=self.ports[:count])
        first = self.ports[0]
        follow_each_other = self.ports == tuple(range(first, first + len(self.ports))) and first + count <= _PORTS
        new = range(first + len(self.ports), first + count) if follow_each_other else free_ports(more, self.ports)
        return replace(self, ports=(*self.ports, *new))

    def reloaded(self, environment: Mapping[str, str]) -> "Layout":
        """The same cluster with the template as its file is now. Raises ConfigError."""
        return replace(self, template=Template.load(self.template.file, environment))

    def directory_of(self, broker_id: int) -> Path:
        """The broker's own directory, the `{dir}` of its properties."""
        return self.directory / f"broker-{broker_id}"

    def properties_file(self, broker_id: int) -> Path:
        """The file with the properties with which the broker was started last."""
        return self.directory / f"broker-{broker_id}.properties"

    def error_file(self, broker_id: int) -> Path:
        """The file with the standard error output of the broker's process: why a start was refused, and the trace of a crash."""
        return self.directory / f"broker-{broker_id}.err"

    def log_file(self, broker_id: int) -> Path:
        """The file with the log of the broker, which rotates."""
        return Path(self.properties(broker_id)[OTTLA_LOG_FILE.name])

    def properties(self, broker_id: int) -> dict[str, str]:
        """The configuration of one broker. Raises ConfigError for a placeholder that is unknown."""
        places = {
            "id": str(broker_id),
            "port": str(self.port(broker_id)),
            "host": f"[{self.host}]" if ":" in self.host else self.host,
            "dir": str(self.directory_of(broker_id)),
        }
        found = {**self.template.environment, **self._own_properties(broker_id)}
        if ZOOKEEPER_CONNECT.name in self.template.values and self.zookeeper is None:
            found.pop(OTTLA_METADATA_FILE.name, None)
        for name, value in self.template.values.items():
            if name != ZOOKEEPER_CONNECT.name or self.zookeeper is None:
                found[name] = fill(name, value, places, self.template.place_of(name))
        settings = list(map(parse_assignment, self.settings))
        for name, value in settings:
            found[name] = fill(name, value, places)
        given = {*self.template.values, *(name for name, _ in settings)}
        if LOG_DIR.name in given and LOG_DIRS.name not in given:
            del found[LOG_DIRS.name]  # it would hide the directory that is given
        return found

    def _own_properties(self, broker_id: int) -> dict[str, str]:
        """The properties that the supervisor sets, where neither the template nor the settings have them."""
        replicas = min(MOST_REPLICAS, len(self.ports))
        in_sync = max(1, replicas - 1)
        found = {
            BROKER_ID.name: str(broker_id),
            BROKER_RACK.name: self.host_name if self.racks is None else f"r{(broker_id - self.first_id) % self.racks}",
            LISTENERS.name: f"PLAINTEXT://{self.address(broker_id)}",
            LOG_DIRS.name: str(self.directory_of(broker_id)),
            OTTLA_LOG_FILE.name: str(self.directory / f"broker-{broker_id}.log"),
            DEFAULT_REPLICATION_FACTOR.name: str(replicas),
            MIN_INSYNC_REPLICAS.name: str(in_sync),
            OFFSETS_TOPIC_REPLICATION_FACTOR.name: str(replicas),
            TRANSACTION_STATE_LOG_REPLICATION_FACTOR.name: str(replicas),
            TRANSACTION_STATE_LOG_MIN_ISR.name: str(in_sync),
            # When all brokers stop together, the next controller is elected before a broker sends its request again.
            CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS.name: "100",
        }
        if self.metrics is not None:
            found[OTTLA_METRICS_LISTENER.name] = "127.0.0.1:0"
        if self.zookeeper is None:
            found[OTTLA_METADATA_FILE.name] = str(self.directory / "metadata.db")
        else:
            found[ZOOKEEPER_CONNECT.name] = self.zookeeper
        return found

    def command(self, broker_id: int, supervisor_pid: int) -> list[str]:
        """Write the broker's properties, and return the command line of its process, which shows none of them. Raises OSError."""
        file = self.properties_file(broker_id)
        with open(file, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as text:
            text.write(properties_text(self.properties(broker_id).items()))
        return [sys.executable, "-P", "-m", "ottla.cli.supervised", str(supervisor_pid), "serve", str(file), "--json"]


def ids_in(directory: Path) -> list[int]:
    """The ids of the brokers that were started in a directory, by their properties files: without a state file nothing else tells them."""
    names = (path.name.removeprefix("broker-").removesuffix(".properties") for path in directory.glob("broker-*.properties"))
    return sorted(int(name) for name in names if name.isdecimal())


def address_of(broker: Mapping[str, Any]) -> str:
    """host:port of a broker in the supervisor's status; an IPv6 address is in brackets."""
    host = str(broker["host"])
    return f"{f'[{host}]' if ':' in host else host}:{broker['port']}"


def choose_ports(broker_ids: range, base_port: int | None, before: Mapping[int, int]) -> tuple[int, ...]:
    """`base_port` and those after it; with 0, the ports in `before`, and free ones for new brokers.

    With None, the ports that brokers had `before`, and those after them for new brokers; BASE_PORT and those after it if none had any.
    """
    if base_port is None:
        distances = {port - broker_id for broker_id, port in before.items()} or {BASE_PORT - broker_ids[0]}
        base_port = broker_ids[0] + distances.pop() if len(distances) == 1 else 0
        if not 0 < base_port <= _PORTS - len(broker_ids):
            base_port = 0
    if base_port:
        return tuple(range(base_port, base_port + len(broker_ids)))
    new = iter(free_ports(len(broker_ids), set(before.values())))
    return tuple(before.get(broker_id) or next(new) for broker_id in broker_ids)


def free_ports(count: int, taken: Collection[int] = ()) -> list[int]:
    """`count` different ports on 127.0.0.1 without a listener at the time of the call, none of them in `taken`."""
    found: list[int] = []
    for port in random.SystemRandom().sample(_CHOICE, len(_CHOICE)):
        if len(found) == count:
            break
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in taken:
            found.append(port)
    return found
