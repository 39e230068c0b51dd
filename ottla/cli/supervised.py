"""Runs `ottla ARGUMENTS...` as a child that stops with its supervisor: the module `ottla.cli.supervised` with the
arguments PARENT ARGUMENTS...

The kernel sends SIGTERM to the broker when the supervisor ends, however it ends, so the broker stops in an orderly way.
The child itself requests that signal. A request between fork and exec (`preexec_fn`) would prevent the supervisor from
starting processes by vfork, which is cheaper.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def follow_parent(parent: int) -> bool:
    """Request SIGTERM at the end of the parent. Returns False when the parent has already ended."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    return os.getppid() == parent


def main() -> None:
    """Run the broker; see the module."""
    parent, *arguments = sys.argv[1:]
    if not follow_parent(int(parent)):
        raise SystemExit("ottla: the supervisor ended before its broker began")
    from ottla.cli.main import main as ottla

    ottla(arguments, prog_name="ottla")


if __name__ == "__main__":
    main()
