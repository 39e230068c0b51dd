"""Declares the sizes in which answers are sent. Not compiled: compiled modules take these numbers as constants in C."""

import mmap
from typing import Final

INLINE_BYTES: Final = 16 * 1024
"""Largest region that is read and written together with its header, because that is cheaper than sending it separately, in bytes."""
ALIGNED_BYTES: Final = 256 * 1024
"""Largest region that is sent from a page boundary on, in bytes. The bytes before the page are sent with the header."""
UNCOPIED_BYTES: Final = 128 * 1024
"""Smallest answer in memory that is sent as separate parts, in bytes. Joining the parts would cost more than passing them singly."""
PAGE_BYTES: Final[int] = mmap.PAGESIZE
PACKET_BYTES: Final = 16 * PAGE_BYTES
"""Bytes that the kernel splices at once."""
PACED_BYTES: Final = 15 * PAGE_BYTES
"""Bytes per call for a socket with pacing: one packet. A second packet in a call would wait for a timer, and every later one, too.

For 1 MiB over loopback with BBR the kernel needs 500 µs in one call and 130 in such pieces; without pacing 133 and 142.
"""
CHUNK_BYTES: Final = 128 * 1024
"""Bytes per read of a thread, and per write to a transport that encrypts them; a multiple of the largest record of TLS, 16 KiB."""
TAIL_BYTES: Final = 16 * 1024
"""The end of an answer that is written to such a transport with the piece before it, in bytes: at most one record more."""
SENDER_TURN_BYTES: Final = 1024 * 1024
"""Bytes of files that one connection sends per turn of the loop."""
