"""Disk space that active segments have ahead of what is appended, so that an append need not look for blocks (`disk_space` says what
that is worth).

`LogManager` owns one. A segment that has grown by FIRST_BYTES gets as many more, set aside by a thread; when half of that is used, twice
as much, up to MOST_BYTES. So nothing is held for logs that hardly grow, and about as much as was written for others. The size of the file
stays that of its batches: a crash leaves nothing to mend, and other programs see no difference but in the blocks that the file holds.
`Segment.give_back` returns what was not used: when the segment rolls, closes, or nothing was appended for a minute or two (`IdleFiles`).

A disk that has little left is left alone: all reservations of a broker together hold at most an eighth of what is free when one is asked.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from storage.disk.filesystem import FileSystem
from storage.log.context import Submit
from storage.segment.limits import FIRST_BYTES, NEVER
from storage.segment.segment import Segment

if TYPE_CHECKING:
    from storage.log.partition_log import PartitionLog

MOST_BYTES: Final = 64 * 1024 * 1024
_FREE_FOR_EACH: Final = 8


class Reservations:
    """See the module. Lives on the loop."""

    __slots__ = ("_filesystem", "_holders", "_submit")

    def __init__(self, filesystem: FileSystem, submit: Submit) -> None:
        self._filesystem = filesystem
        self._submit = submit
        self._holders: list[Segment] = []

    def reserve(self, log: "PartitionLog") -> None:
        """The active segment has reached `reserve_at`: have a thread set aside what it needs next."""
        segment = log.active_segment
        segment.reserve_at = NEVER
        start = segment.size
        wanted = min(2 * segment.reserved_bytes or FIRST_BYTES, MOST_BYTES, log.settings.segment_bytes - start)
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
            # An error is for whoever writes there. The log may have rolled, been cut, or closed meanwhile.
            segment.reserved_bytes = wanted if is_done else 0
            if not is_done or log.is_closed:
                return
            if segment is log.active_segment:
                segment.reserve_at = start + wanted - wanted // 2
            elif segment in log.segments and log.truncation is None:
                with suppress(OSError):
                    segment.give_back()

        self._submit(f"reserve {log.directory}", work, then)
