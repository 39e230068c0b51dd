"""Makes the console's answers: JSON, and for each error a status and one line."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import Response

from ottla.client.errors import (
    ClientError,
    ConnectionLost,
    DoesNotFit,
    NotAuthenticated,
    Refused,
    SomeRefused,
    Unreachable,
    UnsupportedByBroker,
)
from ottla.console.parameters import BadParameter
from ottla.protocol.errors import ErrorCode

_MISSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.RESOURCE_NOT_FOUND,
    }
)
_NOT_ALLOWED: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_NO_ANSWER: Final = (ConnectionLost, NotAuthenticated, Unreachable, UnsupportedByBroker)


class Conflict(ClientError):
    """The cluster is no longer as the user saw it; nothing was changed."""


def json_answer(value: Any, status: int = HTTPStatus.OK) -> Response:
    """An answer with a JSON document; it has only ASCII characters."""
    return Response(json.dumps(value, ensure_ascii=True, separators=(",", ":")), status, media_type="application/json")


def error_answer(error: BadParameter | ClientError) -> Response:
    """The answer for an error that is no fault of the console."""
    return json_answer({"error": one_line(error)}, _status_of(error))


def one_line(error: Exception) -> str:
    """The text of an error; several errors are in one line."""
    return "; ".join(filter(None, (line.strip() for line in str(error).splitlines())))


def _status_of(error: BadParameter | ClientError) -> HTTPStatus:
    if isinstance(error, BadParameter | DoesNotFit):
        return HTTPStatus.BAD_REQUEST
    if isinstance(error, Conflict | SomeRefused):
        return HTTPStatus.CONFLICT
    if not isinstance(error, Refused):
        return HTTPStatus.BAD_GATEWAY if isinstance(error, _NO_ANSWER) else HTTPStatus.CONFLICT
    if error.code in _MISSING:
        return HTTPStatus.NOT_FOUND
    if error.code in _NOT_ALLOWED:
        return HTTPStatus.FORBIDDEN
    return HTTPStatus.BAD_GATEWAY if error.code.retriable else HTTPStatus.CONFLICT
