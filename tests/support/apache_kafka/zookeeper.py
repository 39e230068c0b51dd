"""Runs one ZooKeeper server of Apache Kafka 3.9.1, for brokers of either kind.

Its four-letter words are enabled: without a session they show whether it serves, and which ephemeral nodes exist.
"""

import signal
import socket
from collections.abc import Sequence
from pathlib import Path

from tests.support.apache_kafka.class_archives import ZOOKEEPER, using
from tests.support.apache_kafka.java import QUICK_OPTIONS, DidNotStartError, JavaServer, java_command
from tests.support.apache_kafka.ports import free_ports

_START_SECONDS = 60
_ATTEMPTS = 3


class ZooKeeper:
    """A standalone ZooKeeper whose data lives in `directory/zookeeper`.

    `connect` is its address once started, with the `chroot` below which brokers keep everything. `options` are those of its JVM beside its
    heap and the quick ones; by default, what starts soonest.
    """

    def __init__(self, directory: Path, chroot: str = "", options: Sequence[str] | None = None) -> None:
        self.directory = directory
        self.chroot = chroot
        self._options = options
        self._server = JavaServer("ZooKeeper", directory / "zookeeper.log")
        self._port = 0

    @property
    def connect(self) -> str:
        return f"127.0.0.1:{self._port}{self.chroot}"

    @property
    def pid(self) -> int:
        return self._server.pid

    def start(self) -> None:
        """Return when it serves. Keeps its port over restarts. Raises DidNotStartError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        chosen_before = self._port != 0
        for attempt in range(_ATTEMPTS):
            if not chosen_before:
                (self._port,) = free_ports(1)
            try:
                self._launch()
            except DidNotStartError as failure:
                if chosen_before or "Address already in use" not in str(failure) or attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    def stop(self) -> None:
        self._server.end()

    def kill(self) -> None:
        """SIGKILL: its sessions live on in its data, as after a power cut."""
        self._server.end(signal.SIGKILL)

    def has_ephemeral(self, path: str) -> bool:
        """Whether a session holds an ephemeral node of exactly this path below the chroot."""
        return any(line.strip() == self.chroot + path for line in self.word("dump").splitlines())

    def _launch(self) -> None:
        settings = {
            "dataDir": str(self.directory / "zookeeper"),
            "clientPort": str(self._port),
            "clientPortAddress": "127.0.0.1",
            "tickTime": "1000",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,dump,srvr",
        }
        path = self.directory / "zookeeper.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        options = ("-Xmx256m", *QUICK_OPTIONS, *(using(ZOOKEEPER) if self._options is None else self._options))
        self._server.launch(java_command(options, "org.apache.zookeeper.server.ZooKeeperServerMain", str(path)))
        self._server.wait_until(lambda: self.word("ruok") == "imok", _START_SECONDS)

    def word(self, word: str) -> str:
        """The answer to a four-letter word, empty when it does not serve."""
        try:
            with socket.create_connection(("127.0.0.1", self._port), 2) as connection:
                connection.sendall(word.encode())
                with connection.makefile("rb") as answer:
                    return answer.read().decode()
        except OSError:
            return ""
