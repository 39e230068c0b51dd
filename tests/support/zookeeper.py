"""Runs a real ZooKeeper server for tests, from the jars in PySpark, or else from those of Apache Kafka.

`a_zookeeper(directory)` starts and ends a server, for tests that stop, pause or inspect it. `a_chroot()` is an unused path on one server
that all tests of the process share. Without Java both skip the test with the reason. No server outlives the test process, however that
ends.
"""

import importlib.util
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Self

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import ZnodeStat

from tests.support.apache_kafka.class_archives import ZOOKEEPER_ALONE, using
from tests.support.apache_kafka.guard import process_guard
from tests.support.apache_kafka.jars import ToolMissingError, ensure_jars, java_available
from tests.support.apache_kafka.java import QUICK_OPTIONS
from tests.support.apache_kafka.zookeeper import ZooKeeper

_START_SECONDS = 60
_TICK_MS = 500
MIN_SESSION_TIMEOUT_MS = 2 * _TICK_MS
"""ZooKeeper grants no shorter sessions than two ticks, and looks for dead ones once a tick."""
_SUPER_SECRET = 0xB3415C00
_NEEDED = ("zookeeper-", "slf4j-", "log4j-", "reload4j-", "netty-", "metrics-core-", "snappy-java-", "jackson-", "commons-")
"""How the names of the jars begin that ZooKeeper needs."""


def zookeeper_jars() -> Path:
    """The folder of the jars. Raises ToolMissingError, which says what is missing."""
    java = java_available()
    if not java:
        raise ToolMissingError(f"{java.reason}, which runs ZooKeeper")
    found = importlib.util.find_spec("pyspark")
    if found is not None and found.origin is not None:
        jars = Path(found.origin).parent / "jars"
        if any(jars.glob("zookeeper-3*.jar")):
            return jars
    return ensure_jars()


def _class_path(jars: Path) -> str:
    """Some of the jars of PySpark, which are hundreds: to find a class, Java opens one after the other."""
    return os.pathsep.join(str(jar) for start in _NEEDED for jar in sorted(jars.glob(f"{start}*.jar")))


class ZooKeeperServer(ZooKeeper):
    """A server that others may stop, pause and look into. It keeps its port and its data over stops and starts."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, options: Sequence[str] | None = None) -> None:
        """`settings` are further lines of the server's configuration, `options` those of its JVM."""
        super().__init__(directory, options=options)
        self._settings = dict(settings or {})

    @property
    def port(self) -> int:
        return self._port

    def pause(self) -> None:
        """Suspend it, with its connections open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Have it go on after `pause`."""
        self._signal(signal.SIGCONT)

    def expire(self, session_id: int) -> None:
        """End any client's session, as if it had timed out: a new client takes it over and closes it. Its owner learns on reconnecting."""
        thief = KazooClient(self.connect, client_id=(session_id, session_password(session_id)))
        thief.start(timeout=_START_SECONDS)
        try:
            if thief.client_id[0] != session_id:
                raise LookupError(f"ZooKeeper knows no session {session_id:#x}")
        finally:
            thief.stop()
            thief.close()

    def owner_of(self, path: str) -> int:
        """The session that holds an ephemeral node, 0 when there is none."""
        client = KazooClient(self.connect)
        client.start()
        try:
            stat = client.exists(path)
            return 0 if stat is None else int(stat.ephemeralOwner)
        finally:
            client.stop()
            client.close()

    def tree(self, root: str = "") -> dict[str, tuple[bytes | None, ZnodeStat]]:
        """Every node below (and with) `root`, without ZooKeeper's own: data and stat by path, relative to `root`."""
        client = KazooClient(self.connect + root)
        client.start()
        try:
            found = {}
            paths = ["/"]
            for path in paths:
                found[path] = client.get(path)
                names = [name for name in client.get_children(path) if path != "/" or name != "zookeeper"]
                paths += [f"{path.rstrip('/')}/{name}" for name in sorted(names)]
            return found
        finally:
            client.stop()
            client.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.end(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def _launch(self) -> None:
        settings = {
            "dataDir": str(self.directory / "zookeeper"),
            "clientPort": str(self._port),
            "clientPortAddress": "127.0.0.1",
            "tickTime": str(_TICK_MS),
            "maxSessionTimeout": "60000",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            **self._settings,
        }
        path = self.directory / "zookeeper.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        # Not synced to the disk: a test's machine does not lose its power.
        jars = zookeeper_jars()
        quick = (*QUICK_OPTIONS, *(using(ZOOKEEPER_ALONE, jars) if self._options is None else self._options))
        options = ("-Xmx128m", *quick, "-Dzookeeper.forceSync=no", "-cp", _class_path(jars))
        self._server.launch(["java", *options, "org.apache.zookeeper.server.ZooKeeperServerMain", str(path)])
        self._server.wait_until(lambda: self.word("ruok") == "imok", _START_SECONDS)


def session_password(session_id: int) -> bytes:
    """ZooKeeper makes a session's password of its id: 16 bytes of java.util.Random with this seed."""
    state = ((session_id ^ _SUPER_SECRET) ^ 0x5DEECE66D) & (2**48 - 1)
    password = b""
    while len(password) < 16:
        state = (state * 0x5DEECE66D + 0xB) & (2**48 - 1)
        password += (state >> 16).to_bytes(4, "little")
    return password


@contextmanager
def a_zookeeper(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[ZooKeeperServer]:
    """A server that runs as long as the block; its data and its log are in `directory`/zookeeper*. Skips the test when there is no Java."""
    _skip_without_jars()
    with ZooKeeperServer(directory, settings) as server:
        yield server


def a_chroot() -> str:
    """A value of zookeeper.connect with an unused path, on the server that the tests of this process share; do not stop the server."""
    return f"{shared_zookeeper().connect}/test-{next(_chroots)}"


@cache
def shared_zookeeper() -> ZooKeeperServer:
    """The server behind `a_chroot`."""
    _skip_without_jars()
    directory = Path(tempfile.mkdtemp(prefix="ottla-zookeeper-"))
    process_guard().remove_tree(directory)
    server = ZooKeeperServer(directory)
    server.start()
    return server


def _skip_without_jars() -> None:
    try:
        zookeeper_jars()
    except ToolMissingError as missing:
        pytest.skip(str(missing))


_chroots = count(1)
