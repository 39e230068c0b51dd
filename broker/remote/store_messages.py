"""Encodes the messages between a broker (`store_child`) and its store process (`store_worker`), and the errors in them.

A message is its length in four bytes, and a pickle: both ends are the same program. A broker may outlive the files that it was started
from, though, and start a process from newer ones. So each end first sends the digest of its sources as plain bytes, and reads no pickle
before it has compared that of the other.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping
from contextlib import suppress
from enum import IntEnum
from functools import cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.config.errors import ConfigError
from ottla.storage.remote.batch_checks import CorruptChunk
from ottla.storage.remote.ports import ANSWERS, RemoteStoreError, StoreClockApart

MAX_MESSAGE_BYTES: Final = 1025 * 1024 * 1024
"""A message is no longer: a chunk of the largest `chunk.size`, and what is around it."""
CALLS: Final = frozenset({"copy", "fetch", "index", "index_size", "save_indexes", "manifest", "size", "delete", "probe", "now_ms", "owner"})
"""The methods of a RemoteStore that Op.CALL may name."""

_LENGTH: Final = struct.Struct(">I")
_PROTOCOL: Final = 5
"""Of pickle."""
_SOURCES: Final = ("broker/remote", "storage/remote", "config/remote_store.py")
"""Folders and files with what the messages consist of, and what both ends do with them."""


class OtherVersion(Exception):
    """The other end was started from other sources."""


class MalformedMessage(Exception):
    """The other end sends what is no message."""


class Op(IntEnum):
    """The kinds of requests. Each one has its arguments behind it, and then its answer if that is of use."""

    OPEN = 1
    """StoreSettings, secret of the broker. Once, before all others."""
    PREPARE = 2
    """Makes the folder of a store in a directory."""
    CALL = 3
    """Name of a method in CALLS, its arguments; its result."""
    LIST = 4
    """Prefix; a page of a listing, and whether it is the last."""
    NEXT = 5
    """Number of a LIST; the same."""
    HOLD = 6
    """Entry, start, end: fetches these bytes, and holds them."""
    WRITE = 7
    """Number of a HOLD, ChunkCheck, path; Checked."""
    READ = 8
    """Number of a HOLD; its bytes."""
    FORGET = 9
    """Number of any request: stops it, and gives up what it holds. Has no answer."""
    PING = 10
    CLOSE = 11
    """Ends the transfers of the store."""


class Request(NamedTuple):
    """One message of a broker. No other request of it has the number, also of those to former processes."""

    number: int
    op: Op
    arguments: tuple[Any, ...]


class Failure(NamedTuple):
    """An error on its way: a name in `_ERRORS`, and the arguments of that."""

    kind: str
    arguments: tuple[Any, ...]


class Answer(NamedTuple):
    """The one answer to a request: a value, or a failure."""

    number: int
    value: Any
    failure: Failure | None = None


class LogLine(NamedTuple):
    """A line for the log of the broker."""

    logger: str
    level: int
    text: str


_ERRORS: Final[Mapping[str, type[Exception]]] = {
    each.__name__: each for each in (RemoteStoreError, *ANSWERS, StoreClockApart, CorruptChunk, ConfigError, OSError)
}
"""The errors that callers distinguish. All others arrive as RemoteStoreError."""


def failure_of(error: BaseException) -> Failure:
    """Describes an error. A kind that callers do not distinguish becomes the one that it is a kind of."""
    for kind in type(error).__mro__:
        if _ERRORS.get(kind.__name__) is kind:
            break
    else:
        return Failure(RemoteStoreError.__name__, (f"{type(error).__name__}: {error}",))
    if isinstance(error, OSError) and isinstance(error.errno, int):
        return Failure(OSError.__name__, (error.errno, str(error.strerror), None if error.filename is None else str(error.filename)))
    return Failure(kind.__name__, (str(error),))


def error_of(failure: Failure) -> Exception:
    """Returns the error that was described."""
    return _ERRORS[failure.kind](*failure.arguments)


@cache
def hello() -> bytes:
    """Returns what each end sends first. Reads the sources, once: those that this process was started from."""
    return _hello(Path(__file__).parents[2])


def _hello(package: Path) -> bytes:
    digest = blake2b(digest_size=16)
    for name in _SOURCES:
        place = package / name
        for path in sorted(place.glob("*.py")) if place.is_dir() else [place]:
            data = path.read_bytes() if path.exists() else b""
            digest.update(f"{name}/{path.name} {len(data)}\n".encode() + data)
    with suppress(PackageNotFoundError):  # a repeated copy has to have the same compressed bytes
        digest.update(f"zstandard {version('zstandard')}\n".encode())
    return f"ottla store {digest.hexdigest()}\n".encode()


def encoded(message: Request | Answer | LogLine) -> bytes:
    """Encodes a message. Raises MalformedMessage for one that is too long, and what pickle raises."""
    data = pickle.dumps(message, _PROTOCOL)
    if len(data) > MAX_MESSAGE_BYTES:
        raise MalformedMessage(f"a message of {len(data)} bytes is longer than {MAX_MESSAGE_BYTES}")
    return _LENGTH.pack(len(data)) + data


class MessageReader:
    """Takes the bytes of one connection apart, however they are cut."""

    def __init__(self, expected_hello: bytes) -> None:
        self._expected = expected_hello
        self._is_greeted = False
        self._received = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> list[Any]:
        """Returns the messages that are complete with these bytes. Raises OtherVersion, MalformedMessage, and what pickle raises."""
        received = self._received
        received += data
        if not self._is_greeted:
            expected = self._expected
            if received[: len(expected)] != expected[: len(received)]:
                raise OtherVersion
            if len(received) < len(expected):
                return []
            self._is_greeted = True
            del received[: len(expected)]
        found: list[Any] = []
        at = 0
        with memoryview(received) as view:
            while len(view) - at >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(view, at)
                if length > MAX_MESSAGE_BYTES:
                    raise MalformedMessage(f"a message of {length} bytes is longer than {MAX_MESSAGE_BYTES}")
                begin = at + _LENGTH.size
                if len(view) < begin + length:
                    break
                at = begin + length
                with view[begin:at] as part:
                    found.append(pickle.loads(part))
        del received[:at]
        return found
