"""Turns an error of one partition into its code, for Produce, Fetch, ListOffsets and other requests about partitions."""

from ottla.broker.request.services import DataServices
from ottla.coordination.error_map import error_code
from ottla.protocol.errors import ErrorCode
from ottla.replication.errors import ReplicationError
from ottla.storage.errors import LogDirFailure, StorageError


def partition_error(error: StorageError | ReplicationError, data: DataServices) -> ErrorCode:
    """The code for one partition's answer. A log directory that failed is taken offline first, whichever request found the failure."""
    if isinstance(error, LogDirFailure):
        data.replica_manager.log_manager.report_failure(error)
    return error_code(error)
