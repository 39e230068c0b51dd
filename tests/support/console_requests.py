"""Sends requests to the console's application, without a server and without a cluster."""

import asyncio
import json
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from starlette.types import Message

from ottla.client.cluster import Cluster
from ottla.client.connection import Address, Connection
from ottla.client.errors import Unreachable
from ottla.console.application import application
from ottla.console.audit import Audit
from ottla.console.clusters import Clusters, Served
from ottla.console.decoding import Decoder
from ottla.console.guard import Rules
from ottla.console.login.passwords import Passwords
from ottla.console.login.proxy_login import ProxyLogin
from ottla.console.login.sessions import Sessions

HOST = "127.0.0.1:8080"
FIRST, SECOND = "first", "second one"
"""The clusters of the console."""
NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Answered(NamedTuple):
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The document in the body."""
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The text of an error."""
        return str(self.json["error"])


class _DeadCluster(Cluster):
    """A client of a cluster that does not answer."""

    def __init__(self, console: "ConsoleUnderTest", name: str) -> None:
        super().__init__("127.0.0.1:1")
        self._console = console
        self._name = name

    def new_connection(self, address: Address) -> Connection:
        """See Cluster."""
        self._console.asked_clusters.append(self._name)
        hangs_until = self._console.hanging.get(self._name)
        if hangs_until is not None:
            hangs_until.wait()
        raise Unreachable("no broker can be reached")


class ConsoleUnderTest:
    """A console whose two clusters are dead. `now` is its clock, and `lines` has its audit log."""

    def __init__(
        self,
        passwords: Passwords | None = None,
        proxy: ProxyLogin | None = None,
        *,
        is_read_only: bool = False,
        is_secure: bool = False,
    ) -> None:
        self.now = 0.0
        self.lines: list[dict[str, Any]] = []
        self.asked_clusters: list[str] = []
        self.hanging: dict[str, threading.Event] = {}
        """Clusters whose brokers do not answer until something happens."""
        self.sessions = Sessions(passwords, lambda: self.now, proxy)
        audit = Audit(lambda line: self.lines.append(json.loads(line)), lambda: self.now, lambda: self.now)
        clusters = Clusters([Served(name, partial(_DeadCluster, self, name), Decoder()) for name in (FIRST, SECOND)])
        self._app = application(clusters, Rules(NAMES, self.sessions, audit, is_read_only=is_read_only, is_secure=is_secure))

    @property
    def asked(self) -> int:
        """The number of connections to a cluster that were tried."""
        return len(self.asked_clusters)

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answered:
        """The answer to GET; `headers` are instead of those that every browser sends."""
        return self.send("GET", path, b"", {"host": HOST} if headers is None else headers)

    def change(self, method: str, path: str, body: Any, *, without: str = "", more: Mapping[str, str] | None = None) -> Answered:
        """The answer to a request that changes something, as the page sends it; `without` is a header to leave out."""
        cookie = {name: value for name, value in (more or {}).items() if name == "cookie"}
        token = self.get("/api/v1/session", {"host": HOST, **cookie}).json["token"]
        headers = {
            "host": HOST,
            "origin": f"http://{HOST}",
            "content-type": "application/json",
            "x-csrf-token": token or "",
            **(more or {}),
        }
        headers.pop(without, None)
        return self.send(method, f"/api/v1/{path}", body if isinstance(body, bytes) else json.dumps(body).encode(), headers)

    def send(self, method: str, path: str, body: bytes, headers: Mapping[str, str], address: str = "127.0.0.1") -> Answered:
        """The answer to any request."""
        return asyncio.run(self.sent(method, path, body, headers, address))

    async def sent(self, method: str, path: str, body: bytes, headers: Mapping[str, str], address: str = "127.0.0.1") -> Answered:
        """The answer to any request, in the event loop of the test."""
        name, _, query = path.partition("?")
        sent: list[Message] = []
        requests: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if not requests:
                await asyncio.Event().wait()  # the client stays connected
            return requests.pop()

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http", "path": name,
            "raw_path": name.encode(), "root_path": "", "query_string": query.encode(), "client": (address, 1), "server": None,
            "headers": [(key.encode(), value.encode()) for key, value in headers.items()],
        }  # fmt: skip
        await self._app(scope, receive, send)
        answered = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
        return Answered(sent[0]["status"], answered, b"".join(message.get("body", b"") for message in sent[1:]))
