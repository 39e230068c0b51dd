"""Names the reasons for which a connection handles no frame now: bits of its state, 0 for none. APPENDED alone lets some frames through."""

from typing import Final

APPENDED: Final = 1  # only appended requests wait for their answer: the handler decides whether the next request may be handled
WAITING: Final = 2  # the last request has no answer yet
QUEUED: Final = 4  # the next request waits for a handler slot
PAUSED: Final = 8  # the client does not read its answers
SENDING: Final = 16  # a file is being sent
CLOSING: Final = 64  # closed after queued bytes are sent
DRAINING: Final = 128  # closed after every due answer is sent
YIELDED: Final = 256  # other connections have their turn; continues in the next turn of the loop
CLOSED: Final = 512
STARVED: Final = 1024  # there is no memory for the incoming request
MUTED: Final = 2048  # the client has exceeded a quota, and waits for its throttle time (KIP-219)
