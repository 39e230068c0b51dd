"""Guards the console's requests: host names, other sites, logins, forged requests, `--read-only`; adds the headers that protect the page.

The API requires a session, except for a login. The page itself has no data, and needs no session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ottla.console.answers import json_answer
from ottla.console.audit import Audit
from ottla.console.login.sessions import Session, Sessions

API: Final = "/api/v1/"
SESSION_PATH: Final = "/api/v1/session"
TOKEN_HEADER: Final = b"x-csrf-token"
_SESSION: Final = "console.session"
_SAFE: Final = frozenset({"GET", "HEAD"})
_POLICY: Final = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
_HEADERS: Final = (
    (b"content-security-policy", f"{_POLICY}form-action 'none'; frame-ancestors 'none'".encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


@dataclass(frozen=True)
class Rules:
    """The rules of a console: `names` are the host names that requests may have; `is_secure`: whether it uses TLS."""

    names: frozenset[str]
    sessions: Sessions
    audit: Audit
    is_read_only: bool = False
    is_secure: bool = False


class _Refusal(Exception):
    """A request that is refused, with a status and a text for the user."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        self.status = status
        super().__init__(text)


class Guard:
    """See the module. An ASGI middleware."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        session = self._rules.sessions.of(scope["headers"])
        try:
            self._check(scope, headers, session)
        except _Refusal as refusal:
            if scope["method"] not in _SAFE:
                action = f"{scope['method']} {scope['path']}"[:200]
                self._rules.audit.refused(None if session is None else session.user, address_of(scope), action, str(refusal))
            await json_answer({"error": str(refusal)}, refusal.status)(scope, receive, protected)
            return
        scope[_SESSION] = session
        await self._app(scope, receive, protected)

    def _check(self, scope: Scope, headers: Mapping[bytes, str], session: Session | None) -> None:
        """Raises _Refusal."""
        host = headers.get(b"host", "").lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name not in self._rules.names:
            raise _Refusal(HTTPStatus.MISDIRECTED_REQUEST, "the console does not have this host name; --name adds one")
        is_safe = scope["method"] in _SAFE
        is_own = headers.get(b"sec-fetch-site", "none") in {"none", "same-origin"}
        origin = headers.get(b"origin")
        if not is_safe and origin is not None:
            # A proxy may speak TLS before a console that does not.
            is_own = is_own and origin.lower() in {f"{scope['scheme']}://{host}", f"https://{host}"}
        if not is_own and scope["path"] != "/":
            raise _Refusal(HTTPStatus.FORBIDDEN, "requests of other sites are refused")
        if not scope["path"].startswith(API):
            return
        if not is_safe and headers.get(b"content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise _Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a request that changes something is application/json")
        if scope["method"] == "HEAD":
            raise _Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "the API has no HEAD")
        if scope["path"] == SESSION_PATH and scope["method"] != "DELETE":
            return
        if session is None:
            raise _Refusal(HTTPStatus.UNAUTHORIZED, self._rules.sessions.advice)
        if is_safe:
            return
        if not session.has_token(headers.get(TOKEN_HEADER, "")):
            raise _Refusal(HTTPStatus.FORBIDDEN, "the X-CSRF-Token header is not that of this session; reload the page")
        if self._rules.is_read_only and scope["path"] != SESSION_PATH:
            raise _Refusal(HTTPStatus.FORBIDDEN, "this console is read-only")


def session_of(request: Request) -> Session | None:
    """The session of a request that passed the guard; None if there is none, which only the path of the session allows."""
    found: Any = request.scope[_SESSION]
    assert found is None or isinstance(found, Session)
    return found


def address_of(scope: Scope) -> str:
    """The address of the client of a request."""
    client = scope.get("client")
    return str(client[0]) if client else "unknown"
