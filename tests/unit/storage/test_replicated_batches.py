"""What a follower takes of the batches that its leader sent, and what the log learns of them. test_log_append has the refusals."""

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.errors import RecordBatchTooLarge
from ottla.storage.validation.replicated import judge_replicated
from ottla.storage.validation.rules import ValidationRules
from ottla.storage.validation.run import BatchRun
from tests.support.batches import a_batch

RULES = ValidationRules(TopicPartition("topic", 0), max_message_bytes=1)
SEGMENT_BYTES = 1000


def a_run(*batches: bytearray) -> BatchRun:
    return BatchRun(memoryview(b"".join(batches)))


def test_the_run_tells_which_epochs_follow_that_of_the_log() -> None:
    run = a_run(*(a_batch(2, base_offset=2 * n, leader_epoch=epoch) for n, epoch in enumerate((3, 4, 4, 6))))
    assert judge_replicated(run, RULES, 6, 3, SEGMENT_BYTES) == run.end
    assert (run.first_offset, run.last_offset, run.epochs, run.forgets_epochs) == (0, 7, [(4, 2), (6, 6)], False)


def test_nothing_is_taken_of_a_former_leader() -> None:
    run = a_run(a_batch(leader_epoch=4))
    assert judge_replicated(run, RULES, 3, None, SEGMENT_BYTES) == run.start


def test_the_limits_of_the_topic_are_the_affair_of_the_leader_and_those_of_a_segment_are_not() -> None:
    batch = a_batch()
    assert judge_replicated(a_run(batch), RULES, 0, None, len(batch)) == len(batch)
    with pytest.raises(RecordBatchTooLarge):
        judge_replicated(a_run(batch), RULES, 0, None, len(batch) - 1)
