"""Builds the console's HTTP application: the routes of the API, and the page.

Reads and changes are functions of a cluster, which know nothing of HTTP. Every change is written to the audit log.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path as FilePath
from typing import Final, NamedTuple

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError
from ottla.console import control, group_changes, security, topic_changes, views
from ottla.console.answers import error_answer, json_answer, one_line
from ottla.console.clusters import CLUSTER, Clusters, Served
from ottla.console.guard import API, SESSION_PATH, Guard, Rules, address_of, session_of
from ottla.console.login.sessions import SESSION_SECONDS, Session, TooManyAttempts, WrongPassword, cookie_name
from ottla.console.parameters import MAX_BODY_BYTES, BadParameter, Body
from ottla.console.remote import topic_remote
from ottla.console.share_records import share_records
from ottla.console.streams import Streams
from ottla.console.topic_changes import Path

STATIC: Final = FilePath(__file__).parent / "static"
MAX_LOGIN_BYTES: Final = 16 * 1024
"""Size of the body of a login, bytes; unauthenticated clients send it."""

Read = Callable[[Cluster, Request], views.View]


class _AnyName(PathConvertor):
    """A name that may contain slashes and line ends."""

    regex = "(?s:.*)"


register_url_convertor("any", _AnyName())


class Change(NamedTuple):
    """A request that changes something: its method and path, its name in the audit log, and the function that does it."""

    method: str
    path: str
    action: str
    carry_out: Callable[[Cluster, Path, Body], views.View]
    hidden: frozenset[str] = frozenset()
    """Fields whose values do not go into the audit log."""


READS: Final[dict[str, Read]] = {
    "overview": lambda cluster, _: views.overview(cluster),
    "brokers/{broker}/configs": lambda cluster, request: views.broker_configs(
        cluster, topic_changes.broker_name(request.path_params["broker"])
    ),
    "topics": lambda cluster, _: views.topics(cluster),
    "topics/{name}": lambda cluster, request: views.topic(cluster, request.path_params["name"]),
    "topics/{name}/groups": lambda cluster, request: views.topic_groups(cluster, request.path_params["name"]),
    "topics/{name}/remote": lambda cluster, request: topic_remote(cluster, request.path_params["name"]),
    "topics/{name}/producers": lambda cluster, request: control.producers(cluster, request.path_params["name"], request.query_params),
    "groups": lambda cluster, _: views.groups(cluster),
    "groups/{name:any}": lambda cluster, request: views.group(cluster, _path(request)["name"]),
    "group-reset": lambda cluster, request: group_changes.planned_reset(cluster, request.query_params),
    "group-records": lambda cluster, request: share_records(cluster, request.query_params),
    "reassignments": lambda cluster, _: control.moves(cluster),
    "reassignment-plan": lambda cluster, request: control.planned_moves(cluster, request.query_params),
    "transactions": lambda cluster, request: control.transactions(cluster, request.query_params),
    "transactions/{name:any}": lambda cluster, request: control.transaction(cluster, _path(request)["name"]),
    "hanging-transactions": lambda cluster, request: control.hanging_transactions(cluster, request.query_params),
    "acls": lambda cluster, request: security.acls(cluster, request.query_params),
    "users": lambda cluster, _: security.users(cluster),
    "quotas": lambda cluster, _: security.quotas(cluster),
}
"""The functions that answer GET, by path below the API."""


async def _brokers(served: Served) -> views.View:
    return (await served.inventory.get()).brokers


async def _sizes(served: Served) -> views.View:
    return (await served.inventory.get()).sizes


async def _findings(served: Served) -> views.View:
    return await served.findings.get()


KEPT: Final[dict[str, Callable[[Served], Awaitable[views.View]]]] = {
    "brokers": _brokers,
    "topic-sizes": _sizes,
    "findings": _findings,
}
"""The answers to GET, by path, that cost the brokers much. Several requests share one."""

CHANGES: Final = (
    Change("POST", "topics", "create topic", topic_changes.create),
    Change("DELETE", "topics/{name}", "delete topic", topic_changes.delete),
    Change("POST", "topics/{name}/partitions", "add partitions", topic_changes.add_partitions),
    Change("PATCH", "topics/{name}/configs", "change topic configs", topic_changes.change_topic_configs),
    Change(
        "PATCH",
        "brokers/{broker}/configs",
        "change broker configs",
        topic_changes.change_broker_configs,
        frozenset({"set", "append", "subtract"}),
    ),
    Change(
        "POST",
        "topics/{name}/records",
        "produce",
        topic_changes.produce,
        frozenset({"key", "key_base64", "value", "value_base64", "headers"}),
    ),
    Change("DELETE", "topics/{name}/records", "delete records", topic_changes.delete_before),
    Change("POST", "group-reset", "reset offsets", group_changes.apply_reset),
    Change("DELETE", "group-offsets", "delete offsets", group_changes.forget_offsets),
    Change("DELETE", "groups/{name:any}", "delete group", group_changes.delete_group),
    Change("POST", "elections", "elect leaders", control.elect),
    Change("POST", "reassignments", "reassign partitions", control.start_moves),
    Change("DELETE", "reassignments", "cancel reassignments", control.cancel_moves),
    Change("DELETE", "replication-throttles", "remove throttles", control.clear_throttles),
    Change("POST", "transaction-abort", "abort transaction", control.abort),
    Change("POST", "transaction-forget", "forget transaction", control.forget),
    Change("POST", "acls", "add ACL", security.add_acl),
    Change("DELETE", "acls", "remove ACL", security.remove_acl),
    Change("PUT", "users/{name:any}", "set user", security.set_user, frozenset({"password"})),
    Change("DELETE", "users/{name:any}", "delete user", security.delete_user),
    Change("PATCH", "quotas", "change quotas", security.change_quotas),
)


def application(clusters: Clusters, rules: Rules) -> Starlette:
    """The application. Paths that name no cluster are those of the first one."""
    streams = Streams(clusters)

    def page(_: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    routes = [
        Route("/", page),
        Route(SESSION_PATH, lambda request: _shown_session(rules, request)),
        Route(SESSION_PATH, _endpoint(lambda request: _log_in(rules, request)), methods=["POST"]),
        Route(SESSION_PATH, lambda request: _log_out(rules, request), methods=["DELETE"]),
        Route(f"{API}clusters", lambda _: json_answer({"clusters": [{"name": each.name} for each in clusters]})),
        *_routes(API, clusters, streams, rules),
        *_routes(f"{API}clusters/{{{CLUSTER}}}/", clusters, streams, rules),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]

    @asynccontextmanager
    async def sampling(_: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(each.sample()) for each in clusters]
        yield
        for task in tasks:
            task.cancel()

    middleware = [Middleware(Guard, rules=rules), Middleware(GZipMiddleware, compresslevel=4)]
    return Starlette(routes=routes, middleware=middleware, exception_handlers={HTTPException: _plain_error}, lifespan=sampling)


def _routes(prefix: str, clusters: Clusters, streams: Streams, rules: Rules) -> list[Route]:
    """The part of the API that is about one cluster."""
    return [
        Route(f"{prefix}topics/{{name}}/records", streams.search),
        Route(f"{prefix}topics/{{name}}/whole", streams.whole),
        Route(f"{prefix}topics/{{name}}/live", streams.live),
        Route(f"{prefix}topics/{{name}}/export", streams.export),
        *(Route(prefix + change.path, _changing(clusters, rules, change), methods=[change.method]) for change in CHANGES),
        *(Route(prefix + path, _reading(clusters, read)) for path, read in READS.items()),
        Route(f"{prefix}history", lambda request: _shown_history(clusters, request)),
        Route(f"{prefix}group-lags", lambda request: json_answer(clusters.of(request).sampler.lags())),
        *(Route(prefix + path, _reading_kept(clusters, kept)) for path, kept in KEPT.items()),
    ]


def _plain_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return json_answer({"error": error.detail}, error.status_code)


def _path(request: Request) -> Path:
    """The parts of the path by name. A parameter gives the name that the path lacks: clients take `.` and `..` in a path for steps."""
    path = {name: value for name, value in request.path_params.items() if name != CLUSTER}
    if path.get("name") == "":
        path["name"] = request.query_params.get("name", "")
    return path


def _endpoint(answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that takes a body. A client that leaves in the middle of it gets no answer."""

    async def endpoint(request: Request) -> Response:
        try:
            return await answer(request)
        except BadParameter as error:
            return error_answer(error)
        except ClientDisconnect:
            return Response(status_code=HTTPStatus.BAD_REQUEST)

    return endpoint


async def _body(request: Request, most: int = MAX_BODY_BYTES) -> bytes:
    """The body of a request, up to its limit. Raises BadParameter."""
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > most:
            raise BadParameter(f"the body has more than {most} bytes")
    return bytes(found)


def _reading(clusters: Clusters, read: Read) -> Callable[[Request], Awaitable[Response]]:
    def answer(served: Served, request: Request) -> Response:
        try:
            with served.connect_briefly() as cluster:
                return json_answer(read(cluster, request))
        except (BadParameter, ClientError) as error:
            return error_answer(error)

    async def endpoint(request: Request) -> Response:
        served = clusters.of(request)
        return await served.in_thread(answer, served, request)

    return endpoint


def _reading_kept(clusters: Clusters, kept: Callable[[Served], Awaitable[views.View]]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        served = clusters.of(request)
        try:
            found = await kept(served)
        except ClientError as error:
            return error_answer(error)
        return await served.in_thread(json_answer, found)

    return endpoint


def _shown_history(clusters: Clusters, request: Request) -> Response:
    """The samples of a cluster, or of one of its topics or groups."""
    topic, group = request.query_params.get("topic"), request.query_params.get("group")
    if topic is not None and group is not None:
        return error_answer(BadParameter("topic and group exclude each other"))
    sampler = clusters.of(request).sampler
    return json_answer(sampler.view(topic, "topic") if group is None else sampler.view(group, "group"))


def _changing(clusters: Clusters, rules: Rules, change: Change) -> Callable[[Request], Awaitable[Response]]:
    def carry_out(served: Served, request: Request, body: Body, session: Session) -> Response:
        who = session.user, address_of(request.scope), change.action
        path = _path(request)
        what = {**path, **body.described(change.hidden)}
        try:
            with served.connect() as cluster:
                answer = change.carry_out(cluster, path, body)
        except BadParameter as error:
            rules.audit.refused(*who, one_line(error))
            return error_answer(error)
        except ClientError as error:
            rules.audit.failed(*who, what, served.name, one_line(error))
            return error_answer(error)
        rules.audit.done(*who, what, served.name)
        return json_answer(answer)

    async def answer(request: Request) -> Response:
        served, session = clusters.of(request), session_of(request)
        assert session is not None  # the guard
        body = Body.parse(await _body(request))
        return await served.in_thread(carry_out, served, request, body, session)

    return _endpoint(answer)


def _session_view(rules: Rules, session: Session | None) -> views.View:
    return {
        "user": None if session is None else session.user,
        "token": None if session is None else session.token,
        "needs_login": rules.sessions.needs_login,
        "read_only": rules.is_read_only,
    }


def _shown_session(rules: Rules, request: Request) -> Response:
    return json_answer(_session_view(rules, session_of(request)))


async def _log_in(rules: Rules, request: Request) -> Response:
    body = Body.parse(await _body(request, MAX_LOGIN_BYTES))
    body.takes("user", "password")
    user, password, address = body.text("user"), body.text("password"), address_of(request.scope)
    if not rules.sessions.needs_login:
        raise BadParameter("this console has no login")
    try:
        key, session = await run_in_threadpool(rules.sessions.log_in, user, password, address)
    except TooManyAttempts as error:
        rules.audit.refused(user[:100], address, "log in", str(error))
        answer = json_answer({"error": str(error)}, HTTPStatus.TOO_MANY_REQUESTS)
        answer.headers["retry-after"] = str(int(error.seconds) + 1)
        return answer
    except WrongPassword:
        rules.audit.refused(user[:100], address, "log in", "wrong user or password")
        return json_answer({"error": "wrong user or password"}, HTTPStatus.UNAUTHORIZED)
    rules.audit.done(session.user, address, "log in", {})
    answer = json_answer(_session_view(rules, session))
    name = cookie_name(request.headers["host"])
    answer.set_cookie(name, key, max_age=int(SESSION_SECONDS), secure=rules.is_secure, httponly=True, samesite="strict")
    return answer


def _log_out(rules: Rules, request: Request) -> Response:
    session = session_of(request)
    assert session is not None  # the guard
    rules.sessions.log_out(request.scope["headers"])
    rules.audit.done(session.user, address_of(request.scope), "log out", {})
    answer = json_answer(_session_view(rules, None if rules.sessions.needs_login else session))
    answer.delete_cookie(cookie_name(request.headers["host"]), secure=rules.is_secure, httponly=True, samesite="strict")
    return answer
