"""The names of members, and the objects that clients have the broker make, count in the budget of all groups, and return in any history."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.config.keys.groups import OFFSETS_RETENTION_CHECK_INTERVAL_MS
from ottla.coordination.groups.classic_group import ClassicGroup, size_of
from ottla.coordination.groups.consumer.effects import Beat, BeatResult
from ottla.coordination.groups.consumer.group import AssignedGroup, ConsumerGroup
from ottla.coordination.groups.consumer.members import LEAVING, NAME_BYTES
from ottla.coordination.groups.effects import JoinResult
from ottla.coordination.groups.group import Group, GroupState
from ottla.coordination.groups.membership import Leaving
from ottla.coordination.groups.metadata_bytes import GROUP_BYTES, MEMBER_BYTES, PENDING_BYTES, MetadataBudget, name_bytes
from ottla.coordination.groups.rebalance import Join
from ottla.protocol.errors import ErrorCode
from tests.support.consumer_groups import ConsumerDriver
from tests.support.group_bench import OFFSETS_TOPIC, GroupBench, a_bench, run
from tests.support.groups import RANGE, GroupDriver, quiet

LONG = 30_000
CONSUMER = (("range", bytes(2 + 4 + 4)),)
"""A subscription of the consumer protocol to nothing, which can be converted."""


def test_a_name_counts_with_its_copy_in_the_record_in_any_script() -> None:
    assert name_bytes("abc", None, "") == 6
    for text in ("grün", "名前", "🐘"):
        assert name_bytes(text) >= len(text.encode()) + len(text) * 4


# -- members of one group ------------------------------------------------------------------------------------------------------


def test_member_ids_with_which_nobody_joins_take_the_room_until_they_expire() -> None:
    driver = GroupDriver(max_bytes_of_all=10_000)
    errors = [driver.joined[driver.join(must_know_id=True, session_ms=1_800_000)].error for _ in range(100)]
    given_out = errors.count(ErrorCode.MEMBER_ID_REQUIRED)
    assert 10 < given_out < 20
    assert errors == [ErrorCode.MEMBER_ID_REQUIRED] * given_out + [ErrorCode.GROUP_MAX_SIZE_REACHED] * (100 - given_out)
    assert driver.budget.taken > given_out * PENDING_BYTES
    driver.pass_time(1_800_000)
    assert driver.budget.taken == 0
    assert driver.joined[driver.join(must_know_id=True)].error == ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("must_know_id", [False, True])
def test_long_names_take_the_room_of_the_group(must_know_id: bool) -> None:
    driver = GroupDriver(max_metadata_bytes=1_000_000, initial_rebalance_delay_ms=3_000)
    waiters = [driver.join(client_id="x" * LONG, must_know_id=must_know_id) for _ in range(30)]
    refused = [waiter for waiter in waiters if waiter in driver.joined and driver.joined[waiter].error == ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert 12 < len(refused) < 30
    driver.pass_time(3_600_000)
    assert driver.budget.taken == 0


def test_a_member_joins_with_the_id_that_it_was_given_in_the_last_room_there_is() -> None:
    driver = GroupDriver(max_bytes_of_all=MEMBER_BYTES + name_bytes("client-1", "client") + size_of(RANGE))
    member_id = driver.member_id(driver.join(must_know_id=True))
    waiter = driver.join(member_id, must_know_id=True)
    driver.pass_time(0)
    assert driver.joined[waiter].error == ErrorCode.NONE
    assert driver.budget.taken == driver.budget.max_bytes


def test_the_names_of_a_member_of_the_new_protocol_take_the_room_of_its_group() -> None:
    driver = ConsumerDriver()
    budget = MetadataBudget(2**63, 1_000_000)
    driver.group.metadata.count_in(budget)
    answers = [driver.join(f"{'m' * LONG}{number}", instance_id=f"{'i' * LONG}{number}", rack_id="r" * LONG) for number in range(20)]
    assert 3 < len(driver.group.members) < 10
    assert {each.error for each in answers} == {ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED}
    for member in list(driver.group.members.values()):
        driver.beat(member.member_id, LEAVING, instance_id=member.instance_id)
    assert budget.taken == 0


def test_a_member_of_the_new_protocol_may_not_grow_by_its_names_without_room() -> None:
    driver = ConsumerDriver()
    budget = MetadataBudget(2**63, 1_000)
    driver.group.metadata.count_in(budget)
    epoch = driver.join("a").epoch
    before = budget.taken
    assert driver.beat("a", epoch, client_id="c" * LONG).error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.beat("a", epoch, rack_id="r" * LONG).error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert budget.taken == before
    assert driver.beat("a", epoch, client_id="c" * 100, rack_id="r" * 50).error == ErrorCode.NONE
    assert budget.taken == before + 2 * (99 + 50)
    driver.beat("a", LEAVING)
    assert budget.taken == 0


# -- groups --------------------------------------------------------------------------------------------------------------------

ROOM = {"ottla_all_groups_max_metadata_bytes": 10 * GROUP_BYTES}


def test_a_group_that_no_member_joins_takes_room_until_it_is_forgotten_and_a_commit_needs_none() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        errors = [bench.join(f"g{number}", protocols=())[0].error for number in range(100)]
        assert errors == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL] * 9 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 91
        assert bench.groups.count() == 9
        refused = await bench.answered(bench.beat("a", group="new"))
        assert refused.error == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert bench.groups.count() == 9
        assert bench.commit(group="another") == [ErrorCode.NONE]
        before = bench.groups.groups.metadata.taken
        assert bench.commit(group="g0") == [ErrorCode.NONE]
        assert bench.groups.groups.metadata.taken == before - GROUP_BYTES - name_bytes("g0"), "the log keeps it from now on"
        bench.pass_time(bench.disks.broker[OFFSETS_RETENTION_CHECK_INTERVAL_MS] + 1_000)
        await bench.until(lambda: bench.groups.count() == 2)
        assert bench.groups.groups.metadata.taken == 0

    run(scenario, **ROOM)


def test_a_member_id_expires_in_a_group_whose_conversion_could_not_be_written() -> None:
    async def scenario(bench: GroupBench) -> None:
        bench.disks.topics[OFFSETS_TOPIC] |= {"min.insync.replicas": "2"}
        await bench.lead(isr=(0,), replicas=(0, 1))
        ask(bench, "g", must_know_id=True)
        group = bench.groups.groups.get("g")
        assert isinstance(group, ClassicGroup)
        assert (await bench.answered(bench.beat("new"))).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert bench.groups.groups.get("g") is group
        assert group.pending_members
        bench.pass_time(10_000)
        assert not group.pending_members
        check(bench)

    run(scenario)


# -- any history ---------------------------------------------------------------------------------------------------------------

KINDS = ["join", "join", "pending", "again", "again", "sync", "leave", "beat", "beat", "beat", "share", "time", "commit", "delete", "move"]
step = st.tuples(st.sampled_from([*KINDS, "fail", "expire"]), st.integers(0, 3), st.integers(0, 5))
NAMES = ["g", "h", "größe", "g" * 40]


def ask(bench: GroupBench, group: str, member_id: str = "", instance_id: str | None = None, *, must_know_id: bool = False) -> None:
    """A JoinGroup."""
    results: list[JoinResult] = []
    join = Join(results.append, member_id, instance_id, "client", "/h", 20_000, 10_000, "consumer", CONSUMER, "why", must_know_id)
    bench.groups.join(group, join)


def cost_of(group: Group) -> int:
    """What a group takes of the budget, computed anew."""
    cost = group.metadata.of_group
    assert cost in (0, GROUP_BYTES + name_bytes(group.group_id))
    if isinstance(group, ClassicGroup):
        cost += group.assigned_bytes
        cost += sum(PENDING_BYTES + name_bytes(each) for each in group.pending_members)
        for member in group.members.values():
            cost += MEMBER_BYTES + name_bytes(member.member_id, member.client_id, member.group_instance_id) + size_of(member.protocols)
    elif isinstance(group, AssignedGroup):
        for each in group.members.values():
            cost += MEMBER_BYTES + name_bytes(each.member_id, each.instance_id, each.rack_id, each.client_id)
            cost += sum(NAME_BYTES + len(topic) for topic in each.topics) + (size_of(each.classic.protocols) if each.classic else 0)
    return cost


def check(bench: GroupBench) -> None:
    """The budget has exactly what the groups take that are found."""
    assert bench.groups.groups.metadata.taken == sum(cost_of(group) for group in bench.groups.groups)


class History:
    """Requests of members that nobody coordinates, and changes of the leader."""

    def __init__(self, bench: GroupBench) -> None:
        self.bench = bench
        self.epoch = 0
        self.is_replicated = True
        self.deletions: set[asyncio.Task[ErrorCode]] = set()

    async def take(self, what: str, one: int, two: int) -> None:
        """A step; answers may come later."""
        bench = self.bench
        name = NAMES[one]
        group = bench.groups.groups.get(name)
        members = [] if group is None else [*getattr(group, "members", ()), *getattr(group, "pending_members", ())]
        member_id = members[two % len(members)] if members else "nobody"
        if what == "join":
            ask(bench, name, instance_id=(None, None, None, "i", "j", None)[two])
        elif what == "pending":
            ask(bench, name, must_know_id=True)
        elif what == "again":
            ask(bench, name, member_id)
        elif what == "sync":
            bench.sync(member_id, group.generation_id if group else 0, dict.fromkeys(members, bytes(10 + two)), name)
        elif what == "leave":
            bench.leave(Leaving(member_id, None), group=name)
        elif what == "beat":
            self.beat(name, two)
        elif what == "share":
            answers: list[BeatResult] = []
            epoch = LEAVING if two % 2 and members else 0
            bench.groups.share.heartbeat(name, Beat(answers.append, member_id, epoch, client_id="c", topics=("t",) if epoch == 0 else None))
        elif what == "time":
            bench.pass_time((1, 3_000, 11_000, 30_000, 60_000, 700_000)[two])
        elif what == "commit":
            bench.commit(group=name)
        elif what == "delete":
            self.deletions.add(asyncio.ensure_future(bench.groups.offsets.delete_group(name)))
        elif what == "expire":
            await bench.groups.offsets.expire()
        else:
            await self.change_leader(what)
        await asyncio.sleep(0)
        if self.is_replicated and two:
            bench.follower_fetches()

    def beat(self, name: str, two: int) -> None:
        """A member of the new protocol joins, changes its names, or leaves."""
        group = self.bench.groups.groups.get(name)
        member_id = f"n{two % 3}"
        member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
        if member is None:
            self.bench.beat(member_id, group=name, instance_id="i" if two == 5 else None)
        elif two % 2:
            self.bench.beat(member_id, LEAVING, name)
        else:
            self.bench.beat(member_id, member.epoch, name, rack_id="rack" * two)

    async def change_leader(self, what: str) -> None:
        """Another broker leads and this one again, which loads the groups; or writes fail until the next change."""
        self.epoch += 1
        self.is_replicated = what != "fail"
        if what == "fail":
            await self.bench.lead(epoch=self.epoch, isr=(0,), replicas=(0, 1))
            return
        await self.bench.lead(epoch=self.epoch, leader=1, isr=(1,))
        assert self.bench.groups.groups.metadata.taken == 0
        self.epoch += 1
        await self.bench.lead(epoch=self.epoch, isr=(0, 1))
        await self.bench.until_loaded()


async def history(steps: list[tuple[str, int, int]], room: int) -> None:
    async with a_bench(group_consumer_migration_policy="bidirectional", ottla_all_groups_max_metadata_bytes=room) as bench:
        bench.disks.topics[OFFSETS_TOPIC] |= {"min.insync.replicas": "2"}
        await bench.lead(isr=(0, 1))
        bench.announce({"t": 2})
        done = History(bench)
        for what, one, two in steps:
            await done.take(what, one, two)
            check(bench)
        await asyncio.sleep(0.01)
        check(bench)
        for group in bench.groups.groups:
            assert group.state is not GroupState.DEAD
        await bench.stop_replica()
        assert bench.groups.groups.metadata.taken == 0
        for deletion in done.deletions:
            deletion.cancel()


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(step, max_size=40), st.sampled_from([2**28, 5_000]))
def test_any_history_of_groups_returns_all_that_it_took(steps: list[tuple[str, int, int]], room: int) -> None:
    with quiet():
        asyncio.run(history(steps, room))
