"""Ends all processes that a test started, even when the test process is killed with SIGKILL.

One small process per test process reads a pipe that only the test process holds open. The pipe names the processes to watch and the folders
to remove. When the pipe ends, for whatever reason, the small process kills the watched processes that remain, and removes the folders. It
holds a pidfd per process, so it never hits another process that got the same number meanwhile. PR_SET_PDEATHSIG would not be enough: it
fires when the *thread* that started the process ends.
"""

import atexit
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

_KILL_SECONDS = 10


class ProcessGuard:
    """The end of the pipe that the test process holds. Use `process_guard()`: one is enough for all that a process starts."""

    def __init__(self) -> None:
        # A session of its own: Ctrl-C in the terminal must not end the guard before the guarded.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
        )

    def watch(self, pid: int) -> None:
        """Kill this process when the test process ends, unless it is released before."""
        self._tell(f"watch {pid}")

    def release(self, pid: int) -> None:
        """The process has ended and was waited for."""
        self._tell(f"release {pid}")

    def end(self, process: subprocess.Popen[bytes], how: signal.Signals, patience_s: float) -> None:
        """Signal a watched process, if it still runs, and wait for its end; SIGKILL follows when a polite request is not heeded."""
        if process.poll() is None:
            process.send_signal(how)
            try:
                process.wait(patience_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.release(process.pid)

    def remove_tree(self, directory: Path) -> None:
        """Remove this folder when the test process ends, after every watched process is gone."""
        self._tell(f"remove {directory.absolute()}")

    def close(self) -> None:
        """Kill and remove everything that is left, now."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait(2 * _KILL_SECONDS)

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()


_guards: dict[int, ProcessGuard] = {}


def process_guard() -> ProcessGuard:
    """The guard of this process, started at first use."""
    pid = os.getpid()  # a fork must not speak through the pipe of its parent
    if pid not in _guards:
        _guards[pid] = ProcessGuard()
        atexit.register(_guards[pid].close)
    return _guards[pid]


def _guard_until_the_pipe_ends() -> None:
    watched: dict[int, int] = {}
    trees: list[str] = []
    for line in sys.stdin:
        verb, _, argument = line.rstrip("\n").partition(" ")
        if verb == "watch":
            try:
                watched[int(argument)] = os.pidfd_open(int(argument))
            except ProcessLookupError:
                continue  # it ended before it could be watched
        elif verb == "release":
            descriptor = watched.pop(int(argument), None)
            if descriptor is not None:
                os.close(descriptor)
        elif verb == "remove":
            trees.append(argument)
    for descriptor in watched.values():
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            continue
    for descriptor in watched.values():
        select.select([descriptor], [], [], _KILL_SECONDS)
    for tree in trees:
        shutil.rmtree(tree, ignore_errors=True)


if __name__ == "__main__":
    _guard_until_the_pipe_ends()
