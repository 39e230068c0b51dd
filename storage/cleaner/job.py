"""Defines the messages between the broker and a cleaner process: jobs and results, as plain data that is sent through a
pipe as JSON.

A job is a snapshot; the log is in use while it runs. The snapshot only has closed segments below the last stable
offset, which do not change. If they do (the log is truncated, deleted, its disk fails), the broker aborts the job.
"""

import json
from typing import NamedTuple

from ottla.storage.disk.yielding import yield_to_loop

_PRODUCERS_PER_PIECE = 1000
"""Producers encoded between two yields, 0.4 ms."""


class CleaningAborted(Exception):
    """The cleaning was aborted; the log is unchanged except for the reported groups."""


class SourceSegment(NamedTuple):
    """A segment to clean. Its files are in the job's directory."""

    base_offset: int
    size: int


class CleaningJob(NamedTuple):
    """One cleaning of one log."""

    log: str
    """The topic partition, for messages."""
    directory: str
    segments: tuple[SourceSegment, ...]
    """All segments that begin below `first_uncleanable_offset`, in order."""
    later_segments: tuple[int, ...]
    """The base offsets of the following segments: they may contain markers of transactions that begin below."""
    first_dirty_offset: int
    first_uncleanable_offset: int
    producers: tuple[tuple[int, int, int], ...]
    """Id, last data offset or -1, and epoch of each active producer."""
    now_ms: int
    delete_retention_ms: int
    segment_settings: dict[str, int]
    """See `LogSettings.to_numbers`."""
    max_message_bytes: int
    map_bytes: int
    load_factor: float
    io_buffer_bytes: int
    max_bytes_per_second: float


class CleanedGroup(NamedTuple):
    """Segments that were cleaned into one, whose files `<base_offset>.*.cleaned` are complete and durable."""

    base_offset: int
    sources: tuple[int, ...]
    """The base offsets of the segments that it replaces."""


class CleaningStats:
    """Statistics of a cleaning. `end_offset` is the first offset that was not cleaned."""

    __slots__ = (
        "buffer_utilization",
        "bytes_read",
        "bytes_written",
        "elapsed_seconds",
        "end_offset",
        "index_seconds",
        "invalid_messages_read",
        "map_bytes_read",
        "messages_read",
        "messages_written",
        "oversized_batches",
    )

    def __init__(self) -> None:
        self.buffer_utilization = 0.0
        self.bytes_read = 0
        self.bytes_written = 0
        self.elapsed_seconds = 0.0
        self.end_offset = 0
        self.index_seconds = 0.0
        self.invalid_messages_read = 0
        self.map_bytes_read = 0
        self.messages_read = 0
        self.messages_written = 0
        self.oversized_batches = 0
        """Batches that cleaning made larger than `max.message.bytes`."""


def encode_job(job: CleaningJob) -> bytes:
    """The job as JSON. For a thread: for many producers it takes long, and yields to the loop."""
    fields = job._asdict()
    del fields["producers"]
    pieces = []
    for first in range(0, len(job.producers), _PRODUCERS_PER_PIECE):
        pieces.append(json.dumps(job.producers[first : first + _PRODUCERS_PER_PIECE])[1:-1].encode())
        yield_to_loop()
    return json.dumps(fields).encode()[:-1] + b', "producers": [' + b", ".join(pieces) + b"]}"


def decode_job(data: bytes) -> CleaningJob:
    """The job from the JSON of `encode_job`."""
    fields = json.loads(data)
    fields["segments"] = tuple(SourceSegment(*segment) for segment in fields["segments"])
    fields["later_segments"] = tuple(fields["later_segments"])
    fields["producers"] = tuple((producer_id, offset, epoch) for producer_id, offset, epoch in fields["producers"])
    return CleaningJob(**fields)


def encode_stats(stats: CleaningStats) -> dict[str, int | float]:
    """The statistics by name."""
    return {name: getattr(stats, name) for name in CleaningStats.__slots__}


def decode_stats(numbers: dict[str, int | float]) -> CleaningStats:
    """The inverse of `encode_stats`."""
    stats = CleaningStats()
    for name, value in numbers.items():
        setattr(stats, name, value)
    return stats
