"""Defines the errors of the client. The text contains the failure and, if it is known, the remedy."""

from collections.abc import Mapping

from ottla.protocol.errors import ErrorCode


class ClientError(Exception):
    """Base of all client errors; commands print it and end with status 1."""


class Unreachable(ClientError):
    """No connection can be established."""


class ConnectionLost(ClientError):
    """The broker closed the connection, or did not answer in time."""


class NotAuthenticated(ClientError):
    """The broker refused the login, or this client does not trust the broker. A retry would fail in the same way."""


class UnsupportedByBroker(ClientError):
    """The broker does not support the API, or none of the versions that this client supports."""


class DoesNotFit(ClientError):
    """A number is out of the range of its field in the request; nothing was sent."""


class Refused(ClientError):
    """A broker answered with an error. `code` is the error, `what` its subject."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        self.code = ErrorCode.of(code)
        self.what = what
        super().__init__(f"{what}: {message or self.code.message} ({self.code.name})")

    def add(self, text: str) -> None:
        """Add to the text of the error."""
        self.args = (f"{self}{text}",)


class SomeRefused(ClientError):
    """Some parts of a command failed; the others were done."""

    def __init__(self, errors: Mapping[str, ClientError]) -> None:
        self.errors = errors
        super().__init__("\n".join(str(error) for error in errors.values()))


def check(what: str, code: int, message: str | None = None) -> None:
    """Raises Refused unless the code is NONE."""
    if code != ErrorCode.NONE:
        raise Refused(what, code, message)
