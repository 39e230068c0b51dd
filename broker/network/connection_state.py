"""Names the reasons why a connection handles no frame now: bits of its state, 0 for none. APPENDED alone lets some frames through."""

from typing import Final

APPENDED: Final = 1  # only requests that are in the log wait for their answer: the next may be handled if its handler says so
WAITING: Final = 2  # the last request has no answer yet
QUEUED: Final = 4  # the next request waits for a handler slot
PAUSED: Final = 8  # the client does not take its answers
SENDING: Final = 16  # a file is on its way
CLOSING: Final = 64  # closed once what is queued is out
DRAINING: Final = 128  # closed once every answer that is owed is out
YIELDED: Final = 256  # others have their turn; goes on in the next turn of the loop
CLOSED: Final = 512
STARVED: Final = 1024  # there is no room for the request that comes in
MUTED: Final = 2048  # the client has used up a quota, and waits for its throttle time (KIP-219)
