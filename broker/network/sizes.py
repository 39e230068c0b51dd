"""Names the sizes in which answers are sent. Not compiled: compiled modules take these as constants in C."""

import mmap
from typing import Final

INLINE_BYTES: Final = 16 * 1024
"""A region up to this size is cheaper to read and write together with its header than to send by itself."""
ALIGNED_BYTES: Final = 256 * 1024
"""A region up to this size is sent from a page of its file on; what stands before the page is sent with the header."""
UNCOPIED_BYTES: Final = 128 * 1024
"""From this size on an answer in memory leaves in its parts: to put them into one would cost more than to name them to the kernel."""
PAGE_BYTES: Final = mmap.PAGESIZE
PACKET_BYTES: Final = 16 * PAGE_BYTES
"""What the kernel splices at once."""
PACED_BYTES: Final = 15 * PAGE_BYTES
"""What a socket that paces its packets is given at once: a packet. The second of one call would wait for a timer, and each behind it, too:
1 MiB over loopback with BBR costs the kernel 500 µs in one call and 130 in such pieces; without pacing 133 and 142."""
CHUNK_BYTES: Final = 128 * 1024
"""What a thread, or a connection without a socket of its own (TLS), reads at once."""
SENDER_TURN_BYTES: Final = 1024 * 1024
"""What a turn of the loop sends of the files of one connection."""
