"""What the handlers of partition requests do about an error of one partition: Produce, Fetch, ListOffsets and their like."""

from broker.request.error_map import error_code
from broker.request.services import DataServices
from protocol.errors import ErrorCode
from replication.errors import ReplicationError
from storage.errors import LogDirFailure, StorageError


def partition_error(error: StorageError | ReplicationError, data: DataServices) -> ErrorCode:
    """The code for one partition's answer. A log directory that failed is taken offline first, whoever met the failure."""
    if isinstance(error, LogDirFailure):
        data.replica_manager.on_log_dir_failure(error.log_dir, error.what)
    return error_code(error)
