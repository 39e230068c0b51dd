"""Reads the writes to a ZooKeeper in order from its transaction log, for tests that check the order and not only the outcome."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_FILE_HEADER_BYTES = 16
_LENGTH = struct.Struct(">qi")  # checksum, length
_HEADER = struct.Struct(">qiqqi")  # session, cxid, zxid, time, type
_INT = struct.Struct(">i")
_CREATE, _DELETE, _SET_DATA, _MULTI = (1, 15, 19, 21), 2, 5, 14


class Written(NamedTuple):
    """One change of one node. `operation` is create, setData or delete."""

    operation: str
    path: str
    data: bytes | None


def written(directory: Path, root: str = "") -> list[Written]:
    """All changes below `root`, which the paths do not have any more; `directory` is the server's dataDir."""
    found: list[Written] = []
    for path in sorted((directory / "version-2").glob("log.*"), key=lambda path: int(path.suffix[1:], 16)):
        ours = (change for change in _changes(path.read_bytes()) if change.path.startswith(f"{root}/"))
        found += [change._replace(path=change.path.removeprefix(root)) for change in ours]
    return found


def _changes(log: bytes) -> Iterator[Written]:
    at = _FILE_HEADER_BYTES
    while at + _LENGTH.size <= len(log):
        _, length = _LENGTH.unpack_from(log, at)
        if length == 0:  # allocated, and not used yet
            return
        at += _LENGTH.size
        *_, kind = _HEADER.unpack_from(log, at)
        yield from _of(kind, log[at + _HEADER.size : at + length])
        at += length + 1


def _of(kind: int, body: bytes) -> Iterator[Written]:
    if kind == _MULTI:
        (count,) = _INT.unpack_from(body)
        at = _INT.size
        for _ in range(count):
            (part,) = _INT.unpack_from(body, at)
            data, at = _buffer(body, at + _INT.size)
            yield from _of(part, data or b"")
    elif kind in _CREATE or kind in {_SET_DATA, _DELETE}:
        path, at = _buffer(body, 0)
        name = "delete" if kind == _DELETE else "setData" if kind == _SET_DATA else "create"
        data = None if kind == _DELETE else _buffer(body, at)[0]
        yield Written(name, (path or b"").decode(), data)


def _buffer(body: bytes, at: int) -> tuple[bytes | None, int]:
    (length,) = _INT.unpack_from(body, at)
    at += _INT.size
    return (None, at) if length < 0 else (body[at : at + length], at + length)
