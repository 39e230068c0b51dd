"""Names the numbers for waits until records are safe. Not compiled: compiled modules use them as C constants."""

from typing import Final

from ottla.protocol.errors import ErrorCode

ACKS_ALL: Final = -1
FLUSH_TIMEOUT_MS: Final = 60_000
"""Minimum time that acks=1 waits for the disk, ms; the producer's own timeout is meant for replicas."""

NONE: Final = int(ErrorCode.NONE)
REQUEST_TIMED_OUT: Final = int(ErrorCode.REQUEST_TIMED_OUT)
