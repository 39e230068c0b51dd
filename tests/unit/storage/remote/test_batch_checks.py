"""A batch of a copy is compared with the entry of the copy."""

import pytest

from ottla.storage.remote.batch_checks import CorruptChunk, check_header
from tests.support.batches import a_batch, a_record
from tests.support.logs import a_log, append
from tests.support.remote_segments import an_entry

ENTRY = an_entry(0, 9, {3: 4, 5: 7}, size=1000)
"""The log of its writer began at offset 4, so it had forgotten the epochs of the records before."""


def a_written_batch(offset: int, epoch: int) -> bytes:
    log = a_log()
    log.truncations.truncate_fully_and_start_at(offset)
    append(log, a_batch([a_record()]), epoch=epoch)
    return log.segments.active.file.pread(1000, 0)


@pytest.mark.parametrize(("offset", "epoch"), [(0, 0), (3, 2), (3, 3), (4, 3), (7, 5)])
def test_a_batch_is_of_an_epoch_of_the_entry_or_of_an_older_one_before_those(offset: int, epoch: int) -> None:
    assert check_header(a_written_batch(offset, epoch), 0, 0, ENTRY).base_offset == offset


@pytest.mark.parametrize(("offset", "epoch"), [(3, 4), (4, 2), (7, 4), (8, 6)])
def test_a_batch_of_another_epoch_is_refused(offset: int, epoch: int) -> None:
    with pytest.raises(CorruptChunk, match=f"is of epoch {epoch}"):
        check_header(a_written_batch(offset, epoch), 0, 0, ENTRY)
