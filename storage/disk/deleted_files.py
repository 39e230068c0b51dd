"""Closes deleted files without blocking: the last close of such a file frees its pages and blocks, which takes some 100
ms for 2 GiB.

A slow or vanished consumer may have a segment open for longer than the delay of its deletion. `RealFile` calls this when its last reference
is dropped, in any thread; usually that is the event loop's.
"""

import _thread  # threading.Thread takes locks, which the code that a finalizer interrupts may hold
import os

LARGE_BYTES = 8 * 1024 * 1024
"""Size from which a thread closes the file; freeing as much takes a millisecond."""
_BLOCK_BYTES = 512


def close_file(descriptor: int) -> None:
    """Closes the descriptor; in a thread of its own if that takes long."""
    found = os.fstat(descriptor)
    if found.st_nlink == 0 and found.st_blocks * _BLOCK_BYTES >= LARGE_BYTES:
        try:
            _thread.start_new_thread(os.close, (descriptor,))
        except RuntimeError:
            pass  # the interpreter is ending, or there are too many threads
        else:
            return
    os.close(descriptor)
