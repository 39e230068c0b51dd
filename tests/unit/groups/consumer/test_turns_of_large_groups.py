"""Events of large consumer groups: what grows with the members or the topics of a group is the work of threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ottla.coordination.groups.consumer import records
from ottla.coordination.groups.consumer.group import ConsumerGroup
from ottla.coordination.groups.consumer.members import Member
from ottla.coordination.groups.consumer.records import CurrentAssignment, GroupEpoch, MemberMetadata, TargetEpoch, TargetMember
from ottla.protocol.errors import ErrorCode
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
