"""Reserves disk space for active segments ahead of appends, so that an append need not allocate blocks (see
`disk_space` for the gain).

Owned by `LogManager`. A segment that has grown by FIRST_BYTES gets as many more, which a thread reserves; when half of
them are used, twice as many, up to MOST_BYTES. So no space is reserved for logs that hardly grow, and about as much as
was written for others. The size of the file remains that of its batches: a crash requires no repair, and other programs
only see a difference in the allocated blocks. `Segment.give_back` returns unused space when the segment rolls, closes,
or had no append for a minute or two (`IdleFiles`).

All reservations of a broker together use at most an eighth of the free space at the time of a request, so that a nearly
full disk is not affected.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.log.context import Submit
from ottla.storage.segment.segment import FIRST_BYTES, NEVER, Segment

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog

MOST_BYTES: Final = 64 * 1024 * 1024
_FREE_FOR_EACH: Final = 8


class Reservations:
    """See the module. Used on the loop."""

    __slots__ = ("_filesystem", "_holders", "_submit")

    def __init__(self, filesystem: FileSystem, submit: Submit) -> None:
        self._filesystem = filesystem
        self._submit = submit
        self._holders: list[Segment] = []

    def reserve(self, log: "PartitionLog") -> None:
        """The active segment has reached `reserve_at`: reserves its next space in a thread."""
        segment = log.segments.active
        segment.reserve_at = NEVER
        start = segment.size
        wanted = min(2 * segment.reserved_bytes or FIRST_BYTES, MOST_BYTES, log.segments.settings.segment_bytes - start)
        if wanted < FIRST_BYTES:
            return  # it is nearly full
        self._holders = holders = [each for each in self._holders if each.reserved_bytes and each is not segment]
        holders.append(segment)
        needed = len(holders) * MOST_BYTES * _FREE_FOR_EACH
        segment.reserved_bytes = wanted
        file = segment.file
        filesystem = self._filesystem
        is_done = False

        def work() -> None:
            nonlocal is_done
            is_done = filesystem.total_and_free_bytes(log.log_dir)[1] >= needed and file.reserve(start, wanted)

        def then(error: BaseException | None) -> None:
            # An error is left to the next writer. The log may have been rolled, cut or closed meanwhile.
            segment.reserved_bytes = wanted if is_done else 0
            if not is_done or log.is_closed:
                return
            if segment is log.segments.active:
                segment.reserve_at = start + wanted - wanted // 2
            elif segment in log.segments and log.truncations.current is None:
                with suppress(OSError):
                    segment.give_back()

        self._submit(f"reserve {log.directory}", work, then)
