"""Epochs of share groups, as in Apache Kafka 4.4: new partitions are initialized first, and raise the epoch only when no target is due."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.coordination.groups.consumer.effects import Beat, BeatResult, ComputeTarget, ConsumerEffect, Initialize, Write
from ottla.coordination.groups.consumer.members import NAME_BYTES
from ottla.coordination.groups.consumer.records import GroupEpoch
from ottla.coordination.groups.consumer.settings import ConsumerSettings, Context, GroupTimes
from ottla.coordination.groups.consumer.targets import compute
from ottla.coordination.groups.consumer.topics import Topics
from ottla.coordination.groups.metadata_bytes import MEMBER_BYTES, MetadataBudget, name_bytes
from ottla.coordination.groups.share.group import ShareGroup
from ottla.coordination.groups.share.heartbeats import on_heartbeat, on_initialized
from ottla.coordination.partitions.effects import Reply
from ottla.protocol.errors import ErrorCode
from tests.support.consumer_groups import NOW, an_image, partitions_of


class Driver:
    """One share group: answers of heartbeats, and initializations that are done when the test says so."""

    def __init__(self, interval_ms: int, **topics: int) -> None:
        self.times = GroupTimes(assignment_interval_ms=interval_ms)
        self.settings = ConsumerSettings(times_of=lambda group_id: self.times, assignors=("simple",))
        self.group = ShareGroup("g")
        self.topics: Topics = {name: an_image(name, count) for name, count in topics.items()}
        self.now_ms = NOW
        self.asked: list[Initialize] = []
        self.epochs: list[int | None] = []
        """The epochs of the group, as they were written."""

    def beat(self, member_id: str, epoch: int, *topics: str) -> BeatResult:
        """A heartbeat, and its answer."""
        answers: list[BeatResult] = []
        decision = on_heartbeat(self.group, Beat(answers.append, member_id, epoch, topics=topics or None), self.context())
        result: object = None
        while True:
            try:
                work = decision.send(result)
            except StopIteration as end:
                self.run(end.value, answers)
                (answer,) = answers
                return answer
            assert isinstance(work, ComputeTarget)
            result = compute(work)

    def context(self) -> Context:
        """The facts that decisions depend on."""
        return Context(self.now_ms, self.topics, self.settings, self.times, self.times.heartbeat_interval_ms)

    def run(self, effects: Iterable[ConsumerEffect], answers: list[BeatResult]) -> None:
        """Apply the records, and keep what is to be initialized."""
        for effect in effects:
            if isinstance(effect, Write):
                for record in effect.records:
                    self.group.apply(record)
                self.epochs += [record.epoch for record in effect.records if isinstance(record, GroupEpoch)]
            elif isinstance(effect, Initialize):
                self.asked.append(effect)
            replies = effect.replies if isinstance(effect, Write) else (effect,)
            answers += [each.result for each in replies if isinstance(each, Reply) and isinstance(each.result, BeatResult)]

    def initialize(self, *, is_done: bool = True) -> None:
        """The share coordinator answers the oldest request."""
        self.run(on_initialized(self.group, self.asked.pop(0).partitions, is_done, self.context()), [])


def test_partitions_that_are_initialized_while_a_target_is_due_come_with_it() -> None:
    driver = Driver(1_000)
    assert driver.beat("a", 0, "t").epoch == 2
    driver.topics = {"t": an_image("t", 3)}
    assert driver.beat("a", 2).epoch == 2  # the epoch of the target that the member has
    driver.initialize()
    driver.now_ms += 1_000
    answer = driver.beat("a", 2)
    assert (answer.epoch, partitions_of(answer)) == (3, {"t": [0, 1, 2]})
    assert driver.epochs == [2, 3]


def test_partitions_that_are_initialized_after_the_target_raise_the_epoch_once() -> None:
    driver = Driver(0)
    driver.beat("a", 0, "t")
    driver.topics = {"t": an_image("t", 3)}
    assert (driver.beat("a", 2).epoch, driver.beat("a", 3).epoch) == (3, 3)
    driver.initialize()
    assert driver.epochs == [2, 3], "nobody has asked yet"
    answer = driver.beat("a", 3)
    assert (answer.epoch, partitions_of(answer)) == (4, {"t": [0, 1, 2]})
    assert driver.beat("a", 4) == BeatResult(member_id="a", epoch=4, heartbeat_interval_ms=driver.times.heartbeat_interval_ms)
    assert driver.epochs == [2, 3, 4]


def test_another_topic_raises_the_epoch_when_it_is_initialized_while_its_neighbour_stays() -> None:
    driver = Driver(0, t=2)
    driver.beat("a", 0, "t", "u")
    driver.initialize()
    assert partitions_of(driver.beat("a", 2)) == {"t": [0, 1]}
    driver.topics = {**driver.topics, "u": an_image("u", 1)}
    assert driver.beat("a", 3).epoch == 4
    driver.initialize()
    assert partitions_of(driver.beat("a", 4)) == {"t": [0, 1], "u": [0]}
    assert driver.epochs == [2, 3, 4, 5]


def test_an_initialization_that_failed_changes_nothing_and_is_asked_for_again() -> None:
    driver = Driver(0, t=1)
    driver.beat("a", 0, "t")
    driver.initialize(is_done=False)
    assert driver.beat("a", 2).epoch == 2
    assert not driver.asked
    driver.now_ms += driver.times.heartbeat_interval_ms
    driver.beat("a", 2)
    driver.initialize()
    assert partitions_of(driver.beat("a", 2)) == {"t": [0]}


def test_an_initialization_without_a_result_is_asked_for_again_after_the_configured_interval() -> None:
    driver = Driver(0, t=1)
    driver.beat("a", 0, "t")
    driver.now_ms += driver.settings.initialize_retry_ms - 1
    driver.beat("a", 2)
    assert len(driver.asked) == 1
    driver.now_ms += 1
    driver.beat("a", 2)
    assert len(driver.asked) == 2


def test_a_clock_that_was_set_back_delays_neither_an_initialization_nor_a_target() -> None:
    driver = Driver(1_000, t=1)
    driver.beat("a", 0, "t")
    driver.initialize(is_done=False)
    driver.now_ms -= 86_400_000
    driver.beat("a", 2)
    driver.initialize()
    assert partitions_of(driver.beat("a", 2)) == {"t": [0]}


def test_a_topic_that_nobody_subscribes_to_any_more_raises_no_epoch() -> None:
    driver = Driver(0, t=1, u=1)
    driver.beat("a", 0, "t")
    driver.beat("a", 2, "u")
    epochs = list(driver.epochs)
    driver.initialize()  # that of t
    driver.beat("a", driver.group.epoch)
    assert driver.epochs == epochs


def test_a_deleted_topic_leaves_the_assignment_before_the_next_target() -> None:
    driver = Driver(1_000, t=1, u=2)
    driver.beat("a", 0, "t", "u")
    driver.initialize()
    driver.now_ms += 1_000
    assert partitions_of(driver.beat("a", 2)) == {"t": [0], "u": [0, 1]}
    driver.topics = {"u": driver.topics["u"]}
    answer = driver.beat("a", 3)
    assert (answer.epoch, partitions_of(answer)) == (3, {"u": [0, 1]})
    assert driver.beat("a", 3).assignment is None, "it has not come back"
    driver.now_ms += 1_000
    assert driver.beat("a", 3).epoch == 4
    assert driver.epochs == [2, 3, 4]


def test_a_member_loses_the_topics_that_it_no_longer_names_before_the_next_target() -> None:
    driver = Driver(1_000, t=1, u=2)
    driver.beat("a", 0, "t", "u")
    driver.initialize()
    driver.now_ms += 1_000
    driver.beat("a", 2)
    assert partitions_of(driver.beat("a", 3, "t")) == {"t": [0]}


def test_a_member_without_room_for_its_subscription_is_refused_and_one_that_takes_no_more_stays() -> None:
    driver = Driver(0, t=3, u=3)
    size = name_bytes("a") + NAME_BYTES + len("t") + MEMBER_BYTES
    budget = MetadataBudget(2 * size, 2**63)
    driver.group.metadata.count_in(budget)
    epoch = driver.beat("a", 0, "t").epoch
    assert driver.beat("b", 0, "t", "u").error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.beat("a", epoch, "t").error == ErrorCode.NONE
    assert driver.beat("b", 0, "u").error == ErrorCode.NONE
    assert budget.taken == budget.max_bytes
    driver.beat("a", -1)
    assert budget.taken == size
