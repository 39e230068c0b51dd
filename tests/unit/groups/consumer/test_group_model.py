"""Any history of a consumer group: no partition has two owners, epochs never go back, and in the end everything is assigned.

Members are modelled as clients: they hold partitions until they give them up, may be slow, lose answers, crash, or leave; topics grow; the
coordinator moves, and writes fail.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordination.groups.consumer.effects import BeatResult
from ottla.coordination.groups.consumer.members import LEAVING, LEAVING_FOR_A_WHILE
from ottla.coordination.groups.consumer.settings import GroupTimes
from ottla.coordination.groups.group import GroupState
from ottla.protocol.errors import ErrorCode
from tests.support.consumer_groups import ConsumerDriver, state_of
from tests.support.groups import quiet

TOPICS = [("t",), ("t", "u"), ("u",), ("t", "nowhere"), ("v",)]

SELDOM = ["lose", "leave", "crash", "away", "topics", "grow", "delete", "time", "move", "fail"]

step = st.tuples(
    st.sampled_from([*["join"] * 2, *["beat"] * 4, *["revoke"] * 2, *SELDOM]),
    st.integers(0, 5),
    st.integers(0, 11),
)


class Client:
    """A consumer, as it sees itself."""

    def __init__(self, member_id: str, instance_id: str | None, assignor: str | None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.assignor = assignor
        self.epoch = 0
        self.topics = TOPICS[0]
        self.held: dict[bytes, set[int]] = {}
        self.wanted: dict[bytes, set[int]] = {}
        self.told: dict[bytes, set[int]] | None = None
        """The partitions that the coordinator was told of; a heartbeat names none if it has the same."""
        self.is_to_say_all = True

    def give_up(self) -> None:
        """Revoke what is no longer assigned, and take what is."""
        self.held = {topic: set(indexes) for topic, indexes in self.wanted.items()}


class History:
    """The group, and its clients by the number of a step."""

    def __init__(self, assignment_interval_ms: int) -> None:
        self.driver = ConsumerDriver({"t": 5, "u": 3}, times=GroupTimes(assignment_interval_ms=assignment_interval_ms))
        self.clients: dict[int, Client] = {}
        self.made = 0
        self.epochs = (0, 0)

    def take(self, what: str, one: int, two: int) -> None:
        driver = self.driver
        client = self.clients.get(one)
        if what == "time":
            driver.pass_time((100, 900, 4_000, 29_000, 46_000)[two % 5])
        elif what == "grow":
            name = "tuv"[two % 3]
            driver.grow(name, len(driver.topics[name].partitions) + 1 if name in driver.topics else 2)
        elif what == "delete" and two == 0:
            driver.delete("u")
        elif what == "move":
            driver.group = driver.loaded()
        elif what == "fail":
            driver.fails = True
            self.beat(client)
            driver.fails = False
        elif client is None:
            if what == "join":
                self.made += 1
                instance_id = f"i{one}" if one >= 4 else None
                self.clients[one] = Client(f"m{self.made}", instance_id, (None, None, "range", "uniform")[two % 4])
                self.beat(self.clients[one])
        elif what in ("leave", "away"):
            leaves = LEAVING_FOR_A_WHILE if what == "away" and client.instance_id else LEAVING
            driver.beat(client.member_id, leaves, instance_id=client.instance_id)
            del self.clients[one]
        elif what == "crash":
            del self.clients[one]
        elif what == "topics":
            client.topics = TOPICS[two % len(TOPICS)]
            self.beat(client, topics=tuple(sorted(client.topics)))
        elif what == "lose":
            self.beat(client, is_lost=True)
        elif what in ("beat", "revoke"):
            if what == "revoke":
                client.give_up()
            self.beat(client)

    def beat(self, client: Client | None, *, is_lost: bool = False, topics: tuple[str, ...] | None = None) -> None:
        if client is None:
            return
        if client.is_to_say_all or client.epoch == 0:
            held: dict[bytes, set[int]] | None = {} if client.epoch == 0 else client.held
            result = self.driver.beat(
                client.member_id,
                client.epoch,
                rebalance_timeout_ms=30_000,
                topics=tuple(sorted(client.topics)),
                held=held,
                instance_id=client.instance_id,
                assignor=client.assignor,
            )
        else:
            held = None if client.held == client.told else client.held
            result = self.driver.beat(client.member_id, client.epoch, held=held, topics=topics, instance_id=client.instance_id)
        client.told = None if is_lost else {topic: set(indexes) for topic, indexes in client.held.items()}
        if is_lost:
            client.is_to_say_all = True
            return
        self.learn(client, result)

    def learn(self, client: Client, result: BeatResult) -> None:
        if result.epoch == -99:
            client.is_to_say_all = True
            return
        if result.error:
            fencing = (
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.UNRELEASED_INSTANCE_ID,
                ErrorCode.FENCED_INSTANCE_ID,
            )
            assert result.error in fencing, result
            client.epoch = 0
            client.held, client.wanted, client.told = {}, {}, None
            return
        client.is_to_say_all = False
        assert result.epoch >= client.epoch
        client.epoch = result.epoch
        if result.assignment is not None:
            client.wanted = {topic: set(indexes) for topic, indexes in result.assignment.items()}
            # What is new may be taken at once: the coordinator assigns only what no other member has.
            for topic, indexes in client.wanted.items():
                client.held.setdefault(topic, set()).update(indexes)

    def check(self) -> None:
        group = self.driver.group
        assert (group.epoch, group.target_epoch) >= self.epochs or group.state is GroupState.EMPTY
        assert group.target_epoch <= group.epoch
        self.epochs = (group.epoch, group.target_epoch)
        owners: dict[tuple[bytes, int], str] = {}
        for member in group.members.values():
            assert member.epoch <= group.target_epoch
            for owned in (member.assigned, member.revoking):
                for topic, indexes in owned.items():
                    assert indexes
                    for index in indexes:
                        assert owners.setdefault((topic, index), member.member_id) == member.member_id
                        assert group.owner_epochs[topic][index] == member.epoch
        assert sum(map(len, group.owner_epochs.values())) == len(owners)
        holders: dict[tuple[bytes, int], str] = {}
        for client in self.clients.values():
            if client.member_id in group.members and client.epoch:
                for topic, indexes in client.held.items():
                    for index in indexes:
                        assert holders.setdefault((topic, index), client.member_id) == client.member_id, "two clients read one partition"
        assert state_of(self.driver.loaded()) == state_of(group), "the log says what the coordinator knows"

    def come_to_rest(self) -> None:
        """All members live and answer."""
        for _ in range(12):
            self.driver.pass_time(5_000)
            for client in self.clients.values():
                self.beat(client)
                client.give_up()
        for _ in range(10):
            self.driver.pass_time(5_000)
            for client in self.clients.values():
                self.beat(client)
                client.give_up()
            self.check()


@settings(max_examples=150, deadline=None)
@given(st.lists(step, max_size=60), st.sampled_from([0, 1_000]))
def test_any_history_keeps_the_invariants_and_everything_is_assigned_in_the_end(
    steps: list[tuple[str, int, int]], assignment_interval_ms: int
) -> None:
    with quiet():
        history = History(assignment_interval_ms)
        for what, one, two in steps:
            history.take(what, one, two)
            history.check()
        history.come_to_rest()
        judge(history)
        assert history.driver.without_news or not history.clients


def judge(history: History) -> None:
    group, driver = history.driver.group, history.driver
    assert {client.member_id for client in history.clients.values()} == group.members.keys(), "those that crashed are gone"
    assert group.state is (GroupState.STABLE if group.members else GroupState.EMPTY)
    wanted = {name for member in group.members.values() for name in member.topics if name in driver.topics}
    everything = {(driver.topics[name].topic_id, index) for name in wanted for index in driver.topics[name].partitions}
    held = [(topic, index) for client in history.clients.values() for topic, indexes in client.held.items() for index in indexes]
    assert sorted(held) == sorted(everything)
    driver.pass_time(100_000)
    assert group.state is GroupState.EMPTY
    assert not driver.timers
