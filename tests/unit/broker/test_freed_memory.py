"""What answers took of the memory of the process serves the next ones: the system is not asked for it again."""

import subprocess
import sys
from textwrap import dedent

import pytest

from ottla.protocol.compiled import IS_COMPILED

ROUNDS = 50
ANSWERS = dedent(
    """
    import resource
    import sys

    from ottla.broker.process import keep_freed_memory

    if sys.argv[1] == "kept":
        keep_freed_memory()

    def answer():
        regions = [bytes(16384) for _ in range(20)]
        return b"".join(regions)

    for _ in range(5):
        answer()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(int(sys.argv[2])):
        answer()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    """
)


def page_faults(how: str) -> int:
    """How many such answers cost, in a process of its own."""
    command = [sys.executable, "-c", ANSWERS, how, str(ROUNDS)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not IS_COMPILED, reason="the C library is told by a compiled module")
def test_an_answer_takes_the_memory_of_the_one_before_it() -> None:
    assert page_faults("kept") < ROUNDS < page_faults("as ever")


TLS_BUFFERS = dedent(
    """
    import ctypes
    import sys

    from ottla.broker.process import TLS_BUFFER_BYTES, keep_freed_memory, map_tls_buffers

    CONNECTIONS = 300
    malloc = ctypes.CDLL(None).malloc
    malloc.restype = ctypes.c_void_p

    def used():
        with open("/proc/self/smaps_rollup") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))

    def connection():
        if sys.argv[1] == "mapped":
            map_tls_buffers()
        buffer = malloc(TLS_BUFFER_BYTES)
        keep_freed_memory()
        ctypes.memset(buffer, 1, 500)
        handshake = [bytes(16_000), bytes(16_000)]
        return bytes(1_000)

    keep_freed_memory()
    kept = [connection() for _ in range(10)]
    before = used()
    kept += [connection() for _ in range(CONNECTIONS)]
    print((used() - before) // CONNECTIONS)
    """
)


@pytest.mark.skipif(not IS_COMPILED, reason="the C library is told by a compiled module")
def test_a_tls_buffer_of_which_little_is_used_takes_little() -> None:
    def kib_of_a_connection(how: str) -> int:
        return int(subprocess.run([sys.executable, "-c", TLS_BUFFERS, how], capture_output=True, text=True, check=True).stdout)

    assert kib_of_a_connection("mapped") < 10 < kib_of_a_connection("as ever")
