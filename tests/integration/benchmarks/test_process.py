"""What /proc tells about a process, its children and its threads."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.brokers import process

BUSY_PARENT_WITH_A_CHILD = """
import subprocess, sys, threading, time
block = bytearray(b"x" * 64_000_000)
while time.process_time() < 0.2:
    pass
threading.Thread(target=threading.Event().wait, daemon=True).start()
child = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
sys.stdin.read()
child.kill()
child.wait()
"""


@contextmanager
def a_busy_process() -> Iterator[tuple[int, int]]:
    """(its pid, its child's pid), after it has used 0.2 s of processor time and 64 MB."""
    command = [sys.executable, "-c", BUSY_PARENT_WITH_A_CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as busy:
        assert busy.stdout is not None
        yield busy.pid, int(busy.stdout.readline())
        busy.communicate()


def test_a_tree_is_the_process_and_its_children() -> None:
    with a_busy_process() as (pid, child):
        assert process.tree(pid) == [pid, child]


def test_processor_time_and_memory_are_those_of_the_process() -> None:
    with a_busy_process() as (pid, _):
        assert process.cpu_s(pid) >= 0.19
        assert process.compiler_cpu_s(pid) == 0
        assert 64_000_000 < process.resident_bytes(pid) <= process.peak_resident_bytes(pid) < 1_000_000_000


def test_a_process_that_has_ended_costs_nothing() -> None:
    with a_busy_process() as (pid, _):
        pass

    assert (process.cpu_s(pid), process.resident_bytes(pid), process.tree(pid)) == (0, 0, [pid])


BUSY_CHILD_THAT_ENDS = """
import subprocess, sys
spin = "import sys, time\\nwhile time.process_time() < 0.3: pass\\nprint(flush=True); sys.stdin.read()"
child = subprocess.Popen([sys.executable, "-c", spin], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(flush=True)
sys.stdin.readline()
child.communicate()
print(flush=True)
sys.stdin.read()
"""


def test_the_processor_time_of_a_child_still_counts_when_the_child_has_ended() -> None:
    command = [sys.executable, "-c", BUSY_CHILD_THAT_ENDS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdout.readline()
        before = process.cpu_s(parent.pid)
        assert len(process.tree(parent.pid)) == 2
        parent.stdin.write("\n")
        parent.stdin.flush()
        parent.stdout.readline()
        assert process.tree(parent.pid) == [parent.pid]
        assert process.cpu_s(parent.pid) >= before >= 0.29


def test_binding_reaches_every_thread() -> None:
    core = min(os.sched_getaffinity(0))
    with a_busy_process() as (pid, _):
        process.bind(pid, {core})

        threads = [int(thread) for thread in os.listdir(f"/proc/{pid}/task")]
        assert len(threads) == 2
        assert all(os.sched_getaffinity(thread) == {core} for thread in threads)


def test_this_machine_has_been_busy_for_longer_than_this_process() -> None:
    assert process.machine_busy_s() > process.own_s() > 0
    assert process.machine_busy_s() >= process.stolen_s() >= 0
