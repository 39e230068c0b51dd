"""Offsets in a transaction wait until its coordinator confirms that the group's partition is part of it (KIP-890)."""

import pytest

from ottla.coordination.groups.membership import Leaving
from ottla.coordination.groups.offset_records import OffsetAndMetadata
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition
from tests.support.group_bench import T0, GroupBench, run
from tests.unit.groups.test_commit_requests import prepared
from tests.unit.groups.test_txn_commit_requests import VERSIONS, a_request, answered, ask

OFFSETS = TopicPartition("__consumer_offsets", 0)
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


def test_the_first_commit_of_a_transaction_waits_for_the_answer_and_the_others_do_not() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.verifier.is_held = True
        first = bench.commit_in_transaction(1, epoch=3)
        assert (first, bench.records(), bench.committed(require_stable=True)) == ([], [], -1)
        assert bench.verifier.asked == [("tx", 1000, 3, [OFFSETS], True)]
        bench.verifier.answer()
        assert first == [ErrorCode.NONE]
        assert bench.committed(require_stable=True) == UNSTABLE

        assert bench.commit_in_transaction(2, epoch=3) == [ErrorCode.NONE]
        bench.end_transaction(epoch=3)
        assert bench.commit_in_transaction(3, epoch=3) == []
        assert len(bench.verifier.asked) == 2

    run(scenario)


@pytest.mark.parametrize(
    ("verified", "told"),
    [
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_what_is_not_confirmed_is_not_written(verified: ErrorCode, told: ErrorCode, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.verifier.is_held = True
        codes = bench.commit_in_transaction(1)
        bench.verifier.answer(verified)
        assert (codes, bench.records(), bench.committed(require_stable=True)) == ([told], [], -1)

    run(scenario)
    assert f"group g: offsets of 'tx', producer 1000, epoch 0, are refused: {verified.name}" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_is_told_what_its_clients_know(version: int) -> None:
    async def scenario(bench: GroupBench) -> None:
        services = await prepared(bench)
        bench.verifier.is_held = True
        answer = ask(services, version, a_request(("t", 2)))
        assert bench.verifier.asked[0][-1] == (version >= 4)
        bench.verifier.answer(ErrorCode.NETWORK_EXCEPTION)
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if version < 2 else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert answered(answer, version) == {"t": [(0, code), (1, code)]}

    run(scenario)


def test_a_member_that_left_meanwhile_commits_nothing() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        member_id = bench.a_member()
        bench.verifier.is_held = True
        codes = bench.commit_in_transaction(1, member_id=member_id, generation=1)
        bench.leave(Leaving(member_id, None))
        bench.verifier.answer()
        assert codes == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert bench.committed(require_stable=True) == -1

    run(scenario)


def test_a_partition_that_went_away_meanwhile_takes_nothing() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.verifier.is_held = True
        codes = bench.commit_in_transaction(1)
        await bench.lead(epoch=1, leader=1)
        bench.verifier.answer()
        assert codes == [ErrorCode.NOT_COORDINATOR]

    run(scenario)


def test_a_marker_that_came_meanwhile_keeps_a_late_commit_out() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.verifier.is_held = True
        codes = bench.commit_in_transaction(1)
        bench.end_transaction(is_commit=False)
        bench.verifier.answer()
        assert codes == [ErrorCode.INVALID_TXN_STATE]
        assert bench.committed(require_stable=True) == -1

    run(scenario)


def test_nobody_is_asked_where_verification_is_off() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.partition().log.context.verifies_transactions = lambda: False
        assert bench.commit_in_transaction(1) == [ErrorCode.NONE]
        assert bench.verifier.asked == []

    run(scenario)


def test_commits_outside_of_transactions_ask_nobody() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        assert bench.commit_all({T0: OffsetAndMetadata(5, 0, "", bench.clock.now_ms())}) == [ErrorCode.NONE]
        assert bench.verifier.asked == []

    run(scenario)
