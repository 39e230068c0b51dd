"""What can go wrong between a command and a cluster. The text of each says what happened and, where it can be known, what to do."""

from collections.abc import Mapping

from protocol.errors import ErrorCode


class ClientError(Exception):
    """Base of everything here; commands print it and end with status 1."""


class Unreachable(ClientError):
    """No connection can be made."""


class ConnectionLost(ClientError):
    """The broker closed the connection, or did not answer in time."""


class UnsupportedByBroker(ClientError):
    """The broker does not speak the API, or no version of it that we speak."""


class DoesNotFit(ClientError):
    """A number is too large for its field in the request, or too small; nothing was sent."""


class Refused(ClientError):
    """A broker answered with an error. `code` is the error, `what` the thing it is about."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        self.code = ErrorCode.of(code)
        self.what = what
        super().__init__(f"{what}: {message or self.code.message} ({self.code.name})")


class SomeRefused(ClientError):
    """Some of the things asked for in one command failed; the others were done."""

    def __init__(self, errors: Mapping[str, ClientError]) -> None:
        self.errors = errors
        super().__init__("\n".join(str(error) for error in errors.values()))


def check(what: str, code: int, message: str | None = None) -> None:
    """Raises Refused unless the code is NONE."""
    if code != ErrorCode.NONE:
        raise Refused(what, code, message)
