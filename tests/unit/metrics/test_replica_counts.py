"""What the metrics count over the partitions of a broker."""

from ottla.broker.metrics.view import ReplicaCounts
from ottla.storage.log.origins import COORDINATOR
from ottla.storage.producers.state import LATE_TRANSACTION_BUFFER_MS
from tests.support.batches import FIRST_TIMESTAMP, a_run
from tests.support.replicas import Replicas, state
from tests.support.transactions import a_marker_batch, write_in_transaction

MAX_TIMEOUT_MS = 900_000
NOT_YET = FIRST_TIMESTAMP + MAX_TIMEOUT_MS + LATE_TRANSACTION_BUFFER_MS


def late(replicas: Replicas, now_ms: int) -> int:
    counts = ReplicaCounts(now_ms, MAX_TIMEOUT_MS)
    for partition in replicas.manager:
        counts.add(partition)
    return counts.late_transactions


def test_a_transaction_is_late_when_no_coordinator_can_still_know_of_it() -> None:
    replicas = Replicas()
    replicas.say(state(isr=[0], replicas=[0]), state(isr=[0], replicas=[0], index=1))
    for index in (0, 1):
        write_in_transaction(replicas, 7, index=index)
    assert (late(replicas, NOT_YET), late(replicas, NOT_YET + 1)) == (0, 2)
    replicas.partition.append(a_run(a_marker_batch(7)), -1, NOT_YET + 1, COORDINATOR)
    assert late(replicas, NOT_YET + 1) == 1


def test_a_follower_counts_no_late_transactions() -> None:
    replicas = Replicas()
    replicas.say(state(isr=[0], replicas=[0, 1]))
    write_in_transaction(replicas, 7)
    replicas.say(state(leader=1, epoch=1, isr=[0, 1], replicas=[0, 1], partition_epoch=1))
    assert late(replicas, NOT_YET + 1) == 0
