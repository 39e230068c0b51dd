"""The share coordinator answers, and writes its records, as Apache Kafka 4.4 does; what was replicated survives a change of coordinator."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.coordination.internal_topics import SHARE_STATE_TOPIC
from ottla.coordination.shares.record_states import StateBatch
from ottla.coordination.shares.state.coordinator import StateResult, StateWrite
from ottla.coordination.shares.state.loading import ShareStateLoader
from ottla.coordination.shares.state.stored_state import (
    SNAPSHOT,
    SharePartitionKey,
    StoredState,
    encode_value,
    read_key,
    read_snapshot,
    read_update,
    snapshot_key,
    update_key,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.share_state_records import StateBatch as BatchRecord
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.reader import Record, iter_records
from ottla.storage.disk.clock import elapsed_ms
from tests.support.share_bench import KEY, STATE_TOPIC_ID, TOPIC_ID, ShareBench, run_shares

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "shares" / "state-4.4.json").read_text())
IDS = {"T": TOPIC_ID, "O": bytes(range(1, 17)), "Z": bytes(16)}


def without_times(kind: int, value: bytes | None) -> bytes | None:
    """The value of a record, with the time 0."""
    if value is None or kind != SNAPSHOT:
        return value
    snapshot = read_snapshot(value)
    snapshot.create_timestamp = snapshot.write_timestamp = 0
    return encode_value(snapshot)


def comparable(records: Iterator[Record] | list[Record]) -> list[tuple[bytes | None, bytes | None]]:
    found = []
    for record in records:
        assert record.key is not None
        key = read_key(record.key)
        assert key is not None
        found.append((record.key, without_times(key[0], record.value)))
    return found


def recorded_log() -> Iterator[Record]:
    data = bytes.fromhex(GOLDEN["log"])
    for position, header in iter_batches(data):
        yield from iter_records(data, position, header)


def play(bench: ShareBench, api: str, asked: dict[str, Any]) -> StateResult:
    """One recorded request."""
    key = SharePartitionKey("g", IDS[asked.get("topic", "T")], asked["partition"])
    if api == "initialize":
        results = bench.initialize(asked["state_epoch"], asked["start_offset"], key=key)
    elif api == "read":
        results = bench.read(asked["leader_epoch"], key=key)
    elif api == "delete":
        results = bench.delete(key=key)
    elif api == "summarize":
        results = bench.summarize(key=key)
    else:
        results = bench.write(
            *map(tuple, asked["state_batches"]),
            start=asked["start_offset"],
            complete=-1 if asked.get("version") == 0 else asked["delivery_complete_count"],
            state_epoch=asked["state_epoch"],
            leader_epoch=asked["leader_epoch"],
            key=key,
        )
    (result,) = results
    return result


def test_answers_and_records_are_those_of_apache_kafka() -> None:
    async def scenario(bench: ShareBench) -> None:
        await bench.coordinate()
        for api, asked, expected in GOLDEN["steps"]:
            if expected is None:
                continue  # a request without a group id, which the handler answers
            result = play(bench, api, asked)
            assert result.error == expected["error_code"], asked
            if result.error == ErrorCode.UNKNOWN_SERVER_ERROR:
                continue  # the text is that of a Java exception
            assert result.message == expected["error_message"], asked
            if result.error:
                continue
            for name, found in (
                ("state_epoch", result.state_epoch),
                ("start_offset", result.start_offset),
                ("state_batches", [list(batch) for batch in result.batches]),
                ("leader_epoch", result.leader_epoch),
            ):
                assert expected.get(name, found) == found, asked
            if asked.get("version") != 0:
                assert expected.get("delivery_complete_count", result.complete_count) == result.complete_count, asked
        assert comparable(bench.state_records()) == comparable(recorded_log())

    run_shares(scenario, share_coordinator_snapshot_update_records_per_snapshot=3)


def test_a_loaded_state_is_the_one_that_was_in_memory() -> None:
    async def scenario(bench: ShareBench) -> None:
        await bench.coordinate()
        bench.initialize(3, 10)
        bench.read(4)
        for offset in range(10, 40, 2):
            bench.write((offset, offset, 2, 1), start=10, complete=(offset - 8) // 2, state_epoch=3, leader_epoch=4)
        bench.write((11, 11, 0, 2), start=11, complete=14, state_epoch=3, leader_epoch=4)
        other = SharePartitionKey("h", TOPIC_ID, 2)
        bench.initialize(key=other)
        bench.delete(key=other)
        before = bench.read(4)
        await bench.coordinate(epoch=1, leader=1)
        assert bench.read(4)[0].error == ErrorCode.NOT_COORDINATOR
        await bench.coordinate(epoch=2)
        assert bench.read(4) == before
        assert bench.read(3)[0].error == ErrorCode.FENCED_LEADER_EPOCH
        assert bench.write(state_epoch=2, leader_epoch=4)[0].error == ErrorCode.FENCED_STATE_EPOCH
        assert bench.read(0, key=other)[0].error == ErrorCode.INVALID_REQUEST

    run_shares(scenario, share_coordinator_snapshot_update_records_per_snapshot=4)


def test_a_write_is_answered_when_all_replicas_have_it_and_a_read_waits_for_it() -> None:
    async def scenario(bench: ShareBench) -> None:
        await bench.coordinate(isr=(0, 1))
        initialized = bench.initialize()
        assert initialized == []
        fetch(bench)
        assert initialized[0].error == ErrorCode.NONE
        written = bench.write((0, 4, 2, 1), start=0, complete=5)
        read = bench.read(0)
        assert (written, read) == ([], [])
        fetch(bench)
        assert written == [StateResult()]
        assert read[0].batches == ((0, 4, 2, 1),)

    run_shares(scenario)


def test_a_write_that_is_not_replicated_in_time_is_refused() -> None:
    async def scenario(bench: ShareBench) -> None:
        await bench.coordinate(isr=(0, 1))
        bench.initialize()
        fetch(bench)
        written = bench.write((0, 4, 2, 1))
        bench.pass_time(6_000)
        assert written[0].error == ErrorCode.COORDINATOR_NOT_AVAILABLE

    run_shares(scenario)


def test_a_coordinator_that_loses_its_partition_answers_its_writers() -> None:
    async def scenario(bench: ShareBench) -> None:
        await bench.coordinate(isr=(0, 1))
        bench.initialize()
        fetch(bench)
        written = bench.write((0, 4, 2, 1))
        read = bench.read(0)
        await bench.coordinate(epoch=1, leader=1, isr=(0, 1))
        assert written[0].error == ErrorCode.NOT_COORDINATOR
        assert read[0].error == ErrorCode.NOT_COORDINATOR

    run_shares(scenario)


def fetch(bench: ShareBench) -> None:
    """Broker 1 has everything in the partition."""
    partition = bench.state_partition
    partition.on_follower_fetch(1, partition.log.log_end_offset, 0, elapsed_ms(bench.clock))


def test_records_below_all_last_snapshots_are_deleted() -> None:
    async def scenario(bench: ShareBench) -> None:
        await bench.coordinate()
        cold = SharePartitionKey("g", TOPIC_ID, 1)
        bench.initialize(key=cold)
        bench.initialize()
        for offset in range(9):
            bench.write((offset, offset, 2, 1))
        log = bench.state_partition.log
        assert log.log_end_offset == 11
        await pass_rounds(bench)
        assert log.log_start_offset == 0, "the snapshot of the cold share partition is the first record"
        bench.pass_time(150_000)
        bench.write((9, 9, 2, 1))
        await pass_rounds(bench, 150_000)
        await pass_rounds(bench)
        assert log.log_start_offset > 0
        before = bench.read(0), bench.read(0, key=cold)
        await bench.coordinate(epoch=1, leader=1)
        await bench.coordinate(epoch=2)
        assert (bench.read(0), bench.read(0, key=cold)) == before

    run_shares(scenario, share_coordinator_snapshot_update_records_per_snapshot=3)


def test_a_snapshot_that_not_all_replicas_have_replaces_no_earlier_records() -> None:
    async def scenario(bench: ShareBench) -> None:
        await bench.coordinate(isr=(0, 1))
        bench.initialize()
        for offset in range(3):
            bench.write((offset, offset, 2, 1))
        fetch(bench)
        bench.write((3, 3, 2, 1))
        log = bench.state_partition.log
        await pass_rounds(bench)
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, 4, 5)
        fetch(bench)
        bench.write((4, 4, 2, 1))
        fetch(bench)
        await pass_rounds(bench)
        assert log.log_start_offset == 4

    run_shares(scenario, share_coordinator_snapshot_update_records_per_snapshot=3)


def test_a_repeated_initialization_leaves_the_state_to_the_leader_that_has_it() -> None:
    async def scenario(bench: ShareBench) -> None:
        await bench.coordinate(isr=(0, 1))
        first = bench.initialize(2, -1)
        fetch(bench)
        bench.write((0, 4, 2, 1), state_epoch=2)
        again = bench.initialize(2, -1)
        assert (first, again) == ([StateResult()], []), "the record of the leader is not on all replicas yet"
        fetch(bench)
        assert again == [StateResult()]
        before = bench.read(0)
        assert before[0].batches == (StateBatch(0, 4, 2, 1),)
        assert bench.initialize(3, -1) == []
        fetch(bench)
        assert bench.read(0)[0].batches == ()

    run_shares(scenario)


@pytest.mark.parametrize("start", [-1, 0, 7])
def test_a_late_initialization_undoes_nothing_also_after_a_change_of_coordinator(start: int) -> None:
    async def scenario(bench: ShareBench) -> None:
        await bench.coordinate()
        other = 9
        for asked in (start, other, start):
            assert bench.initialize(2, asked) == [StateResult()]
            assert bench.read(0)[0].start_offset == asked
        bench.write((10, 11, 2, 1), start=8, complete=2, state_epoch=2)
        bench.write(start=12, complete=0, state_epoch=2)
        for epoch in (0, 2, 4):
            assert bench.initialize(2, start) == [StateResult()]
            assert (bench.read(0)[0].start_offset, bench.read(0)[0].batches) == (12, ())
            if epoch == 2:
                (state,) = bench.shares.states
                bench.shares.write_snapshot(state)
                await pass_rounds(bench)
                assert len(bench.state_records()) == 1, "the log tells of no initialization any more"
            await bench.coordinate(epoch=epoch + 1, leader=1)
            await bench.coordinate(epoch=epoch + 2)
        assert bench.initialize(2, other) == [StateResult()]
        assert bench.read(0)[0].start_offset == 12, "any initialization of this epoch is late, if it is not known which one was the last"
        assert bench.initialize(3, start) == [StateResult()]
        assert bench.read(0)[0].start_offset == start

    run_shares(scenario)


@pytest.mark.parametrize("question", ["initialize", "read"])
def test_what_was_not_replicated_in_time_is_not_said_to_be_there(question: str) -> None:
    async def scenario(bench: ShareBench) -> None:
        await bench.coordinate(isr=(0, 1))
        late = bench.initialize(2, -1)
        bench.pass_time(10_000)
        assert [each.error for each in late] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        again = bench.initialize(2, -1) if question == "initialize" else bench.read(0)
        assert again == []
        fetch(bench)
        assert [each.error for each in again] == [ErrorCode.NONE]
        assert bench.read(0)[0].error == ErrorCode.NONE

    run_shares(scenario)


def test_a_repeated_deletion_is_answered_when_all_replicas_have_the_tombstone() -> None:
    async def scenario(bench: ShareBench) -> None:
        await bench.coordinate(isr=(0, 1))
        bench.initialize()
        fetch(bench)
        late, again = bench.delete(), bench.delete()
        assert (late, again) == ([], [])
        bench.pass_time(10_000)
        assert [each.error for each in late + again] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
        again = bench.delete()
        assert again == [], "a leader without the tombstone has the state still"
        fetch(bench)
        assert again == [StateResult()] == bench.delete()
        assert bench.shares._deleted == {}

    run_shares(scenario)


def test_a_read_does_not_show_what_an_answer_of_a_write_led_to() -> None:
    async def scenario(bench: ShareBench) -> None:
        await bench.coordinate(isr=(0, 1))
        bench.initialize()
        fetch(bench)
        write = StateWrite(1, 0, 0, 0, [StateBatch(0, 0, 2, 1)])
        bench.shares.write(KEY, write, lambda _: bench.shares.write(KEY, write._replace(batches=[StateBatch(1, 1, 2, 1)]), lambda _: None))
        read = bench.read(0)
        fetch(bench)
        assert read[0].batches == (StateBatch(0, 0, 2, 1),)

    run_shares(scenario)


async def pass_rounds(bench: ShareBench, ms: int = 300_000) -> None:
    """A round of deletions, and one of snapshots, are done after so long."""
    bench.pass_time(ms)
    await bench.until(lambda: bench.shares._upkeep.checks.are_idle)


def test_the_states_of_a_deleted_topic_are_deleted() -> None:
    async def scenario(bench: ShareBench) -> None:
        bench.announce_id(SHARE_STATE_TOPIC, STATE_TOPIC_ID, 1, epoch=9)
        await bench.coordinate()
        other_id = bytes(range(16))
        bench.announce_id("u", other_id, 1)
        other = SharePartitionKey("g", other_id, 0)
        bench.initialize(key=other)
        bench.initialize()
        bench.initialize(key=SharePartitionKey("h", TOPIC_ID, 2))
        cluster = bench.replica_manager.cluster
        cluster.forget([cluster.topics["t"]])
        await bench.shares.on_partitions_deleted([])
        assert [state.key for state in bench.shares.states] == [other]
        tombstones = [record.key for record in bench.state_records() if record.value is None]
        assert tombstones == [snapshot_key(KEY), snapshot_key(SharePartitionKey("h", TOPIC_ID, 2))]
        await bench.coordinate(epoch=1, leader=1)
        await bench.coordinate(epoch=2)
        assert [state.key for state in bench.shares.states] == [other]

    run_shares(scenario)


def test_a_coordinator_that_did_not_hear_of_a_deletion_deletes_the_states_later() -> None:
    async def scenario(bench: ShareBench) -> None:
        bench.announce_id(SHARE_STATE_TOPIC, STATE_TOPIC_ID, 1, epoch=9)
        await bench.coordinate()
        bench.initialize()
        cluster = bench.replica_manager.cluster
        cluster.forget([cluster.topics["t"]])
        await bench.coordinate(epoch=1, leader=1)
        await bench.coordinate(epoch=2)
        assert [state.key for state in bench.shares.states] == [KEY]
        await pass_rounds(bench)
        assert not list(bench.shares.states)

    run_shares(scenario)


def test_metadata_from_before_the_election_of_the_coordinator_deletes_no_states() -> None:
    async def scenario(bench: ShareBench) -> None:
        bench.announce_id(SHARE_STATE_TOPIC, STATE_TOPIC_ID, 1, epoch=9)
        await bench.coordinate(epoch=9)
        bench.initialize()
        cluster = bench.replica_manager.cluster
        cluster.forget([cluster.topics["t"]])
        await bench.coordinate(epoch=10)
        await pass_rounds(bench)
        assert [state.key for state in bench.shares.states] == [KEY]
        bench.announce_id(SHARE_STATE_TOPIC, STATE_TOPIC_ID, 1, epoch=10)
        await pass_rounds(bench)
        assert not list(bench.shares.states)

    run_shares(scenario)


def test_a_log_without_states_keeps_no_records() -> None:
    async def scenario(bench: ShareBench) -> None:
        await bench.coordinate()
        bench.initialize()
        bench.delete()
        await pass_rounds(bench)
        assert bench.state_partition.log.log_start_offset == 2

    run_shares(scenario)


def test_records_that_cannot_be_read_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    name = str(KEY)
    value = StoredState(KEY).initialized(1, 5, 0)
    snapshot = snapshot_key(KEY), encode_value(value)
    other = SharePartitionKey("h", TOPIC_ID, 1)
    odd = [
        (None, snapshot[1]),
        (b"\0", snapshot[1]),
        (b"\0\7" + snapshot[0][2:], snapshot[1]),
        (snapshot[0][:-1], snapshot[1]),
        (snapshot[0], b"\0\5" + snapshot[1][2:]),
        (snapshot[0], snapshot[1][:-3]),
        (snapshot[0], b""),
        (update_key(other), encode_value(StoredState(other).led(3))),
    ]
    backwards = StoredState(KEY).written(5, 0, ())
    backwards.state_batches = [BatchRecord(first_offset=9, last_offset=8)]
    odd.append((update_key(KEY), encode_value(backwards)))
    loader = ShareStateLoader("__share_group_state-0")
    with caplog.at_level(logging.ERROR):
        for _ in loader.feed(build_batch([Record(0, 0, *pair) for pair in [snapshot, *odd]])):
            pass
    states: dict[str, StoredState] = {}
    for _ in loader.states(0, states):
        pass
    assert list(states) == [name]
    assert (states[name].start_offset, states[name].state_epoch) == (5, 1)
    assert loader.skipped == len(odd)
    assert len(caplog.records) == len(odd)


def test_updates_whose_snapshot_was_deleted_are_no_fault_when_another_snapshot_follows(caplog: pytest.LogCaptureFixture) -> None:
    deleted = SharePartitionKey("h", TOPIC_ID, 1)
    records = [
        (update_key(KEY), encode_value(StoredState(KEY).led(3))),
        (update_key(deleted), encode_value(StoredState(deleted).led(3))),
        (snapshot_key(KEY), encode_value(StoredState(KEY).initialized(2, 7, 0))),
        (snapshot_key(deleted), None),
    ]
    loader = ShareStateLoader("__share_group_state-0")
    for _ in loader.feed(build_batch([Record(0, 0, *pair) for pair in records])):
        pass
    states: dict[str, StoredState] = {}
    for _ in loader.states(0, states):
        pass
    assert {name: state.start_offset for name, state in states.items()} == {str(KEY): 7}
    assert (loader.skipped, caplog.records) == (0, [])


def test_requests_during_the_load_are_refused() -> None:
    async def scenario(bench: ShareBench) -> None:
        assert bench.read()[0].error == ErrorCode.NOT_COORDINATOR
        bench.shares.states.is_active = False
        assert bench.write()[0].error == ErrorCode.COORDINATOR_NOT_AVAILABLE

    run_shares(scenario)


def test_updates_after_a_snapshot_carry_its_epoch() -> None:
    async def scenario(bench: ShareBench) -> None:
        await bench.coordinate()
        bench.initialize()
        for offset in range(6):
            bench.write((offset, offset, 2, 1))
        kinds = []
        for record in bench.state_records():
            assert record.key is not None
            assert record.value is not None
            key = read_key(record.key)
            assert key is not None
            value = read_snapshot(record.value) if key[0] == SNAPSHOT else read_update(record.value)
            kinds.append((key[0], value.snapshot_epoch))
        assert kinds == [(0, 0), (1, 0), (1, 0), (0, 1), (1, 1), (1, 1), (0, 2)]
        assert bench.read(0, key=KEY)[0].batches == ((0, 5, 2, 1),)

    run_shares(scenario, share_coordinator_snapshot_update_records_per_snapshot=2)
