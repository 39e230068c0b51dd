"""Shares one broker among all workers of pytest-xdist. The broker ends with the process that started the workers.

The controller of pytest-xdist makes a `Lender`, which starts the broker when a worker first asks for it. Workers send the commands of
`ottla serve --ephemeral` to the lender, as lines of JSON over a connection of their own on 127.0.0.1; each has the lender's key.
"""

from __future__ import annotations

import json
import secrets
import socket
import socketserver
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

from pytest_ottla.broker import Broker
from pytest_ottla.guard import started_in
from pytest_ottla.orders import Orders
from pytest_ottla.process import ANSWER_SECONDS, START_SECONDS, OttlaError

_HOST = "127.0.0.1"
_BORROW = "borrow"
"""The command with which a worker begins; the others are those of the broker."""
_OF_ALL = frozenset({"fail", "delay", "disk", "clock", "advance", "cut"})
"""Commands that would change the broker for the tests of other workers, too."""
__tracebackhide__ = True  # a failure shows the line of the test


class Lender:
    """See the module. `terms` are the port and the key that a worker needs to reach it."""

    def __init__(self) -> None:
        self._key = secrets.token_hex()
        self._starting = threading.Lock()
        self._broker: Broker | None = None
        self._held = ExitStack()
        self._config: dict[str, str] = {}
        lender = self

        class Loan(socketserver.StreamRequestHandler):
            """One worker."""

            def handle(self) -> None:
                """Carry out the worker's commands, one after the other."""
                for line in self.rfile:
                    order = json.loads(line)
                    if not secrets.compare_digest(str(order.pop("key", "")), lender._key):
                        return
                    self.wfile.write(json.dumps(lender._outcome(order)).encode() + b"\n")

        self._server = socketserver.ThreadingTCPServer((_HOST, 0), Loan)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self.terms: dict[str, Any] = {"port": self._server.server_address[1], "key": self._key}

    def close(self) -> None:
        """End the broker, and remove its directory."""
        self._server.shutdown()
        self._server.server_close()
        with self._starting:
            if self._broker is not None:
                self._held.close()
                self._broker = None

    def _outcome(self, order: dict[str, Any]) -> dict[str, Any]:
        do, seconds = order.pop("do"), order.pop("seconds")
        try:
            if do == _BORROW:
                return {"result": self._borrow(Path(order["directory"]), order["config"])}
            if self._broker is None:
                raise OttlaError("the test run has ended")
            return {"result": self._broker.ask(do, seconds, **order)}
        except OttlaError as error:
            return {"error": str(error)}

    def _borrow(self, directory: Path, config: dict[str, str]) -> str:
        """The addresses of the broker, which the first call starts."""
        with self._starting:
            if self._broker is None:
                starting = started_in(directory, lambda directory: Broker(directory, **config))
                self._broker, self._config = self._held.enter_context(starting), config
            elif config != self._config:
                raise OttlaError(f"all workers share one broker, so ottla_config must be the same in all: {config} is not {self._config}")
            return self._broker.bootstrap_servers


class SharedBroker(Orders):
    """The broker of a lender, in a worker. It refuses whatever would affect the tests of other workers."""

    def __init__(self, terms: Mapping[str, Any], directory: Path, config: Mapping[str, str]) -> None:
        """Borrows the broker; the first worker has it started, with its data in `directory`. Raises OttlaError."""
        self.bootstrap_servers = ""
        self._key = terms["key"]
        self._asking = threading.Lock()
        self._socket = socket.create_connection((_HOST, terms["port"]))
        self._stream = self._socket.makefile("rwb")
        try:
            self.bootstrap_servers = self.ask(_BORROW, START_SECONDS, directory=str(directory), config=dict(config))
        except OttlaError:
            self.close()
            raise

    def __enter__(self) -> SharedBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, do: str, seconds: float = 0.0, **arguments: Any) -> Any:
        """See Helpers."""
        if do in _OF_ALL:
            self._refuse()
        order = {"key": self._key, "do": do, "seconds": seconds, **arguments}
        with self._asking:
            self._socket.settimeout(2 * ANSWER_SECONDS + seconds)  # the lender gives up first, and says why
            try:
                self._stream.write(json.dumps(order).encode() + b"\n")
                self._stream.flush()
                line = self._stream.readline()
            except OSError:
                line = b""
        if not line:
            raise OttlaError(f"broker {self.bootstrap_servers} has ended with the test run")
        answer = json.loads(line)
        if "error" in answer:
            raise OttlaError(answer["error"])
        return answer["result"]

    def heal(self) -> None:
        """Nothing to do: a shared broker has no faults."""

    def close(self) -> None:
        """Give the broker back."""
        self._stream.close()
        self._socket.close()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        """Raises OttlaError."""
        raise OttlaError(
            "this broker is shared by all workers, so it takes no faults, and its time does not advance: "
            "use ottla_cluster(1), or unset ottla_shared"
        )

    kill = stop = restart = pause = resume = _refuse
