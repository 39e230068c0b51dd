"""Prepares the process of a broker or of a supervisor: signals, standard streams, limit of open files."""

import logging
import os
import resource
import signal
import sys
from functools import cache
from typing import Any, Final

from ottla.protocol.compiled import compiled

logger = logging.getLogger(__name__)

MAPPED_FROM_BYTES: Final = 1024 * 1024
"""Size from which malloc maps a block separately, and gives it back to the system as soon as it is freed, in bytes."""
TLS_BUFFER_BYTES: Final = 256 * 1024
"""Size of the buffer that uvloop makes for each TLS connection, in bytes."""
KEPT_BYTES: Final = 4 * 1024 * 1024
"""Freed memory that the process keeps, in bytes."""


def ending_signals() -> tuple[signal.Signals, ...]:
    """The signals that end the process cleanly, the same as Apache Kafka's. `nohup` ignores the hangup, which then stays ignored."""
    hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    return signal.SIGTERM, signal.SIGINT, *hangup


def fill_standard_streams() -> None:
    """Open /dev/null in place of a closed standard input, output or error.

    Otherwise the next connection would get that descriptor, and libuv ends a process that closes a connection with such a number.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard limit. Every partition in use needs a file, and every connection another."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            logger.warning("at most %d files can be open, partitions and connections together: %s", soft, error)
        else:
            logger.info("at most %d files can be open, partitions and connections together; the limit was %d", hard, soft)


def keep_freed_memory() -> None:
    """Keeps some memory for the next answers instead of giving it back to the system after each.

    glibc gives back what two large answers take, and the next two cost a page fault for each 4 KiB: 55 µs of the 200 for a Fetch of ten
    partitions of 16 KiB. Without the compiled modules nothing happens.
    """
    _allocate(MAPPED_FROM_BYTES)


def map_tls_buffers() -> None:
    """Gives each buffer of uvloop's TLS pages of its own, until `keep_freed_memory` is called again.

    Of such a buffer an idle connection has only ever used the first page. In the heap, what a handshake frees lies between two buffers and
    is too small for the next: 22 KiB for each idle connection.
    """
    _allocate(TLS_BUFFER_BYTES)


@cache
def _native() -> Any:
    """The module with the system calls; None without it. To import it again for each TLS connection would cost 15 µs."""
    return compiled("ottla.broker.network.native")


def give_back_freed_memory() -> None:
    """Gives the memory that is free back to the system, also what lies between used blocks. For a thread."""
    native = _native()
    if native is not None:
        native.give_back_freed_memory(KEPT_BYTES)


def _allocate(mapped_from: int) -> None:
    native = _native()
    if native is not None:
        native.keep_freed_memory(mapped_from, KEPT_BYTES)


def say(line: str) -> None:
    """Print a line. A broker whose standard output cannot be written serves all the same."""
    try:
        print(line, flush=True)
    except OSError as error:
        logger.warning("%s cannot be written to standard output: %s", line, error)
        # Otherwise Python flushes once more at exit, fails again, and changes the exit status.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
