"""Rebuilds a partition's producer state from its snapshots and its log.

Called when a log is opened and after it was truncated. Reads batch headers, and the bodies of control batches only.

A snapshot has only the last batch of each producer. But a producer may have five batches in flight, and repeats all of them if the broker
died before it answered. So the batches before the last one are read from the last bytes of the log.

If a segment is damaged below the recovery point, or has messages of an old format, the producers of later batches in it are not recovered.
The log opens nevertheless: its readable batches are worth more than the detection of duplicates.
"""

import logging
from collections.abc import Callable, Iterator

from ottla.protocol.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK, BatchHeader
from ottla.protocol.records.builder import ControlRecordType, EndTransactionMarker, read_marker
from ottla.protocol.records.errors import RecordFormatError
from ottla.storage.disk.yielding import no_yield
from ottla.storage.producers.state import BATCHES_RETAINED, MAX_SEQUENCE, BatchMetadata, ProducerState
from ottla.storage.producers.state_manager import ProducerStateManager
from ottla.storage.segment.batch_scan import batches_from
from ottla.storage.segment.log_segments import LogSegments
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.transaction_index import AbortedTransaction

log = logging.getLogger(__name__)

TAIL_BYTES = 1 << 20
"""Size of the end of the log that is searched for batches without a snapshot; room for five usual batches of each of a dozen producers."""

_BATCHES_AT_ONCE = 200
"""Batches between two calls of `yield_to_loop`, half a millisecond."""


def rebuild_producer_state(
    manager: ProducerStateManager,
    segments: LogSegments,
    log_start_offset: int,
    last_offset: int,
    now_ms: int,
    *,
    clean: bool = False,
    yield_to_loop: Callable[[], None] = no_yield,
) -> None:
    """Bring `manager` to the state of the log below `last_offset`, and take the snapshots that save the next start this work.

    `clean` means that the log was closed properly. Without any snapshot it then never had a producer, and is not read. `yield_to_loop` is
    called from time to time. May raise OSError.
    """
    bases = segments.bases
    snapshots_at = {*bases[-2:], last_offset}
    if clean and manager.latest_snapshot_offset is None:
        for offset in sorted(snapshots_at):
            manager.map_end_offset = offset
            manager.take_snapshot()
        return
    was_empty = manager.state.is_empty and manager.map_end_offset >= last_offset
    manager.truncate_and_reload(log_start_offset, last_offset, now_ms)
    if last_offset > manager.map_end_offset and not was_empty:
        last_segment = segments.floor(last_offset)
        for segment in segments.between(manager.map_end_offset, last_offset):
            start = max(segment.base_offset, manager.map_end_offset, log_start_offset)
            manager.map_end_offset = start
            if segment.base_offset in snapshots_at:
                manager.take_snapshot()
            try:
                end = segment.size
                if segment is last_segment:
                    found = segment.locate(last_offset)
                    end = segment.size if found is None else found
                found = segment.locate(start)
                if found is not None:
                    replay_batches(manager.state, segment, found, end, yield_to_loop)
            except RecordFormatError as error:
                log.warning("%s: damaged in what was flushed; producers of later batches in it are unknown: %s", segment.path, error)
            segment.release()  # a log may have more segments than the process may open files
    _remember_earlier_batches(manager.state, segments, last_offset, yield_to_loop)
    manager.map_end_offset = last_offset
    manager.take_snapshot()


def replay_batches(state: ProducerState, segment: Segment, position: int, end: int, yield_to_loop: Callable[[], None]) -> None:
    """Update the producer state with the batches between two positions of a segment. Raises OSError, RecordFormatError."""
    file = segment.file
    for number, (at, header) in enumerate(batches_from(file, position, end), 1):
        if number % _BATCHES_AT_ONCE == 0:
            yield_to_loop()
        if header.producer_id >= 0:
            marker = read_marker(file.pread(header.size, at), 0, header) if header.attributes & CONTROL_MASK else None
            replay_producer(state, None, header, marker, header.base_offset)


def _remember_earlier_batches(state: ProducerState, segments: LogSegments, last_offset: int, yield_to_loop: Callable[[], None]) -> None:
    """Complete the last five batches of producers with fewer known ones, as far as the end of the log has them."""
    missing = {
        entry.producer_id: entry
        for entry in state.producers.values()
        if 0 < len(entry.batches) < BATCHES_RETAINED and BatchMetadata(*entry.batches[0]).first_sequence
    }
    if not missing:
        return
    earlier: dict[int, list[tuple[int, int, int, int]]] = {}
    for number, header in enumerate(_tail(segments, last_offset), 1):
        if number % _BATCHES_AT_ONCE == 0:
            yield_to_loop()
        entry = missing.get(header.producer_id)
        if entry is None or header.producer_epoch != entry.producer_epoch or header.attributes & CONTROL_MASK:
            continue
        if header.base_offset < BatchMetadata(*entry.batches[0]).first_offset:
            batch = (header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
            earlier.setdefault(header.producer_id, []).append(batch)
    for producer_id, batches in earlier.items():
        known = missing[producer_id].batches
        while batches and len(known) < BATCHES_RETAINED:
            batch = batches.pop()
            if (batch[0] + 1) % (MAX_SEQUENCE + 1) != BatchMetadata(*known[0]).first_sequence:
                break  # the cleaner removed a batch in between
            known.insert(0, batch)


def _tail(segments: LogSegments, last_offset: int) -> Iterator[BatchHeader]:
    """The batches in the last bytes below `last_offset`, from at most two segments."""
    parts: list[tuple[Segment, int, int]] = []
    remaining = TAIL_BYTES
    for segment in reversed(segments):
        if segment.base_offset >= last_offset:
            continue
        try:
            found = segment.locate(last_offset)
        except RecordFormatError:
            segment.release()
            break
        end = segment.size if found is None else found
        parts.append((segment, _batch_after(segment, end - remaining, last_offset), end))
        remaining -= end
        if remaining <= 0 or len(parts) == 2:
            break
    for segment, start, end in reversed(parts):
        try:
            for _, header in batches_from(segment.file, start, end):
                yield header
        except RecordFormatError:
            pass  # batches behind the damage need not follow those before; the caller compares sequences
        segment.release()


def _batch_after(segment: Segment, position: int, last_offset: int) -> int:
    """The first position at or after `position` where a batch begins according to the offset index; 0 if `position` is not positive."""
    if position <= 0:
        return 0
    low, high = segment.base_offset, last_offset
    while low < high:
        middle = (low + high) // 2
        if segment.offset_index.lookup(middle).position < position:
            low = middle + 1
        else:
            high = middle
    found = segment.offset_index.lookup(low).position
    return found if found >= position else segment.size


def replay_producer(
    state: ProducerState, segment: Segment | None, header: BatchHeader, marker: EndTransactionMarker | None, first_offset: int
) -> None:
    """Update the producer state with one batch of the log. `segment` gets the index entry of an aborted transaction.

    The caller calls its `write_out_transactions` after the last batch.
    """
    if marker is None:
        if not header.attributes & CONTROL_MASK:
            state.on_append(
                header.producer_id,
                header.producer_epoch,
                header.last_sequence,
                first_offset,
                last_offset=first_offset + header.last_offset_delta,
                timestamp=header.max_timestamp,
                is_transactional=bool(header.attributes & TRANSACTIONAL_MASK),
            )
        return
    completed = state.on_marker(
        header.producer_id,
        header.producer_epoch,
        marker.coordinator_epoch,
        first_offset,
        timestamp=header.max_timestamp,
        is_aborted=marker.type is ControlRecordType.ABORT,
    )
    if completed is not None:
        if completed.is_aborted and segment is not None:
            segment.transaction_index.add(
                AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset)
            )
        state.complete(completed)
