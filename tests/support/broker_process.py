"""Runs a broker as users do: `ottla serve` in its own process, on a port that the kernel chose.

The process is a fork of one that has imported everything, which starts in an eighth of the processor time (`forked_broker.py`). Most
integration tests need only `with a_broker(tmp_path) as broker:`. A restarted broker keeps its port, so that clients find it again. Its
log is in `broker.log_file`; a failed test shows the end of the log.
"""

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.forked_broker import ForkedBroker, start_broker
from tests.support.secrets import secrets_in

START_SECONDS = 90.0
STOP_SECONDS = 90.0
_SHORTEST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.1


class BrokerProcess:
    """One broker under `directory`."""

    def __init__(self, directory: Path, **config: object) -> None:
        """`config` has keys with underscores for dots: `num_partitions=3`. `directory` is made when missing."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.data = directory / "data"
        self.log_file = directory / "broker.log"
        self.config = {"log.dirs": str(self.data), "listeners": "PLAINTEXT://127.0.0.1:0"}
        self.config |= {name.replace("_", "."): str(value) for name, value in config.items()}
        self.port = 0
        self._process: ForkedBroker | subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        """host:port for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id while it runs."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> "BrokerProcess":
        """Start, or start again on the same port, and wait until it listens."""
        config = dict(self.config)
        if self.port:
            config["listeners"] = f"PLAINTEXT://127.0.0.1:{self.port}"
        arguments = [argument for name, value in config.items() for argument in ("--set", f"{name}={value}")]
        with self.log_file.open("ab") as log:
            self._process = start_broker(arguments, log, dict(os.environ), self.directory)
        line = self._first_line()
        found = re.search(r"://[^ ,]*:(\d+)", line)
        assert found is not None, f"the broker said {line!r} and logged:\n{self.log()}"
        self.port = int(found.group(1))
        return self

    def _first_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            ready = selector.select(START_SECONDS)
        assert ready, f"the broker is not ready after {START_SECONDS} s:\n{self.log()}"
        return self._process.stdout.readline()

    def log(self) -> str:
        """The last lines of its log."""
        return self.log_file.read_text(errors="replace")[-4000:] if self.log_file.exists() else ""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """The exit status, once it has ended; its log may show no secret."""
        assert self._process is not None
        status = self._process.wait(seconds)
        if self._process.stdout is not None:
            self._process.stdout.close()
        assert not secrets_in(self.log_file.read_text(errors="replace")), f"{self.log_file} shows a secret"
        return status

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        if not self.is_running:
            return self.wait()
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """SIGKILL."""
        self.signal(signal.SIGKILL)
        self.wait()

    def rss_bytes(self) -> int:
        """Resident memory."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")


@contextmanager
def a_broker(directory: Path, **config: object) -> Iterator[BrokerProcess]:
    """A running broker; killed at the end if the test left it running."""
    broker = BrokerProcess(directory, **config)
    try:
        yield broker.start()
    except BaseException:
        print(f"--- the broker's log ---\n{broker.log()}", file=sys.stderr)
        raise
    finally:
        if broker.is_running:
            broker.stop()
        else:
            broker.wait()


def eventually(condition: object, seconds: float = 90.0, what: str = "the condition") -> object:
    """Poll `condition()` until it gives something true, which is returned. Fails after `seconds`.

    The longer it has waited the less often it asks, since most conditions ask brokers, and other tests want the processor.
    """
    assert callable(condition)
    began = time.monotonic()
    while True:
        found = condition()
        if found:
            return found
        waited = time.monotonic() - began
        assert waited < seconds, f"{what} did not come true within {seconds} s"
        time.sleep(min(max(_SHORTEST_PAUSE_S, waited / 20), _LONGEST_PAUSE_S))
