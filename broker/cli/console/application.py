"""Builds the console's HTTP application: the routes of the API, the page, and the headers that protect both.

It only reads. Requests for another host name (DNS rebinding) and from pages of other sites are refused, so only the
own page sees the answers.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker.cli.console import views
from broker.client.cluster import Cluster
from broker.client.errors import ClientError, Refused
from protocol.errors import ErrorCode

STATIC: Final = Path(__file__).parent / "static"
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_DEFAULT_RECORDS: Final = 50
_LONGEST_NUMBER: Final = 19
_MISSING: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_GROUP_ID}
)
_POLICY: Final = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
_HEADERS: Final = (
    (b"content-security-policy", f"{_POLICY}form-action 'none'; frame-ancestors 'none'".encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)

Connect = Callable[[], Cluster]


class BadParameter(ValueError):
    """A parameter of a request that cannot be used; the text is for the user."""


def application(connect: Connect, names: frozenset[str] = LOOPBACK_NAMES) -> Starlette:
    """The application. `connect` makes a client for each request; `names` are the host names that requests may have."""

    def route(path: str, view: Callable[[Cluster, Request], views.View]) -> Route:
        def answer(request: Request) -> Response:
            return _answer(connect, lambda cluster: view(cluster, request))

        return Route(f"/api/v1/{path}", answer)

    def page(_: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    routes = [
        Route("/", page),
        route("overview", lambda cluster, _: views.overview(cluster)),
        route("topics", lambda cluster, _: views.topics(cluster)),
        route("topics/{name}", lambda cluster, request: views.topic(cluster, request.path_params["name"])),
        route("topics/{name}/records", _records),
        route("groups", lambda cluster, _: views.groups(cluster)),
        route("groups/{name:path}", lambda cluster, request: views.group(cluster, request.path_params["name"])),
        route("findings", lambda cluster, _: views.findings(cluster)),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    return Starlette(routes=routes, middleware=[Middleware(_Guard, names=names), Middleware(GZipMiddleware)])


def _records(cluster: Cluster, request: Request) -> views.View:
    query = request.query_params
    return views.records(
        cluster,
        request.path_params["name"],
        _number(query.get("partition"), "partition") or 0,
        _number(query.get("offset"), "offset"),
        _number(query.get("timestamp"), "timestamp"),
        max(_number(query.get("limit"), "limit") or _DEFAULT_RECORDS, 1),
    )


def _number(text: str | None, name: str) -> int | None:
    """A parameter that is a number from 0 on, if it is given. Raises BadParameter."""
    if text is None or text == "":
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) >= _LONGEST_NUMBER:
        raise BadParameter(f"{name} is not a number")
    return int(text)


def _answer(connect: Connect, view: Callable[[Cluster], views.View]) -> Response:
    try:
        with connect() as cluster:
            return _json(view(cluster), 200)
    except BadParameter as error:
        return _json({"error": str(error)}, 400)
    except Refused as error:
        return _json({"error": str(error)}, 404 if error.code in _MISSING else 502)
    except ClientError as error:
        return _json({"error": str(error)}, 502)


def _json(value: Any, status: int) -> Response:
    return Response(json.dumps(value, ensure_ascii=True, separators=(",", ":")), status, media_type="application/json")


class _Guard:
    """Refuses requests that do not come from the own page, and adds the headers that protect it."""

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name.lower() not in self._names:
            await _json({"error": "the console does not have this host name"}, 421)(scope, receive, protected)
        elif headers.get(b"sec-fetch-site", b"none") not in {b"none", b"same-origin"} and scope["path"] != "/":
            await _json({"error": "requests of other sites are refused"}, 403)(scope, receive, protected)
        else:
            await self._app(scope, receive, protected)
