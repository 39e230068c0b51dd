"""Describes the remaining work of a log that has ended its active segment and begun another.

A roll is done in two parts, because thousands of logs may roll at the same time, each during an append that waits for it. `roll` does the
part that the append needs: it gives a log file its name, 0.15 ms. The rest follows soon (`complete_roll`, 0.4 ms; `Rolls` completes one per
turn of the loop). It completes and trims the indexes of the ended segment, creates the index files of the new one, writes the snapshot of
the producers, and requests a flush of all that. Callers that need the rest at once call `finish_rolls` first: flushes, truncations,
cleanings, deletions of segments, and closing.

A crash in between leaves a segment above the recovery point without good indexes, as any crash does, and the next start rebuilds them. If
the recovery point has reached the end, the next start would rebuild nothing. In that case the ended segment is completed at once, as Apache
Kafka expects.
"""

from typing import NamedTuple

from storage.segment.segment import Segment

FILES_MADE_LATER = 3
MOST_UNFINISHED = 8
"""Incomplete rolls of a log, each of which holds files open. A log that rolls faster, say with every batch, completes one per roll."""


class Roll(NamedTuple):
    """The remaining work of one roll."""

    ended: Segment | None
    """Segment that must be completed; None if it is complete."""
    begun: Segment
    snapshot: bytes | None
    """Snapshot of the producers at the roll, if it must be written."""
