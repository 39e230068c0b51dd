"""Closing files whose names are gone: the last one who has such a file open gives its pages and blocks back, which takes some 100 ms for a
GiB. A consumer that takes a response slowly, or is gone without a word, has a segment open for longer than its deletion is put off.

`RealFile` calls this when nobody refers to it any more, in whichever thread that is; mostly it is the event loop's.
"""

import _thread  # threading.Thread takes locks, which whoever is interrupted by the end of an object may hold
import os

LARGE_BYTES = 8 * 1024 * 1024
"""A millisecond."""
_BLOCK_BYTES = 512


def close_file(descriptor: int) -> None:
    """Closes it; in a thread of its own if that takes long."""
    found = os.fstat(descriptor)
    if found.st_nlink == 0 and found.st_blocks * _BLOCK_BYTES >= LARGE_BYTES:
        try:
            _thread.start_new_thread(os.close, (descriptor,))
        except RuntimeError:
            pass  # the interpreter ends, or there are too many
        else:
            return
    os.close(descriptor)
