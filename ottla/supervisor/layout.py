"""Defines the brokers of a cluster on this host: ids, ports, racks, directories, and the arguments of each process.

All files are in one directory: the metadata file that the brokers share (without ZooKeeper), and the data and the log
of each broker.
"""

import random
import socket
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from ottla.config.keys.general import (
    BROKER_ID,
    BROKER_RACK,
    CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS,
    DEFAULT_REPLICATION_FACTOR,
    MIN_INSYNC_REPLICAS,
)
from ottla.config.keys.groups import OFFSETS_TOPIC_REPLICATION_FACTOR
from ottla.config.keys.network import LISTENERS
from ottla.config.keys.own import OTTLA_LOG_FILE, OTTLA_METADATA_FILE
from ottla.config.keys.transactions import TRANSACTION_STATE_LOG_MIN_ISR, TRANSACTION_STATE_LOG_REPLICATION_FACTOR
from ottla.config.keys.zookeeper import ZOOKEEPER_CONNECT
from ottla.config.loader import parse_assignment

MOST_REPLICAS = 3
_CHOICE = range(20_000, 32_000)
"""Ports to choose from. They are below those that the kernel assigns to outgoing connections, so only another chooser
can take one before it is bound."""


@dataclass(frozen=True)
class Layout:
    """A cluster. `settings` are `key=value` for all brokers, in which `{id}` is replaced by the broker's id and `{port}` by
    its port; they override the properties set here. `command_config` names the properties of TLS and SASL by which the
    supervisor and the commands reach those ports."""

    directory: Path
    ports: tuple[int, ...]
    racks: int
    zookeeper: str | None = None
    settings: tuple[str, ...] = ()
    first_id: int = 0
    host: str = "127.0.0.1"
    command_config: Path | None = None

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
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port(broker_id)}"

    def rack(self, broker_id: int) -> str:
        """The rack of the broker. Brokers of one rack are expected to fail together. A `broker.rack` in the settings
        takes precedence."""
        return self.properties(broker_id)[BROKER_RACK.name]

    @property
    def sets_racks(self) -> bool:
        """Whether the settings define racks."""
        return any(parse_assignment(text)[0] == BROKER_RACK.name for text in self.settings)

    def error_file(self, broker_id: int) -> Path:
        """The file with the standard error output of the broker's process: why a start was refused, and the trace of a crash."""
        return self.directory / f"broker-{broker_id}.err"

    def log_file(self, broker_id: int) -> Path:
        """The file with the log of the broker, which rotates."""
        return Path(self.properties(broker_id)[OTTLA_LOG_FILE.name])

    def properties(self, broker_id: int) -> dict[str, str]:
        """The configuration of one broker."""
        replicas = min(MOST_REPLICAS, len(self.ports))
        in_sync = max(1, replicas - 1)
        found = {
            BROKER_ID.name: str(broker_id),
            BROKER_RACK.name: f"r{(broker_id - self.first_id) % self.racks}",
            LISTENERS.name: f"PLAINTEXT://{self.address(broker_id)}",
            "log.dirs": str(self.directory / f"broker-{broker_id}"),
            OTTLA_LOG_FILE.name: str(self.directory / f"broker-{broker_id}.log"),
            DEFAULT_REPLICATION_FACTOR.name: str(replicas),
            MIN_INSYNC_REPLICAS.name: str(in_sync),
            OFFSETS_TOPIC_REPLICATION_FACTOR.name: str(replicas),
            TRANSACTION_STATE_LOG_REPLICATION_FACTOR.name: str(replicas),
            TRANSACTION_STATE_LOG_MIN_ISR.name: str(in_sync),
            # When all brokers stop together, the next controller is elected before a broker sends its request again.
            CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS.name: "100",
        }
        if self.zookeeper is None:
            found[OTTLA_METADATA_FILE.name] = str(self.directory / "metadata.db")
        else:
            found[ZOOKEEPER_CONNECT.name] = self.zookeeper
        port = str(self.port(broker_id))
        found.update(parse_assignment(text.replace("{id}", str(broker_id)).replace("{port}", port)) for text in self.settings)
        return found

    def command(self, broker_id: int, supervisor_pid: int) -> list[str]:
        """The command line of the broker's process."""
        settings = [part for name, value in self.properties(broker_id).items() for part in ("--set", f"{name}={value}")]
        return [sys.executable, "-P", "-m", "ottla.cli.supervised", str(supervisor_pid), "serve", *settings]


def choose_ports(broker_ids: range, base_port: int, before: Mapping[int, int]) -> tuple[int, ...]:
    """`base_port` and those after it; with 0, the ports in `before`, and free ones for new brokers."""
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
