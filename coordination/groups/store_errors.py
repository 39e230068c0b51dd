"""Maps the errors of an append of a group's records to the errors that members get."""

from ottla.coordination.partitions.topic_log import UNAVAILABLE
from ottla.protocol.errors import ErrorCode

STORE_ERRORS = {
    **UNAVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The code for the members, by the error of an append of group metadata."""
