"""Declares the ports to a remote store and to the metadata of its segments (KIP-405: RemoteStorageManager, RemoteLogMetadataManager)."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from ottla.storage.remote.entries import Accepts, SegmentEntry, SegmentUpdate, TopicIdPartition, any_copy


class IndexKind(IntEnum):
    """The parts of a segment beside its records, as IndexType of RemoteStorageManager."""

    OFFSET = 0
    TIMESTAMP = 1
    PRODUCER_SNAPSHOT = 2
    TRANSACTION = 3
    LEADER_EPOCH = 4


class RemoteStoreError(Exception):
    """The store did not do what it was asked. The text names the object and the reason; the caller retries with a back-off."""


class RemoteObjectMissing(RemoteStoreError):
    """The store answers, and does not have the object, or not all of it."""


class RemoteObjectDamaged(RemoteStoreError):
    """An object of a copy is in the store, and is not what was copied."""


class StoreClockApart(RemoteStoreError):
    """The clocks of the store and of this broker differ by minutes: nothing is removed, because it may not be due yet."""


class RemoteStoreDenied(RemoteStoreError):
    """The store refuses these credentials: a retry is of no use before they change."""


class RemoteStoreAbsent(RemoteStoreError):
    """There is an answer, and it says that the bucket or the directory is not there."""


MAX_INDEX_BYTES: Final = 2048 * 1024 * 1024
"""Largest index that is read, bytes: no segment is larger."""
UNREADABLE: Final = (RemoteObjectMissing, RemoteObjectDamaged)
"""The errors that tell of a copy, and not of the store: they last until its objects are restored."""
ANSWERS: Final = (*UNREADABLE, RemoteStoreDenied, RemoteStoreAbsent)
"""The errors that tell of a store that was reached. The others may pass without a change by the operator."""
OWNER_NAME: Final = ".ottla-cluster-id"
"""The object that names the cluster to which a store belongs."""


class StoredObject(NamedTuple):
    """An object as a listing shows it. `modified_ms` is by the store's clock."""

    name: str
    modified_ms: int


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """Names the files to copy, which stay until the copy ends, and holds the two parts that are made for it.

    `transaction_index` is None if the segment has no such file.
    """

    log: str
    offset_index: str
    time_index: str
    transaction_index: str | None
    producer_snapshot: bytes
    leader_epochs: bytes


class RemoteStore(Protocol):
    """Where segments lie. Methods never block the event loop; those that may take long bound their time themselves.

    A cancelled call leaves at most objects that the same entry names. All raise RemoteStoreError and its kinds.
    """

    @property
    def chunk_bytes(self) -> int:
        """The bytes of a segment that are best read at once."""

    @property
    def copy_bytes(self) -> int:
        """The memory that a copy takes, beside its SegmentFiles."""

    @property
    def save_bytes(self) -> int:
        """The memory that `save_indexes` takes."""

    async def copy(self, entry: SegmentEntry, files: SegmentFiles) -> bytes | None:
        """Copies all parts, those that readers begin with last, and returns custom metadata for the entry. Repeating it is harmless."""

    async def fetch(self, entry: SegmentEntry, start: int, end: int) -> bytes | memoryview:
        """Reads the bytes [start, end) of the segment's records, positions being those of the local file; exactly as many, or it raises."""

    async def index(self, entry: SegmentEntry, kind: IndexKind, most: int = MAX_INDEX_BYTES) -> bytes:
        """Reads one index whole. A segment without a transaction index has an empty one. Raises for one of more than `most` bytes."""

    async def index_size(self, entry: SegmentEntry, kind: IndexKind) -> int:
        """Returns the bytes of one index, as the store says."""

    async def save_indexes(self, entry: SegmentEntry, paths: Mapping[IndexKind, str]) -> None:
        """Writes indexes to new files, piece by piece. Raises OSError if the disk refuses them; there may be parts of files then.

        Raises for an index of more than MAX_INDEX_BYTES.
        """

    async def manifest(self, entry: SegmentEntry) -> bytes | None:
        """Reads the manifest of a copy, which has its entry; None in a layout without manifests."""

    async def size(self, entry: SegmentEntry) -> int:
        """Returns the bytes of the records as the store has them."""

    async def delete(self, entry: SegmentEntry) -> None:
        """Removes all objects of a copy; done, too, if the store answers that there are none."""

    async def probe(self) -> None:
        """Raises if the store (its bucket, its directory) cannot be reached, is not there, or refuses the credentials."""

    async def now_ms(self) -> int | None:
        """Returns the time of the store's clock at some moment of the call, milliseconds since 1970; None if it has no clock of its own."""

    async def owner(self, claim: str | None = None) -> str | None:
        """Returns the id of the cluster to which the store belongs, None if it has no owner.

        A store without an owner belongs to the cluster `claim` from then on, if that is given.
        """

    def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        """Shows the objects below a prefix, but those that are of no segment by their purpose. The layout names them."""

    async def close(self) -> None:
        """Ends transfers and gives back connections, within 5 s also where the store never answers."""


class RemoteLogMetadata(Protocol):
    """Holds the entries of all segments in the remote store. Lookups are answered from memory.

    They raise MetadataNotReady until all that was written before the partition was followed has been read.
    """

    def follow(self, partition: TopicIdPartition) -> None:
        """Reads the partition's entries from now on: it has a replica here."""

    def unfollow(self, partition: TopicIdPartition) -> None:
        """Forgets the partition."""

    async def when_ready(self, partition: TopicIdPartition) -> None:
        """Returns when lookups of the partition are answered. Raises MetadataNotReady if it is followed no more."""

    async def add(self, entry: SegmentEntry) -> None:
        """Publishes an entry in state COPY_SEGMENT_STARTED, and returns when this broker has read it. Raises MetadataWriteFailed."""

    async def update(self, update: SegmentUpdate) -> None:
        """Publishes a new state, and returns when this broker has read it: look the entry up to see if it was applied."""

    def find(self, partition: TopicIdPartition, epoch: int, offset: int, accepts: Accepts = any_copy) -> SegmentEntry | None:
        """The accepted one of the finished copies that have the offset in that leader epoch; of several, one that begins next to it."""

    def get(self, partition: TopicIdPartition, uuid: bytes) -> SegmentEntry | None:
        """The entry of one copy in its present state."""

    def marked(self, partition: TopicIdPartition) -> SegmentEntry | None:
        """The finished copy in which a leader has noted that the copies of the partition are not those of its log."""

    def highest_offset(self, partition: TopicIdPartition, epoch: int) -> int | None:
        """The largest end offset of finished copies in the epoch."""

    def epochs(self, partition: TopicIdPartition) -> Sequence[int]:
        """The leader epochs that copies have had, in no order."""

    def entries(self, partition: TopicIdPartition, epoch: int) -> Sequence[SegmentEntry]:
        """All entries of an epoch by start offset, unreferenced ones and those being deleted included."""

    def unfinished(self, partition: TopicIdPartition, epoch: int) -> Sequence[SegmentEntry]:
        """The entries of an epoch but those of finished copies, by start offset. There are few, and the others cost nothing."""

    def all_entries(self, partition: TopicIdPartition) -> Sequence[SegmentEntry]:
        """All entries of a partition, also those that no epoch lists any more."""


class MetadataNotReady(Exception):
    """The metadata of the partition is still being read: REPLICA_NOT_AVAILABLE."""


class MetadataWriteFailed(Exception):
    """The entry was not seen within remote.log.metadata.consume.wait.ms, or was refused; whether it was written is not known."""
