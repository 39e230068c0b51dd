"""Finds free TCP ports for servers whose port must be known before they start.

A server that a test kills gives its port back until it starts again. So a port that has no listener may still belong to someone. Each
process therefore takes whole blocks of ports, locks them in a file until it ends, and hands out each of its ports once before it hands
out one again. The blocks lie below those from which `ottla cluster up` chooses and below the kernel's range for
outgoing connections.
"""

import fcntl
import os
import random
import socket
import tempfile
from collections import deque
from functools import cache
from pathlib import Path

__all__ = ["free_ports"]

_BLOCK = 50
_FIRST, _LAST = 10_000, 20_000
_ports: deque[int] = deque()
"""The ports of this process, the one that was handed out longest ago first."""


def free_ports(count: int) -> list[int]:
    """`count` different ports on 127.0.0.1 that nothing listens on, and that no other process of these tests is given."""
    while len(_ports) < 4 * max(count, _BLOCK) and _take_block():
        pass
    candidates = (_ports.popleft() for _ in range(len(_ports)))
    found = []
    for port in candidates:
        _ports.append(port)
        if _is_free(port):
            found.append(port)
            if len(found) == count:
                return found
    raise RuntimeError(f"only {len(found)} of {count} ports are free among {len(_ports)}")


@cache
def _locks() -> int:
    """The file of the locks. It stays empty: a block is locked by the byte whose number is the block's first port."""
    path = Path(tempfile.gettempdir()) / f"ottla-test-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode=0o600)


def _take_block() -> bool:
    """Lock one more block; False when other processes hold them all."""
    for first in random.sample(range(_FIRST, _LAST, _BLOCK), (_LAST - _FIRST) // _BLOCK):
        if first in _ports:
            continue  # A process may lock its own bytes again.
        try:
            fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, first)
        except (BlockingIOError, PermissionError):
            continue
        _ports.extend(range(first, first + _BLOCK))
        return True
    return False


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
