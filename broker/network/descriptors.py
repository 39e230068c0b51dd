"""Bounds the descriptors that connections may take, so that the others are left for logs.

Without a free one the operations of logs would fail, those of all clients. `acceptor` asks for each connection, `sendfile` for each client
that reads slowly.
"""

import errno
import os
import resource
import socket
import sys


def files_for_connections(limit: int) -> int:
    """Number of open files from which on connections take no more, by the limit of the process."""
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit - max(limit // 8, 16)


def duplicate(sock: socket.socket) -> int:
    """Another descriptor of the socket. Raises OSError when connections have all that they may take."""
    lowest = os.dup(sock.fileno())  # the system returns the lowest free number
    if lowest < files_for_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0]):
        return lowest
    os.close(lowest)
    raise OSError(errno.EMFILE, f"{lowest} files are open, the others are for logs")
