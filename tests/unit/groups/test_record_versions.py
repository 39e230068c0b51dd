"""The versions of records, and static members, while brokers of older releases are in the cluster."""

import pytest

from ottla.coordination.groups.effects import JoinResult, SyncResult
from ottla.coordination.groups.offset_records import OffsetAndMetadata, read_offset_value
from ottla.coordination.groups.rebalance import Join
from ottla.coordination.groups.records import group_value_version, offset_value_version, read_group_value
from ottla.coordination.groups.syncing import Sync
from ottla.protocol.errors import ErrorCode
from tests.support.group_bench import T0, GroupBench, run
from tests.support.groups import RANGE


@pytest.mark.parametrize(
    ("protocol", "group", "offset"),
    [
        ("0.8.0", 0, 1),
        ("0.10.0", 0, 1),
        ("0.10.1-IV0", 1, 1),
        ("2.0", 1, 1),
        ("2.1-IV0", 2, 2),
        ("2.1-IV1", 2, 3),
        ("2.2", 2, 3),
        ("2.3-IV0", 3, 3),
        ("3.9", 3, 3),
    ],
)
def test_records_have_the_versions_that_brokers_of_the_release_read(protocol: str, group: int, offset: int) -> None:
    assert (group_value_version(protocol), offset_value_version(protocol)) == (group, offset)


@pytest.mark.parametrize(("protocol", "group_version", "offset_version"), [("2.0", 1, 1), ("2.1-IV0", 2, 2), ("2.2", 2, 3)])
def test_groups_and_offsets_are_written_for_older_brokers(protocol: str, group_version: int, offset_version: int) -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        member_id = bench.a_member()
        assert bench.commit(42, group="other", metadata="note") == [ErrorCode.NONE]
        group_record, offset_record = bench.records()

        version, stored = read_group_value(group_record.value or b"")
        assert (version, stored.generation, stored.protocol_type, stored.protocol, stored.leader) == (
            group_version, 1, "consumer", "range", member_id,
        )  # fmt: skip
        (member,) = stored.members
        assert (member.member_id, member.client_id, member.client_host) == (member_id, "client", "/127.0.0.1")
        assert (member.rebalance_timeout, member.session_timeout) == (60_000, 10_000)
        assert (member.subscription, member.assignment) == (RANGE[0][1], b"all")

        value = offset_record.value or b""
        assert int.from_bytes(value[:2], "big") == offset_version
        leader_epoch = 3 if offset_version == 3 else -1
        assert read_offset_value(value) == OffsetAndMetadata(42, leader_epoch, "note", bench.clock.now_ms())
        assert bench.committed("other") == 42

    run(scenario, inter_broker_protocol_version=protocol)


def test_an_offset_of_a_transaction_is_written_for_older_brokers() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        assert bench.commit_in_transaction(7) == [ErrorCode.NONE]
        assert (bench.records()[0].value or b"")[:2] == b"\x00\x01"
        bench.end_transaction()
        assert bench.committed() == 7

    run(scenario, inter_broker_protocol_version="2.0")


def test_static_members_are_refused_while_older_brokers_would_forget_that_they_are_static() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        member_id = bench.a_member()
        joined: list[JoinResult] = []
        bench.groups.join("g", Join(joined.append, "", "i", "client", "/127.0.0.1", 60_000, 10_000, "consumer", RANGE))
        synced: list[SyncResult] = []
        bench.groups.sync("g", Sync(synced.append, member_id, "i", 1, None, None, {}))
        assert (joined[0].error, synced[0].error) == (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_VERSION)
        assert bench.groups.heartbeat("g", member_id, "i", 1) == ErrorCode.UNSUPPORTED_VERSION
        offset = {T0: OffsetAndMetadata(7, 3, "", bench.clock.now_ms())}
        assert bench.commit_all(offset, member_id=member_id, generation=1, instance_id="i") == [ErrorCode.UNSUPPORTED_VERSION]
        assert bench.groups.heartbeat("g", member_id, None, 1) == ErrorCode.NONE

    run(scenario, inter_broker_protocol_version="2.2")
