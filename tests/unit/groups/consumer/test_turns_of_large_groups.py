"""Events of large consumer groups: what grows with the members or the topics of a group is the work of threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ottla.coordination.groups.consumer import classic_members, records, subscriptions
from ottla.coordination.groups.consumer.group import ConsumerGroup
from ottla.coordination.groups.consumer.members import Member
from ottla.coordination.groups.consumer.records import CurrentAssignment, GroupEpoch, MemberMetadata, TargetEpoch, TargetMember
from ottla.coordination.groups.consumer.subscriptions import HASHED_AT_ONCE
from ottla.coordination.groups.membership import Leaving
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from tests.support.group_bench import GroupBench, run
from tests.unit.groups.consumer.test_conversion import UPGRADES, group_of, protocols

MEMBERS = 300
FEW = 10


def by_thread(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[bool]:
    """For each call of a function from now on, whether it runs on the event loop."""
    calls: list[bool] = []
    called, loop = getattr(module, name), threading.get_ident()

    def counted(*arguments: Any) -> Any:
        calls.append(threading.get_ident() == loop)
        return called(*arguments)

    monkeypatch.setattr(module, name, counted)
    return calls


async def a_large_group(bench: GroupBench) -> None:
    """A group whose members have no partitions yet. The next epoch gives two to each."""
    await bench.lead()
    bench.announce({"t": 2 * MEMBERS + 2})
    group = ConsumerGroup("g")
    for at in range(MEMBERS):
        member = Member(f"m{at}", topics=("t",), rebalance_timeout_ms=60_000, epoch=1, previous_epoch=1)
        for record in (
            MemberMetadata(member.member_id, member),
            TargetMember(member.member_id, {}),
            CurrentAssignment(member.member_id, member),
        ):
            group.apply(record)
    group.apply(GroupEpoch(1))
    group.apply(TargetEpoch(1))
    bench.groups.groups.add("g", group)
    bench.groups.consumer.machine.on_loaded(group)


@pytest.mark.parametrize("is_classic", [True, False])
def test_a_thread_encodes_the_parts_of_all_members_in_a_new_target(is_classic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: GroupBench) -> None:
        await a_large_group(bench)
        on_loop = by_thread(monkeypatch, records, "_value_of")
        answered: Any = bench.join(protocols=protocols()) if is_classic else bench.beat("new")
        assert (await bench.answered(answered)).error == ErrorCode.NONE
        assert on_loop.count(False) == MEMBERS + 1
        assert on_loop.count(True) < FEW
        before = dict(group_of(bench).target)
        await bench.lead(leader=1, epoch=1)
        await bench.lead(epoch=2)
        await bench.until_loaded()
        assert group_of(bench).target == before

    run(scenario, **UPGRADES)


def subscription(topics: list[str]) -> tuple[tuple[str, bytes], ...]:
    return (("range", b"\0\3" + ConsumerProtocolSubscription(topics=topics).encode(3)),)


def test_threads_read_and_hash_the_topics_of_a_classic_member_with_many(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: GroupBench) -> None:
        topics = [f"topic-{at:016}" for at in range(HASHED_AT_ONCE + 1)]
        await bench.lead()
        bench.announce(dict.fromkeys(["t", *topics], 1))
        assert (await bench.answered(bench.beat("new"))).error == ErrorCode.NONE
        read = by_thread(monkeypatch, classic_members, "read_subscription")
        hashed = by_thread(monkeypatch, subscriptions, "hash_of")
        assert (await bench.answered(bench.join(protocols=protocols()))).error == ErrorCode.NONE
        assert (read, hashed) == ([True], [True]), "it has few"
        joined = await bench.answered(bench.join(protocols=subscription(topics)))
        assert joined.error == ErrorCode.NONE
        assert (read, hashed) == ([True, False], [True, False])
        assert group_of(bench).members[joined.member_id].topics == tuple(topics)
        hashed.clear()
        left = bench.leave(Leaving("new", None))
        assert (await bench.answered(left)).error == ErrorCode.NONE
        assert hashed == [False]

    run(scenario, group_consumer_migration_policy="upgrade")


def test_a_long_subscription_that_cannot_be_read_is_an_error_of_its_member(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.announce({"t": 1})
        assert (await bench.answered(bench.beat("new"))).error == ErrorCode.NONE
        read = by_thread(monkeypatch, classic_members, "read_subscription")
        joined = await bench.answered(bench.join(protocols=(("range", b"\0\3" + b"\1" * classic_members.READ_AT_ONCE),)))
        assert joined.error == ErrorCode.UNKNOWN_SERVER_ERROR
        assert read == [False]
        assert "cannot be served" in caplog.text
        assert "Traceback" not in caplog.text

    run(scenario, group_consumer_migration_policy="upgrade")
