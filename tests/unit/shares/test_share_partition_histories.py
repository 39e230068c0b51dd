"""Any history of a share partition, crashes included, delivers every record until it is accepted, rejected or has failed too often."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordination.shares.partition import ShareRules
from ottla.coordination.shares.record_states import Acknowledgement, AcknowledgeType, Acquired, RecordState
from ottla.protocol.errors import ErrorCode
from tests.support.share_partitions import SharePlayer, extents

LIMIT = 3
LOCK_MS = 10_000
MEMBERS = "abc"
RULES = ShareRules(lock_ms=LOCK_MS, delivery_limit=LIMIT, max_locks=20)

logs = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6), st.booleans()), min_size=1, max_size=12)
steps = st.tuples(
    st.sampled_from(["acquire", "acquire", "exact", "acknowledge", "acknowledge", "each", "release", "time", "store", "fail", "crash"]),
    st.integers(0, 11),
    st.integers(0, 11),
    st.sampled_from(list(AcknowledgeType)),
)


class History:
    """What members saw of a share partition."""

    def __init__(self, shape: list[tuple[int, int, bool]]) -> None:
        batches: list[tuple[int, int, bool]] = []
        at = 0
        for gap, size, is_data in shape:
            batches.append((at + gap, at + gap + size - 1, is_data))
            at += gap + size
        self.data = {offset for first, last, is_data in batches if is_data for offset in range(first, last + 1)}
        self.player = SharePlayer(extents(*batches), rules=RULES)
        self.locks: dict[int, tuple[str, int]] = {}
        """Member and end of the lock, by offset."""
        self.deliveries: dict[int, int] = {}
        """Deliveries since the last crash."""
        self.done: set[int] = set()
        """What the coordinator confirmed as accepted, rejected or gap."""
        self.waiting: list[tuple[object, str, Acknowledgement]] = []

    def acquire(self, member: str, most: int, exact: bool) -> None:
        found: list[Acquired] = self.player.acquire(member, most, exact=exact)
        if exact:
            assert sum(last - first + 1 for first, last, _ in found) <= most
        for first, last, count in found:
            for offset in range(first, last + 1):
                assert offset in self.data, "only records are delivered"
                assert offset not in self.done, "what was accepted is not delivered again"
                assert offset not in self.held(), "no two members have a record"
                assert 1 <= count <= LIMIT
                self.locks[offset] = member, self.player.now_ms + LOCK_MS
                self.deliveries[offset] = self.deliveries.get(offset, 0) + 1
                assert self.deliveries[offset] <= LIMIT, "no record is delivered more often than its limit"

    def held(self) -> dict[int, str]:
        return {offset: member for offset, (member, until) in self.locks.items() if until > self.player.now_ms}

    def acknowledge(self, member: str, which: int, size: int, types: list[AcknowledgeType]) -> None:
        mine = sorted(offset for offset, owner in self.held().items() if owner == member)
        if not mine:
            return
        first = mine[which % len(mine)]
        last = first
        while last + 1 in mine and last - first < size:
            last += 1
        chosen = types[: last - first + 1] if len(types) > 1 else types
        if 1 < len(chosen) < last - first + 1:
            last = first + len(chosen) - 1
        waiter = object()
        batch = Acknowledgement(first, last, chosen)
        player = self.player
        player.carry_out(player.partition.acknowledge(member, [batch], waiter, player.now_ms))
        self.waiting.append((waiter, member, batch))

    def settle(self) -> None:
        """Note what the answers to acknowledgements say."""
        for entry in list(self.waiting):
            waiter, member, batch = entry
            error = self.player.replies.get(waiter)
            if error is None:
                continue
            self.waiting.remove(entry)
            if error:
                continue
            for first, last, kind in batch.parts():
                for offset in range(first, last + 1):
                    if kind == AcknowledgeType.RENEW:
                        self.locks[offset] = member, self.player.now_ms + LOCK_MS
                    else:
                        self.locks.pop(offset, None)
                        if kind != AcknowledgeType.RELEASE:
                            self.done.add(offset)

    def release(self, member: str) -> None:
        player = self.player
        runs = [run for run in player.partition.runs if run.standing.member_id == member and run.standing.target is None]
        offsets = [offset for run in runs for offset in range(run.first, run.last + 1)]
        player.carry_out(player.partition.release(member, object()))
        player.store()
        for offset in offsets:
            del self.locks[offset]

    def take(self, what: str, one: int, two: int, kind: AcknowledgeType) -> None:
        member = MEMBERS[one % len(MEMBERS)]
        player = self.player
        if what in ("acquire", "exact"):
            self.acquire(member, two + 1, what == "exact")
        elif what == "acknowledge":
            self.acknowledge(member, one, two, [kind])
        elif what == "each":
            self.acknowledge(member, one, two, [AcknowledgeType((kind + at) % 4) for at in range(two + 1)])
        elif what == "release":
            self.release(member)
        elif what == "time":
            player.pass_time((1, 3_000, 10_000)[two % 3])
        elif what == "store":
            player.store()
        elif what == "fail":
            player.store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            player.crash()
            self.locks.clear()
            self.deliveries.clear()
            self.waiting.clear()
        self.settle()
        player.check()

    def finish(self) -> None:
        """Time passes, and a member accepts what is left."""
        player = self.player
        for _ in range(1_000):
            player.store()
            player.pass_time(LOCK_MS)
            self.settle()
            player.store()
            found = player.acquire("a")
            for first, last, _ in found:
                assert not self.done & set(range(first, last + 1))
                assert player.acknowledge("a", Acknowledgement(first, last, [AcknowledgeType.ACCEPT])) == ErrorCode.NONE
            player.check()
            if not found and player.partition.next_fetch_offset() == player.partition.end_offset:
                break
        assert not player.partition.runs
        assert player.partition.start_offset > max(self.data, default=-1)


@settings(max_examples=300, deadline=None)
@given(logs, st.lists(steps, max_size=60))
def test_every_record_is_accepted_or_archived_in_the_end(
    shape: list[tuple[int, int, bool]], history: list[tuple[str, int, int, AcknowledgeType]]
) -> None:
    played = History(shape)
    for step in history:
        played.take(*step)
    played.finish()


@settings(max_examples=100, deadline=None)
@given(logs, st.lists(steps.filter(lambda step: step[0] not in ("crash", "fail")), max_size=60))
def test_a_new_leader_knows_every_confirmed_acknowledgement(
    shape: list[tuple[int, int, bool]], history: list[tuple[str, int, int, AcknowledgeType]]
) -> None:
    played = History(shape)
    for step in history:
        played.take(*step)
    player = played.player
    player.store()
    played.settle()
    before = {
        offset: RecordState.AVAILABLE if run.state is RecordState.ACQUIRED else run.state
        for run in player.partition.runs
        for offset in range(run.first, run.last + 1)
    }
    player.crash()
    for run in player.partition.runs:
        for offset in range(run.first, run.last + 1):
            if offset in before:
                assert before[offset] in (run.state, RecordState.AVAILABLE)
    assert all(offset < player.partition.start_offset or state_of(player, offset) is not RecordState.AVAILABLE for offset in played.done)


def state_of(player: SharePlayer, offset: int) -> RecordState | None:
    return next((run.state for run in player.partition.runs if run.first <= offset <= run.last), None)
