"""What answers took of the memory of the process serves the next ones: the system is not asked for it again."""

import subprocess
import sys
from textwrap import dedent

import pytest

from protocol.compiled import IS_COMPILED

ROUNDS = 50
ANSWERS = dedent(
    """
    import resource
    import sys

    from broker.process import keep_freed_memory

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
