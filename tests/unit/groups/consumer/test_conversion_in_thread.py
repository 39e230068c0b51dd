"""Threads convert groups of the classic and the new protocol into each other. Meanwhile the groups may change, or be lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ottla.coordination.groups.classic_group import ClassicGroup
from ottla.coordination.groups.consumer import conversion
from ottla.coordination.groups.consumer.embedded import read_assignment
from ottla.coordination.groups.consumer.group import ConsumerGroup
from ottla.coordination.groups.consumer.members import LEAVING
from ottla.coordination.groups.membership import Leaving
from ottla.protocol.errors import ErrorCode
from tests.support.group_bench import GroupBench, run
from tests.unit.groups.consumer.test_conversion import UPGRADES, beat, classic_members, group_of, has_converted, protocols


class Held:
    """A function that threads call, and that waits until it may go on."""

    def __init__(self, called: Callable[..., Any]) -> None:
        self._called = called
        self._may_go_on = threading.Event()
        self.threads: list[int] = []

    def __call__(self, *arguments: Any) -> Any:
        self.threads.append(threading.get_ident())
        assert self._may_go_on.wait(60)
        return self._called(*arguments)

    def go_on(self) -> None:
        self._may_go_on.set()


def hold(monkeypatch: pytest.MonkeyPatch, name: str) -> Held:
    held = Held(getattr(conversion, name))
    monkeypatch.setattr(conversion, name, held)
    return held


def test_assignments_are_read_and_written_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a group may have 200,000 topics and partitions, each of which takes a microsecond."""

    async def scenario(bench: GroupBench) -> None:
        await classic_members(bench)
        reads, writes = hold(monkeypatch, "read_assignment"), hold(monkeypatch, "assignment_bytes")
        joining = bench.beat("new")
        assert isinstance(bench.groups.groups.get("g"), ClassicGroup)
        reads.go_on()
        assert (await bench.answered(joining)).error == ErrorCode.NONE
        leaving = bench.beat("new", LEAVING)
        assert isinstance(bench.groups.groups.get("g"), ConsumerGroup)
        writes.go_on()
        assert (await bench.answered(leaving)).error == ErrorCode.NONE
        assert isinstance(bench.groups.groups.get("g"), ClassicGroup)
        for threads in (reads.threads, writes.threads):
            assert len(threads) == 2
            assert threading.get_ident() not in threads

    run(scenario, **UPGRADES)


def test_members_that_join_during_the_conversion_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: GroupBench) -> None:
        await classic_members(bench)
        reads = hold(monkeypatch, "read_assignment")
        joining = [bench.beat("new"), bench.beat("other")]
        reads.go_on()
        for each in joining:
            assert (await bench.answered(each)).error == ErrorCode.NONE
        assert len(reads.threads) == 2, "the two classic members are read once"
        assert group_of(bench).members.keys() >= {"new", "other"}

    run(scenario, **UPGRADES)


def test_a_classic_group_that_changes_during_the_conversion_is_converted_as_it_is_then(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: GroupBench) -> None:
        one, two = await classic_members(bench)
        reads = hold(monkeypatch, "read_assignment")
        joining = bench.beat("new")
        await bench.until(lambda: bool(reads.threads))
        assert beat(bench, one, 2) == ErrorCode.NONE, "the classic group is served meanwhile"
        bench.leave(Leaving(two, None))
        reads.go_on()
        assert (await bench.answered(joining)).error == ErrorCode.NONE
        assert group_of(bench).members.keys() == {one, "new"}

    run(scenario, **UPGRADES)


def test_a_classic_group_that_changes_all_the_time_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: GroupBench) -> None:
        await classic_members(bench)
        group = bench.groups.groups.get("g")

        def changing(*arguments: Any) -> Any:
            assert isinstance(group, ClassicGroup)
            group.generation_id += 1
            return read_assignment(*arguments)

        monkeypatch.setattr(conversion, "read_assignment", changing)
        assert (await bench.answered(bench.beat("new"))).error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert bench.groups.groups.get("g") is group
        monkeypatch.setattr(conversion, "read_assignment", read_assignment)
        assert (await bench.answered(bench.beat("new"))).error == ErrorCode.NONE

    run(scenario, **UPGRADES)


def test_a_group_that_is_emptied_during_the_conversion_becomes_one_of_the_new_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: GroupBench) -> None:
        one, two = await classic_members(bench)
        reads = hold(monkeypatch, "read_assignment")
        joining = bench.beat("new")
        await bench.until(lambda: bool(reads.threads))
        bench.leave(Leaving(one, None), Leaving(two, None))
        bench.pass_time(60_000)
        reads.go_on()
        assert (await bench.answered(joining)).error == ErrorCode.NONE
        assert group_of(bench).members.keys() == {"new"}

    run(scenario, **UPGRADES)


@pytest.mark.parametrize("function", ["read_assignment", "assignment_bytes"])
def test_a_group_that_is_lost_during_the_conversion_is_left_to_its_new_coordinator(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: GroupBench) -> None:
        await classic_members(bench)
        if function == "assignment_bytes":
            await bench.answered(bench.beat("new"))
        held = hold(monkeypatch, function)
        asked = bench.beat("new", LEAVING if function == "assignment_bytes" else 0)
        await bench.until(lambda: bool(held.threads))
        records = len(bench.records())
        await bench.lead(leader=1, epoch=1)
        held.go_on()
        assert (await bench.answered(asked)).error == ErrorCode.NOT_COORDINATOR
        await bench.lead(epoch=2)
        await bench.until_loaded()
        assert len(bench.records()) == records
        assert has_converted(bench, "new") == (function == "assignment_bytes")

    run(scenario, **UPGRADES)


def test_events_of_a_group_wait_until_it_is_classic_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: GroupBench) -> None:
        one, _ = await classic_members(bench)
        await bench.answered(bench.beat("new"))
        writes = hold(monkeypatch, "assignment_bytes")
        leaving = bench.beat("new", LEAVING)
        await bench.until(lambda: bool(writes.threads))
        joining = bench.join(member_id=one, protocols=protocols())
        assert not joining
        writes.go_on()
        assert (await bench.answered(leaving)).error == ErrorCode.NONE
        assert (await bench.answered(joining)).error == ErrorCode.NOT_COORDINATOR, "it asks the classic group then"

    run(scenario, **UPGRADES)
