"""Any history of a group keeps its invariants, answers everybody exactly once, and comes to rest when time passes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordination.groups.classic_group import Protocols
from ottla.coordination.groups.effects import Timer
from ottla.coordination.groups.group import GroupState
from ottla.coordination.groups.membership import Leaving
from ottla.coordination.groups.metadata_bytes import MEMBER_BYTES, PENDING_BYTES
from ottla.protocol.errors import ErrorCode
from tests.support.groups import GroupDriver, quiet

PROTOCOLS: list[Protocols] = [
    (("range", b"1"),),
    (("range", b"2"),),
    (("range", b"1"), ("sticky", b"1")),
    (("sticky", b"1"), ("range", b"1")),
    (("sticky", b"3"),),
]
INSTANCES = [None, None, None, "a", "b"]
ERRORS = [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REBALANCE_IN_PROGRESS]

step = st.tuples(
    st.sampled_from(["join", "join", "again", "again", "again", "sync", "sync", "sync", "beat", "leave", "time", "time", "store"]),
    st.integers(0, 11),
    st.integers(0, 11),
    st.booleans(),
)


def known_ids(driver: GroupDriver) -> list[tuple[str, str | None]]:
    members = [(member.member_id, member.group_instance_id) for member in driver.group.members.values()]
    return members + [(member_id, None) for member_id in sorted(driver.group.pending_members)]


def take(driver: GroupDriver, what: str, one: int, two: int, flag: bool) -> None:
    ids = known_ids(driver)
    member_id, instance = ids[one % len(ids)] if ids else ("nobody", None)
    if what == "join":
        driver.join(
            instance=INSTANCES[one % len(INSTANCES)],
            protocols=PROTOCOLS[two % len(PROTOCOLS)],
            must_know_id=flag and INSTANCES[one % len(INSTANCES)] is None,
            may_skip=flag,
            rebalance_ms=(20_000, 60_000)[two % 2],
        )
    elif what == "again":
        driver.join(member_id, instance=instance, protocols=PROTOCOLS[two % len(PROTOCOLS)])
    elif what == "sync":
        leader = driver.group.leader_id or "nobody"
        target = leader if flag else member_id
        member = driver.group.members.get(target)
        driver.sync(target, {target: b"x"}, instance=member.group_instance_id if member else None)
    elif what == "beat":
        driver.heartbeat(member_id, instance=instance)
    elif what == "leave":
        driver.leave(Leaving("" if flag and instance else member_id, instance))
    elif what == "time":
        driver.pass_time((10, 900, 4_000, 9_000, 61_000)[one % 5])
    elif driver.stores:
        driver.finish_store(ERRORS[one % len(ERRORS)])


def check(driver: GroupDriver) -> None:
    group = driver.group
    members = group.members
    waiting = set(group.join_waiters.values()) | {member.sync_waiter for member in members.values()}
    assert driver.waiting == waiting - {None}, "who waits is known, and nobody else waits"
    assert group.join_waiters.keys() <= members.keys() >= group.newcomers.keys()
    assert all(member_id == member.member_id for member_id, member in members.items())
    assert not group.pending_members & members.keys()
    assert group.pending_syncs <= members.keys()
    assert (group.leader_id in members) if members else group.leader_id is None
    static = {member.group_instance_id: member.member_id for member in members.values() if member.group_instance_id}
    assert static == group.static_members
    votes: dict[str, int] = {}
    for member in members.values():
        for name, _ in member.protocols:
            votes[name] = votes.get(name, 0) + 1
    assert votes == group.protocol_votes
    metadata = sum(len(name) + len(data) for member in members.values() for name, data in member.protocols)
    names = [name for each in members.values() for name in (each.member_id, each.client_id, each.group_instance_id or "")]
    metadata += 2 * len("".join(names)) + 2 * len("".join(group.pending_members))
    assert group.metadata.taken == metadata + group.assigned_bytes
    objects = MEMBER_BYTES * len(members) + PENDING_BYTES * len(group.pending_members)
    assert driver.budget.taken == group.metadata.taken + objects
    assert group.assigned_bytes >= sum(len(member.assignment) for member in members.values())
    if members:
        assert len(members) in votes.values(), "there is a protocol that all members support"
    if group.state is GroupState.EMPTY:
        assert not members
        assert not group.assigned_bytes
    if group.state is GroupState.PREPARING_REBALANCE:
        assert Timer.JOIN in driver.timers, "a rebalance ends"
        assert not any(member.sync_waiter for member in members.values())
    else:
        assert Timer.JOIN not in driver.timers
    if group.state is GroupState.STABLE:
        assert not any(member.sync_waiter for member in members.values())
    if group.pending_syncs:
        assert Timer.SYNC in driver.timers, "who never asks for an assignment is put out"
    for member in members.values():
        if member.member_id not in group.join_waiters and member.sync_waiter is None:
            assert member.member_id in driver.timers, "every session ends"
    assert group.pending_members <= driver.timers.keys()


@settings(max_examples=150, deadline=None)
@given(st.lists(step, max_size=60), st.booleans(), st.sampled_from([0, 3_000]), st.sampled_from([3, 100]))
def test_any_history_keeps_the_invariants_and_comes_to_rest(
    steps: list[tuple[str, int, int, bool]], stores_at_once: bool, delay_ms: int, max_size: int
) -> None:
    with quiet():
        run_history(steps, GroupDriver(stores_at_once=stores_at_once, initial_rebalance_delay_ms=delay_ms, max_size=max_size))


def run_history(steps: list[tuple[str, int, int, bool]], driver: GroupDriver) -> None:
    generation = 0
    for what, one, two, flag in steps:
        take(driver, what, one, two, flag)
        check(driver)
        assert driver.generation >= generation, "generations only go up"
        generation = driver.generation
    driver.stores_at_once = True
    while driver.stores:
        driver.finish_store()
    for _ in range(4):
        driver.pass_time(600_000)
        check(driver)
    assert not driver.waiting, "everybody was answered"
    assert driver.state is GroupState.EMPTY, "nobody was heard of any more"
    assert not driver.timers
    assert not driver.budget.taken
