"""What a supervised process runs: `python -m broker.supervisor.child PARENT ARGUMENTS...` is `ottla ARGUMENTS...` as long as PARENT lives.

The kernel sends SIGTERM when the supervisor is gone, however it went, so that the broker stops as if it had been told to. It is asked here
and not between fork and exec, which would cost the supervisor the cheap way of starting processes.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def follow_parent(parent: int) -> bool:
    """Be told of the end of the parent. False when it has ended already."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    return os.getppid() == parent


def main() -> None:
    """See the module."""
    parent, *arguments = sys.argv[1:]
    if not follow_parent(int(parent)):
        raise SystemExit("ottla: the supervisor ended before its broker began")
    from broker.cli.main import main as ottla

    ottla(arguments, prog_name="ottla")


if __name__ == "__main__":
    main()
