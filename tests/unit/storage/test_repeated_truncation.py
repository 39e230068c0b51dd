"""Cuts that failed for another reason than the disk: the log stays unusable until the repeated work has succeeded."""

from collections.abc import Callable

import pytest

from ottla.storage.errors import LogBeingTruncated
from ottla.storage.log import truncation as log_truncation
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.producers.state_manager import ProducerStateManager
from tests.support.batches import a_batch
from tests.support.logs import append, read_all
from tests.unit.storage.test_truncation_in_thread import T0, a_broker, check_batches, cut, empty


@pytest.mark.parametrize("begin", [lambda log: cut(log, 10), lambda log: cut(log, 0), lambda log: empty(log, 100)])
@pytest.mark.parametrize("failing", ["_discard", "_remove_unknown_files", "rebuild_producer_state"])
def test_a_cut_that_failed_for_another_reason_than_the_disk_is_repeated(
    failing: str, begin: Callable[[PartitionLog], list[Exception | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    disks, manager, log = a_broker()
    disks_of_reference, _, reference = a_broker()
    begin(reference)
    disks_of_reference.settle()
    with monkeypatch.context() as broken:
        broken.setattr(log_truncation, failing, fail)
        ended = begin(log)
        asked_meanwhile = cut(log, 5)
        disks.background.advance(2500)
    assert [type(each) for each in ended + asked_meanwhile] == [MemoryError, LogBeingTruncated]
    with pytest.raises(LogBeingTruncated):
        append(log, a_batch(2), epoch=9)
    assert manager.offline_log_dirs == []

    disks.background.advance(5000)
    assert log.truncations.current is None
    assert len(ended) == 1
    assert (log.log_start_offset, log.log_end_offset) == (reference.log_start_offset, reference.log_end_offset)
    assert read_all(log) == read_all(reference)
    assert [each.batches for each in log.active_producers()] == [each.batches for each in reference.active_producers()]
    check_batches(log)
    assert append(log, a_batch(2), epoch=9).first_offset == reference.log_end_offset


def test_a_repeated_cut_finds_the_producers_that_were_dropped_before(monkeypatch: pytest.MonkeyPatch) -> None:
    disks, _, log = a_broker()
    with monkeypatch.context() as broken:
        broken.setattr(ProducerStateManager, "_load", fail)
        cut(log, 10)
        disks.background.advance(500)
    disks.background.advance(5000)
    (entry,) = log.active_producers()
    assert entry.last_sequence == 9


def test_a_log_that_is_closed_before_its_cut_is_repeated_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    disks, manager, log = a_broker()
    with monkeypatch.context() as broken:
        broken.setattr(log_truncation, "rebuild_producer_state", fail)
        cut(log, 9)
        disks.settle()
    manager.delete(T0)
    disks.background.advance(5000)
    assert log.truncations.current is None
    assert not disks.background.work


def fail(*_: object, **__: object) -> None:
    raise MemoryError
