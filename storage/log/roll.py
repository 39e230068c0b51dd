"""Says what is left to do when a log has ended its active segment and begun another.

A roll is done in two parts, for thousands of logs may roll at the same time, each because of an append that waits for it. `roll` does what
the append needs: a log file with its name, 0.15 ms. Everything else follows soon (`complete_roll`, 0.4 ms; `Rolls` has one done per turn of
the loop): the indexes of the segment that ended are completed and trimmed, those of the new one get their files, the snapshot of the
producers is written, and the flush becomes due that brings all of it to the disk. A caller that needs all of that now calls `finish_rolls`
first: one that flushes, cuts, cleans, deletes segments or closes.

A crash in between leaves what a crash always leaves: a segment above the recovery point without good indexes, which are rebuilt. Where the
recovery point has reached the end, nothing would be: then the segment that ends is closed at once, as Apache Kafka expects to find it.
"""

from typing import NamedTuple

from storage.segment.segment import Segment

FILES_MADE_LATER = 3
MOST_UNFINISHED = 8
"""Of a log. Each holds files open: a log that rolls faster than they are completed, as with every batch, completes one with each roll."""


class Roll(NamedTuple):
    """What is left to do of one."""

    ended: Segment | None
    """The segment to be closed, if that is left to do."""
    begun: Segment
    snapshot: bytes | None
    """Of the producers as they were, if it is to be written."""
