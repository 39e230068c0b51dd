"""Rebuilding a partition's producer state from its snapshots and its log.

Called when a log is opened and after it was truncated. Reads batch headers, and the bodies of control batches only.
"""

from protocol.records import CONTROL_MASK
from storage.batch_scan import batches_from
from storage.log_append import read_marker, replay_producer
from storage.log_segments import LogSegments
from storage.producer_state import ProducerState
from storage.producer_state_manager import ProducerStateManager
from storage.segment import Segment


def rebuild_producer_state(
    manager: ProducerStateManager, segments: LogSegments, log_start_offset: int, last_offset: int, now_ms: int, *, clean: bool = False
) -> None:
    """Brings `manager` to what the log below `last_offset` says, and takes the snapshots that spare the next start the work.

    `clean` says that the log was closed properly: without any snapshot it then never had a producer, and is not read. May raise OSError.
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
            end = segment.size
            if segment is last_segment:
                found = segment.locate(last_offset)
                end = segment.size if found is None else found
            found = segment.locate(start)
            if found is not None:
                _replay(manager.state, segment, found, end)
    manager.map_end_offset = last_offset
    manager.take_snapshot()


def _replay(state: ProducerState, segment: Segment, position: int, end: int) -> None:
    file = segment.file
    for at, header in batches_from(file, position, end):
        if header.producer_id >= 0:
            marker = read_marker(file.pread(header.size, at), 0, header) if header.attributes & CONTROL_MASK else None
            replay_producer(state, None, header, marker, header.base_offset)
