"""Which brokers a cluster on this host has: their ids, ports, racks and directories, and what each process is started with.

Everything stands in one directory: the metadata file that the brokers share (without ZooKeeper), and per broker its data and its log.
"""

import random
import socket
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from config.keys.general import (
    BROKER_ID,
    BROKER_RACK,
    CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS,
    DEFAULT_REPLICATION_FACTOR,
    MIN_INSYNC_REPLICAS,
)
from config.keys.groups import OFFSETS_TOPIC_REPLICATION_FACTOR
from config.keys.network import LISTENERS
from config.keys.own import OTTLA_METADATA_FILE
from config.keys.transactions import TRANSACTION_STATE_LOG_MIN_ISR, TRANSACTION_STATE_LOG_REPLICATION_FACTOR
from config.keys.zookeeper import ZOOKEEPER_CONNECT
from config.loader import parse_assignment

MOST_REPLICAS = 3
_CHOICE = range(20_000, 32_000)
"""Below what the kernel hands to outgoing connections: between choosing a port and listening nothing but another chooser can take it."""


@dataclass(frozen=True)
class Layout:
    """A cluster. `settings` are `key=value` for all brokers, in which `{id}` stands for the broker's id; they win over what is set here."""

    directory: Path
    ports: tuple[int, ...]
    racks: int
    zookeeper: str | None = None
    settings: tuple[str, ...] = ()
    first_id: int = 0
    host: str = "127.0.0.1"

    @property
    def broker_ids(self) -> range:
        """In the order of the ports."""
        return range(self.first_id, self.first_id + len(self.ports))

    @property
    def bootstrap(self) -> str:
        """What clients are given."""
        return ",".join(self.address(broker_id) for broker_id in self.broker_ids)

    def port(self, broker_id: int) -> int:
        """Where the broker listens."""
        return self.ports[broker_id - self.first_id]

    def address(self, broker_id: int) -> str:
        """host:port; IPv6 addresses stand in brackets."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port(broker_id)}"

    def rack(self, broker_id: int) -> str:
        """Brokers of one rack are taken to fail together. A `broker.rack` among the settings wins."""
        return self.properties(broker_id)[BROKER_RACK.name]

    @property
    def sets_racks(self) -> bool:
        """Whether the settings say which racks there are."""
        return any(parse_assignment(text)[0] == BROKER_RACK.name for text in self.settings)

    def log_file(self, broker_id: int) -> Path:
        """What the broker's process writes to standard error."""
        return self.directory / f"broker-{broker_id}.log"

    def properties(self, broker_id: int) -> dict[str, str]:
        """The configuration of one broker."""
        replicas = min(MOST_REPLICAS, len(self.ports))
        in_sync = max(1, replicas - 1)
        found = {
            BROKER_ID.name: str(broker_id),
            BROKER_RACK.name: f"r{(broker_id - self.first_id) % self.racks}",
            LISTENERS.name: f"PLAINTEXT://{self.address(broker_id)}",
            "log.dirs": str(self.directory / f"broker-{broker_id}"),
            DEFAULT_REPLICATION_FACTOR.name: str(replicas),
            MIN_INSYNC_REPLICAS.name: str(in_sync),
            OFFSETS_TOPIC_REPLICATION_FACTOR.name: str(replicas),
            TRANSACTION_STATE_LOG_REPLICATION_FACTOR.name: str(replicas),
            TRANSACTION_STATE_LOG_MIN_ISR.name: str(in_sync),
            # When all go down at once, the controller's successor is there before a broker can ask again.
            CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS.name: "100",
        }
        if self.zookeeper is None:
            found[OTTLA_METADATA_FILE.name] = str(self.directory / "metadata.db")
        else:
            found[ZOOKEEPER_CONNECT.name] = self.zookeeper
        found.update(parse_assignment(text.replace("{id}", str(broker_id))) for text in self.settings)
        return found

    def command(self, broker_id: int, supervisor_pid: int) -> list[str]:
        """What to run."""
        settings = [part for name, value in self.properties(broker_id).items() for part in ("--set", f"{name}={value}")]
        return [sys.executable, "-m", "broker.supervisor.child", str(supervisor_pid), "serve", *settings]


def choose_ports(broker_ids: range, base_port: int, before: Mapping[int, int]) -> tuple[int, ...]:
    """`base_port` and those after it; with 0, those of `before` and free ones for brokers that are new."""
    if base_port:
        return tuple(range(base_port, base_port + len(broker_ids)))
    new = iter(free_ports(len(broker_ids), set(before.values())))
    return tuple(before.get(broker_id) or next(new) for broker_id in broker_ids)


def free_ports(count: int, taken: Collection[int] = ()) -> list[int]:
    """That many different ports on 127.0.0.1 that nobody listened on a moment ago, none of them `taken`."""
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
