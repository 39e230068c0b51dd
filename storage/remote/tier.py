"""Holds what a log knows of its part in the remote store (KIP-405).

A `PartitionLog` with remote storage has a `Tier`. The tasks in `replication/remote` keep it up to date; retention and ListOffsets read it.
"""

from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from ottla.config.topic import TopicConfig
from ottla.storage.remote.entries import Accepts, SegmentEntry, SegmentState, any_copy
from ottla.storage.remote.lineage import NO_OFFSET, NOTHING_COPIED, Epochs, Find, OffsetAndEpoch, epoch_of, first_missing, with_records
from ottla.storage.remote.ports import MetadataNotReady

BROKERS_TOPICS = frozenset(
    ("__consumer_offsets", "__transaction_state", "__share_group_state", "__remote_log_metadata", "__cluster_metadata")
)
"""Topics that brokers need to reach the remote store, or to begin to serve. They are never tiered, whatever their configuration."""


OTHER_LOG: Final = "remote-log-is-another"
"""The file in a partition's directory that tells that the copies in the remote store are those of a lost log."""


class Tier:
    """The part of one log that is in the remote store."""

    __slots__ = ("checked_epoch", "copied", "entries", "find", "is_known", "is_of_other_log", "known_end")

    def __init__(self, known_end: int = 0) -> None:
        self.known_end = known_end
        """The end of the log when this process opened it, or that of a later copy that this process has made."""
        self.copied: OffsetAndEpoch = NOTHING_COPIED
        """The last offset in the store, and its epoch. Kafka's highestOffsetInRemoteStorage."""
        self.find: Find = _not_read
        """Returns the finished copy that has an offset in a leader epoch (`RemoteLogMetadata.find`). Raises MetadataNotReady."""
        self.entries: Callable[[int], Sequence[SegmentEntry]] = _not_read
        """Returns the copies of a leader epoch by start offset (`RemoteLogMetadata.entries`). Raises MetadataNotReady."""
        self.is_known = False
        """Whether `copied` comes from the metadata, which are read after the start."""
        self.checked_epoch = -1
        """The leader epoch in which `is_of_other_log` was found out."""
        self.is_of_other_log = False
        """Whether the copies are those of a log that was lost, and not of this one."""

    def on_truncated(self, end_offset: int) -> None:
        """The log ends there now: what was copied of later records is another history."""
        if self.copied.offset >= end_offset:
            self.copied = OffsetAndEpoch(end_offset - 1, self.copied.epoch)

    def may_have(self, log_start_offset: int, first_base_offset: int) -> bool:
        """Tells if the store may have records from the log start on. `first_base_offset` is that of the first local segment."""
        return not self.is_known or self.copied.offset >= log_start_offset or log_start_offset < first_base_offset

    def may_have_newer(self, first: int, end: int, oldest_ms: int, epochs: Epochs) -> bool:
        """Tells if the store may have a copy with offsets in [first, end) and a timestamp of `oldest_ms` or later.

        A copy that is in the epochs of the log, and not in its lineage, counts, too. So does all that is not known.
        """
        if first >= end:
            return False
        if not self.is_known or epoch_of(epochs, first) is None:
            return True
        try:
            return any(
                entry.max_timestamp_ms >= oldest_ms
                and entry.start_offset < end
                and entry.end_offset >= first
                and entry.state == SegmentState.COPY_SEGMENT_FINISHED
                for epoch, _ in reversed(epochs)
                for entry in reversed(self.entries(epoch))  # the newest one mostly decides
            )
        except MetadataNotReady:
            return True

    def has_all(self, first: int, last: int, log_end_offset: int, epochs: Epochs) -> bool:
        """Tells if the store has all offsets from `first` to `last` of the log, readable. Then the log need not keep them."""
        if last > self.copied.offset or self.is_of_other_log:
            return False
        try:
            return first_missing(first, last, log_end_offset, with_records(epochs), self.find) is None
        except MetadataNotReady:
            return False


def is_tiered(topic: str, config: TopicConfig) -> bool:
    """Tells if closed segments of the topic go to the remote store."""
    return config.has_remote_storage and topic not in BROKERS_TOPICS


def was_tiered(topic: str, config: TopicConfig, checkpoint: int | None, first_base_offset: int) -> bool:
    """Tells if the store may have records of a log whose topic has no remote storage now.

    `checkpoint` is its entry in `log-start-offset-checkpoint`. Only a tiered log has one that is not behind the base of its first
    segment; or any other log, if a crash left an old entry. For such a log the metadata show later that the store has nothing.
    """
    return config.has_remote_store and topic not in BROKERS_TOPICS and checkpoint is not None and checkpoint <= first_base_offset


def _not_read(epoch: int, offset: int = NO_OFFSET, accepts: Accepts = any_copy, /) -> NoReturn:
    """Until the metadata are read: a reader that took the store for empty would pass over all remote records."""
    raise MetadataNotReady("the metadata have not been read yet")
