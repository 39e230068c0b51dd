"""What a cleaner is told of a log with many producers: put together by a thread, while the producers go on."""

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.cleaner import job as cleaner_job
from ottla.storage.cleaner import task as cleaner_task
from ottla.storage.cleaner.choice import log_to_clean
from ottla.storage.cleaner.job import decode_job, encode_job
from ottla.storage.cleaner.task import CleaningTask
from ottla.storage.log.partition_log import PartitionLog
from tests.support.batches import a_batch
from tests.support.cleaners import LIMITS, InlineCleaner
from tests.support.log_manager import Disks, topic
from tests.support.logs import append

MANY = 7


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who gave way to the loop, each time. Seven producers are many."""
    taken: list[str] = []
    monkeypatch.setattr(cleaner_task, "_PRODUCERS_PER_REST", 2)
    monkeypatch.setattr(cleaner_job, "_PRODUCERS_PER_PIECE", 2)
    monkeypatch.setattr(cleaner_task, "yield_to_loop", lambda: taken.append("collect"))
    monkeypatch.setattr(cleaner_job, "yield_to_loop", lambda: taken.append("encode"))
    return taken


def a_task() -> tuple[PartitionLog, CleaningTask]:
    disks = Disks()
    disks.topics["topic"] = dict(topic(cleanup_policy="compact"))
    log = disks.start().get_or_create(TopicPartition("topic", 0), is_new=True)
    for producer_id in range(MANY):
        append(log, a_batch(1, producer_id=producer_id, base_sequence=0))
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    now_ms = log.context.clock.now_ms()
    return log, CleaningTask(log_to_clean(log, None, now_ms), InlineCleaner(log.context.filesystem), LIMITS, now_ms)


def test_the_event_loop_looks_at_no_producer(rests: list[str]) -> None:
    _, task = a_task()
    assert task.job.producers == ()
    job = task.job_with_producers()
    assert job.producers == tuple((producer_id, producer_id, 0) for producer_id in range(MANY))
    assert rests == ["collect"] * (MANY // 2)


def test_a_job_of_many_producers_is_put_into_words_a_piece_at_a_time(rests: list[str]) -> None:
    _, task = a_task()
    job = task.job_with_producers()
    rests.clear()
    assert decode_job(encode_job(job)) == job
    assert rests == ["encode"] * 4


def test_producers_that_write_or_come_meanwhile_do_not_stop_it() -> None:
    log, task = a_task()
    append(log, a_batch(1, producer_id=3, producer_epoch=1, base_sequence=0))
    append(log, a_batch(1, producer_id=MANY, base_sequence=0))
    producers = {producer_id: (offset, epoch) for producer_id, offset, epoch in task.job_with_producers().producers}
    assert producers[3] == (MANY, 1)
    assert producers[4] == (4, 0)
    assert MANY not in producers
