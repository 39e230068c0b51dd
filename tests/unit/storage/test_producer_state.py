"""The rules for idempotent and transactional producers."""

from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.errors import InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequence, ProducerStateError, TransactionCoordinatorFenced
from ottla.storage.producers.state import LATE_TRANSACTION_BUFFER_MS, MAX_SEQUENCE, BatchMetadata, ProducerState

PRODUCER = 777_000


def a_state() -> ProducerState:
    return ProducerState(TopicPartition("bad", 0))


def produce(
    state: ProducerState,
    offset: int,
    sequence: int,
    records: int = 1,
    epoch: int = 0,
    *,
    producer_id: int = PRODUCER,
    transactional: bool = False,
    timestamp: int = 1,
) -> BatchMetadata | None:
    """A client's batch at `offset`: checked, and written unless it stands there already."""
    last_sequence = (sequence + records - 1) % (MAX_SEQUENCE + 1)
    duplicate = state.check_append(producer_id, epoch, sequence, last_sequence, is_transactional=transactional, first_offset=offset)
    if duplicate is None:
        state.on_append(
            producer_id, epoch, last_sequence, offset, last_offset=offset + records - 1, timestamp=timestamp, is_transactional=transactional
        )
    return duplicate


def end_transaction(state: ProducerState, offset: int, *, epoch: int = 0, producer_id: int = PRODUCER, aborted: bool = False) -> int | None:
    """A marker; returns the last stable offset that the transaction index gets."""
    state.check_marker(producer_id, epoch, 0, offset)
    completed = state.on_marker(producer_id, epoch, 0, offset, timestamp=1, is_aborted=aborted)
    if completed is None:
        return None
    state.complete(completed)
    return completed.last_stable_offset


# (first sequence, records, epoch) in turn, and what the last one gets: the cases "idempotent ..." of tests/golden/wire/bad-input.jsonl
# and their like.
FIRST = (0, 2, 0)
CASES = [
    pytest.param([FIRST], None, id="first sequence 0"),
    pytest.param([FIRST, (0, 2, 0)], BatchMetadata(1, 1, 1, 1), id="duplicate"),
    pytest.param([FIRST, (7, 1, 0)], OutOfOrderSequence, id="gap: sequence 7 after 1"),
    pytest.param([FIRST, (1, 2, 0)], OutOfOrderSequence, id="overlap: sequence 1, 2 records"),
    pytest.param([FIRST, (3, 1, 1)], OutOfOrderSequence, id="next epoch, sequence 3"),
    pytest.param([FIRST, (0, 1, 1)], None, id="next epoch, sequence 0"),
    pytest.param([FIRST, (0, 1, 1), (2, 1, 0)], InvalidProducerEpoch, id="old epoch"),
    pytest.param([(5, 1, 0)], None, id="unknown producer, sequence 5"),
    pytest.param([(5, 1, 0), (6, 1, 0)], None, id="and on from there"),
    pytest.param([(0, 1, -1), (9, 1, -1)], None, id="negative epoch: any sequence"),
    pytest.param([(0, 1, -1), (9, 1, 4)], None, id="from no epoch to one: any sequence"),
    pytest.param([(MAX_SEQUENCE, 1, 0), (0, 1, 0)], None, id="sequences wrap"),
    pytest.param([(MAX_SEQUENCE, 3, 0), (2, 1, 0)], None, id="a batch wraps"),
    pytest.param([(MAX_SEQUENCE, 3, 0), (MAX_SEQUENCE, 3, 0)], BatchMetadata(1, 2, 2, 1), id="duplicate of a batch that wraps"),
    pytest.param([(MAX_SEQUENCE, 1, 0), (1, 1, 0)], OutOfOrderSequence, id="gap over the wrap"),
    pytest.param([FIRST, (2, 1, 0), (3, 1, 0), (4, 1, 0), (5, 1, 0), (0, 2, 0)], BatchMetadata(1, 1, 1, 1), id="duplicate, five back"),
    pytest.param([FIRST, *((n, 1, 0) for n in range(2, 7)), (0, 2, 0)], OutOfOrderSequence, id="duplicate, six back"),
    pytest.param([FIRST, (0, 1, 1), (0, 2, 1)], OutOfOrderSequence, id="batches of the old epoch are forgotten"),
]


@pytest.mark.parametrize(("batches", "outcome"), CASES)
def test_a_batch_is_taken_recognised_or_refused_by_its_sequence(batches: list[tuple[int, int, int]], outcome: object) -> None:
    state = a_state()
    offset = 0
    for sequence, records, epoch in batches[:-1]:
        assert produce(state, offset, sequence, records, epoch) is None
        offset += records
    if isinstance(outcome, type) and issubclass(outcome, ProducerStateError):
        before = repr(state.producers[PRODUCER])
        with pytest.raises(outcome):
            produce(state, offset, *batches[-1])
        assert repr(state.producers[PRODUCER]) == before
    else:
        assert produce(state, offset, *batches[-1]) == outcome


def test_a_duplicate_tells_where_and_when_it_was_written_first() -> None:
    state = a_state()
    produce(state, 14, 0, 2, timestamp=1_700_000_000_002)
    duplicate = produce(state, 16, 0, 2)
    assert duplicate is not None
    assert (duplicate.first_offset, duplicate.last_offset, duplicate.first_sequence, duplicate.timestamp) == (14, 15, 0, 1_700_000_000_002)


def test_a_marker_of_a_newer_epoch_fences_the_producer_and_starts_its_sequence_again() -> None:
    state = a_state()
    produce(state, 0, 0, 3, transactional=True)
    end_transaction(state, 3, epoch=1, aborted=True)
    with pytest.raises(InvalidProducerEpoch):
        produce(state, 4, 3, transactional=True)
    with pytest.raises(OutOfOrderSequence):
        produce(state, 4, 3, epoch=1, transactional=True)
    assert produce(state, 4, 0, epoch=1, transactional=True) is None


def test_a_marker_of_the_same_epoch_lets_the_sequence_go_on() -> None:
    state = a_state()
    produce(state, 0, 0, 3, transactional=True)
    end_transaction(state, 3)
    assert produce(state, 4, 3, transactional=True) is None


def test_a_marker_of_an_older_producer_epoch_or_coordinator_is_refused() -> None:
    state = a_state()
    state.on_marker(PRODUCER, 2, 7, 0, timestamp=1, is_aborted=False)
    with pytest.raises(InvalidProducerEpoch):
        state.check_marker(PRODUCER, 1, 7, 1)
    with pytest.raises(TransactionCoordinatorFenced):
        state.check_marker(PRODUCER, 2, 6, 1)
    state.check_marker(PRODUCER, 2, 7, 1)


def test_an_unknown_producer_has_the_epoch_minus_one_before() -> None:
    state = a_state()
    for epoch in (-2, -(2**15)):
        with pytest.raises(InvalidProducerEpoch):
            produce(state, 0, 0, epoch=epoch)
        with pytest.raises(InvalidProducerEpoch):
            end_transaction(state, 0, epoch=epoch)
    assert produce(state, 0, 0, epoch=-1) is None


def test_a_batch_outside_the_open_transaction_is_refused() -> None:
    state = a_state()
    produce(state, 0, 0, transactional=True)
    with pytest.raises(InvalidTxnState):
        produce(state, 1, 1)
    with pytest.raises(InvalidTxnState):
        state.check_coordinator_append(PRODUCER, 0, False, 1)


def test_a_coordinator_batch_has_no_sequence_but_an_epoch() -> None:
    state = a_state()
    produce(state, 0, 5, epoch=3)
    state.check_coordinator_append(PRODUCER, 3, False, 1)
    state.check_coordinator_append(PRODUCER, 4, True, 1)
    with pytest.raises(InvalidProducerEpoch):
        state.check_coordinator_append(PRODUCER, 2, False, 1)


def test_the_first_unstable_offset_waits_for_the_marker_and_for_its_replication() -> None:
    state = a_state()
    assert state.first_unstable_offset == -1
    produce(state, 10, 0, 2, transactional=True)
    produce(state, 12, 0, 2, producer_id=2, transactional=True)
    assert state.first_unstable_offset == 10
    assert end_transaction(state, 14) == 12
    assert state.first_unstable_offset == 10
    state.on_high_watermark(14)
    assert state.first_unstable_offset == 10
    state.on_high_watermark(15)
    assert state.first_unstable_offset == 12
    assert end_transaction(state, 15, producer_id=2, aborted=True) == 16
    state.on_high_watermark(16)
    assert state.first_unstable_offset == -1


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(st.tuples(st.sampled_from(["begin", "end"]), st.integers(1, 6)), st.tuples(st.just("replicate"), st.integers(0, 9))))
)
def test_the_first_unstable_offset_is_that_of_the_earliest_transaction_not_replicated_with_its_marker(steps: list[tuple[str, int]]) -> None:
    state = a_state()
    begun: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    high_watermark = 0
    for offset, (step, number) in enumerate(steps):
        if step == "begin" and number not in begun:
            begun[number] = offset
            produce(state, offset, 0, epoch=offset, producer_id=number, transactional=True)
        elif step == "end" and number in begun:
            ended.append((begun.pop(number), offset))
            end_transaction(state, offset, epoch=offset, producer_id=number)
        elif step == "replicate":
            high_watermark = max(high_watermark, offset - number)
            state.on_high_watermark(high_watermark)
        unstable = [*begun.values(), *(first for first, marker in ended if marker >= high_watermark)]
        assert state.first_unstable_offset == min(unstable, default=-1)
        assert state.is_empty == (not state.producers)


@pytest.mark.slow
def test_a_transaction_costs_no_more_after_many_whose_markers_are_not_replicated() -> None:
    # Recovery knows no high watermark. A segment may have millions of transactions.
    state = a_state()
    began = process_time()
    for offset in range(0, 200_000, 2):
        produce(state, offset, offset // 10, producer_id=PRODUCER + offset % 10, transactional=True)
        end_transaction(state, offset + 1, producer_id=PRODUCER + offset % 10)
    assert process_time() - began < 10, "it takes one second"


def test_a_marker_without_data_changes_no_stable_offset() -> None:
    state = a_state()
    assert end_transaction(state, 4) is None
    assert state.first_unstable_offset == -1
    assert state.producers[PRODUCER].last_data_offset == -1


def test_a_transaction_stays_unstable_until_its_completion_is_told() -> None:
    state = a_state()
    produce(state, 0, 0, transactional=True)
    completed = state.on_marker(PRODUCER, 0, 0, 1, timestamp=1, is_aborted=True)
    assert completed is not None
    state.on_high_watermark(2)
    assert state.first_unstable_offset == 0


def test_idle_producers_are_forgotten_unless_their_transaction_is_open() -> None:
    state = a_state()
    produce(state, 0, 0, producer_id=1, timestamp=100)
    produce(state, 1, 0, producer_id=2, timestamp=100, transactional=True)
    produce(state, 2, 0, producer_id=3, timestamp=150)
    assert state.remove_expired(200, 100) == 1
    assert sorted(state.producers) == [2, 3]


def test_a_producer_of_the_earliest_timestamp_is_forgotten() -> None:
    state = a_state()
    produce(state, 0, 0, timestamp=-(2**63))
    assert state.remove_expired(200, 100) == 1


def test_a_transaction_is_late_when_every_timeout_is_over() -> None:
    state = a_state()
    produce(state, 0, 0, transactional=True, timestamp=1000)
    over = 1000 + 900 + LATE_TRANSACTION_BUFFER_MS
    assert not state.has_late_transaction(over, 900)
    assert state.has_late_transaction(over + 1, 900)
    end_transaction(state, 1)
    assert not state.has_late_transaction(over + 1, 900)


def test_an_old_epoch_in_the_log_is_kept_because_the_leader_took_it(caplog: pytest.LogCaptureFixture) -> None:
    state = a_state()
    produce(state, 0, 0, epoch=5)
    state.on_append(PRODUCER, 4, 9, 1, last_offset=1, timestamp=1, is_transactional=False)
    assert state.producers[PRODUCER].producer_epoch == 4
    assert "below the epoch 5" in caplog.text


@settings(max_examples=100, deadline=None)
@given(st.integers(0, MAX_SEQUENCE), st.lists(st.tuples(st.integers(1, 5), st.integers(0, 6), st.booleans()), max_size=30))
def test_whatever_is_sent_again_the_log_has_each_record_once_and_in_order(start: int, sends: list[tuple[int, int, bool]]) -> None:
    state = a_state()
    offset, sequence = 0, start
    written: list[tuple[int, int, int]] = []
    for records, back, skips in sends:
        if skips:
            with_gap = (sequence + 1) % (MAX_SEQUENCE + 1)
            if written:
                with pytest.raises(OutOfOrderSequence):
                    produce(state, offset, with_gap, records)
            continue
        if 0 < back <= len(written):
            first, again_sequence, count = written[-back]
            if back <= 5:
                duplicate = produce(state, offset, again_sequence, count)
                assert duplicate is not None
                assert (duplicate.first_offset, duplicate.last_offset) == (first, first + count - 1)
            else:
                with pytest.raises(OutOfOrderSequence):
                    produce(state, offset, again_sequence, count)
            continue
        assert produce(state, offset, sequence, records) is None
        written.append((offset, sequence, records))
        offset += records
        sequence = (sequence + records) % (MAX_SEQUENCE + 1)
