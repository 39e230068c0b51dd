"""What the replica manager tells those who fetch from leaders: whom to follow, when, and when no more."""

import asyncio
from collections.abc import Iterable

from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse, LeaderAndIsrTopicState
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.control.replica_manager import PARTITIONS_TOGETHER
from ottla.replication.leader.followers import TOGETHER, follow_all
from ottla.replication.leader.partition import Partition
from tests.support.pauses import Steps, every_pause_waits
from tests.support.replicas import TOPIC, TOPIC_ID, Replicas, state


class Followers:
    """Remembers what it was told, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def follow(self, partitions: Iterable[Partition], *, more_to_come: bool = False) -> None:
        """See Followers."""
        followed = ", ".join(f"{each.topic_partition} of {each.leader_id} in {each.leader_epoch}" for each in partitions)
        self.told.append(f"follow {followed}{' and more' if more_to_come else ''}")

    def unfollow(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """See Followers."""
        self.told.append("unfollow " + ", ".join(map(str, topic_partitions)))


def following() -> tuple[Replicas, Followers]:
    """Broker 0 follows broker 1."""
    replicas = Replicas()
    followers = replicas.manager.followers = Followers()
    replicas.say(state(leader=1))
    followers.told.clear()
    return replicas, followers


def test_a_replica_is_followed_after_whatever_fetched_it_has_let_go() -> None:
    replicas, followers = following()
    replicas.say(state(leader=2, epoch=1, partition_epoch=1))
    assert followers.told == ["unfollow orders-0", "follow orders-0 of 2 in 1"]


def test_all_that_become_followers_in_a_request_are_followed_together_at_its_end() -> None:
    replicas, followers = following()
    replicas.say(state(leader=2, index=1), state(leader=0, index=2), state(leader=1, index=3))
    assert followers.told == [
        "unfollow orders-1", "unfollow orders-2", "unfollow orders-3", "follow orders-1 of 2 in 0, orders-3 of 1 in 0"
    ]  # fmt: skip


def test_very_many_are_handed_over_in_several_turns_and_not_those_that_must_not_be_followed_any_more() -> None:
    replicas = Replicas()
    many = TOGETHER + 2
    replicas.say(*(state(index=index, leader=1) for index in range(many)))
    partitions = list(replicas.manager)
    for gone in (set(), {many - 1}, {many - 2, many - 1}):
        followers = Followers()
        asyncio.run(handed_over({each.topic_partition: each for each in partitions}, followers, gone))
        assert [each.endswith("and more") for each in followers.told] == [True, False]
        assert sum(each.count(" of ") for each in followers.told) == many - len(gone)


async def handed_over(to_follow: dict[TopicPartition, Partition], followers: Followers, gone: Iterable[int]) -> None:
    every_pause_waits()
    handing = asyncio.get_running_loop().create_task(follow_all(to_follow, followers))
    await asyncio.sleep(0)
    for index in gone:
        del to_follow[TopicPartition(TOPIC, index)]
    await handing


def test_a_hand_over_that_is_cancelled_hands_over_the_rest_at_once() -> None:
    replicas = Replicas()
    many = TOGETHER + 2
    replicas.say(*(state(index=index, leader=1) for index in range(many)))
    followers = Followers()

    async def cancelled() -> None:
        every_pause_waits()
        handing = asyncio.create_task(follow_all({each.topic_partition: each for each in replicas.manager}, followers))
        await asyncio.sleep(0)
        handing.cancel()
        await asyncio.wait((handing,))

    asyncio.run(cancelled())
    assert [each.endswith("and more") for each in followers.told] == [True, False]
    assert sum(each.count(" of ") for each in followers.told) == many


def test_a_new_leader_follows_nobody() -> None:
    replicas, followers = following()
    replicas.say(state(leader=0, epoch=1, partition_epoch=1))
    assert followers.told == ["unfollow orders-0"]


def test_a_repeated_request_lets_the_fetching_go_on_as_it_is() -> None:
    replicas, followers = following()
    replicas.say(state(leader=1))
    assert followers.told == []


def test_a_leader_that_is_not_alive_is_not_followed_and_the_repetition_of_the_request_is_taken() -> None:
    replicas = Replicas()
    followers = replicas.manager.followers = Followers()
    replicas.alive(0)
    assert replicas.code_of(state(leader=1)) == 0
    assert followers.told == []
    assert replicas.partition.leader_epoch == -1
    replicas.alive(0, 1)
    replicas.say(state(leader=1))
    assert followers.told == ["unfollow orders-0", "follow orders-0 of 1 in 0"]


def test_a_replica_that_is_stopped_is_not_fetched_any_more_deleted_or_not() -> None:
    replicas, followers = following()
    replicas.stop(leader_epoch=0)
    assert followers.told == ["unfollow orders-0"]
    replicas.stop(leader_epoch=0, delete=True)
    assert set(followers.told) == {"unfollow orders-0"}


def test_a_stop_in_an_older_epoch_stops_nothing() -> None:
    replicas, followers = following()
    replicas.say(state(leader=1, epoch=1, partition_epoch=1))
    followers.told.clear()
    replicas.stop(leader_epoch=0)
    assert followers.told == []


def test_replicas_in_a_directory_that_failed_are_not_fetched_any_more() -> None:
    replicas, followers = following()
    replicas.manager.on_log_dir_failure(replicas.partition.log.log_dir)
    assert followers.told == ["unfollow orders-0"]


def test_a_replica_that_gets_its_topic_id_is_followed_by_it() -> None:
    replicas = Replicas()
    followers = replicas.manager.followers = Followers()
    replicas.say(state(leader=1), topic_id=ZERO_UUID)
    followers.told.clear()
    replicas.say(state(leader=1))
    assert followers.told == ["follow orders-0 of 1 in 0"]
    assert replicas.partition.topic_id == TOPIC_ID


def a_long_request(leader: int, epoch: int, controller_epoch: int = 1) -> LeaderAndIsrRequest:
    """Its partitions need two calls of a thread."""
    states = [state(leader=leader, epoch=epoch, partition_epoch=epoch, index=index) for index in range(PARTITIONS_TOGETHER + 1)]
    topic = LeaderAndIsrTopicState(topic_name=TOPIC, topic_id=TOPIC_ID, partition_states=states)
    return LeaderAndIsrRequest(controller_id=1, controller_epoch=controller_epoch, topic_states=[topic])


def half_done(replicas: Replicas) -> Steps[LeaderAndIsrResponse]:
    """A request to follow broker 1 of which the first part was applied."""
    steps = Steps(replicas.manager.on_leader_and_isr(a_long_request(leader=1, epoch=0)))
    for _ in range(PARTITIONS_TOGETHER):
        next(steps)
    return steps


def test_what_became_leader_while_a_longer_request_was_worked_off_is_not_followed() -> None:
    replicas = Replicas()
    followers = replicas.manager.followers = Followers()
    waiting = half_done(replicas)
    replicas.say(state(leader=0, epoch=1, partition_epoch=1))
    waiting.finish()
    followed = [line for line in followers.told if line.startswith("follow")]
    assert followed
    assert all("orders-0 " not in line for line in followed)


def test_what_was_stopped_while_a_longer_request_was_worked_off_is_not_followed() -> None:
    replicas = Replicas()
    followers = replicas.manager.followers = Followers()
    waiting = half_done(replicas)
    replicas.stop(leader_epoch=0, delete=True)
    waiting.finish()
    assert all("orders-0 " not in line for line in followers.told if line.startswith("follow"))


def test_a_request_that_a_new_controller_ends_early_follows_what_it_has_applied() -> None:
    replicas = Replicas()
    followers = replicas.manager.followers = Followers()
    waiting = half_done(replicas)
    replicas.alive(0, 1, 2, controller_epoch=2)
    waiting.finish()
    assert followers.told[-1].startswith("follow orders-0 of 1 in 0")
    assert len(replicas.manager.partitions[TOPIC]) == PARTITIONS_TOGETHER
    assert f"orders-{PARTITIONS_TOGETHER} " not in followers.told[-1]


def test_several_may_listen_to_changes_of_leadership() -> None:
    replicas = Replicas()
    heard: list[str] = []
    for name in ("a", "b"):
        replicas.manager.leadership_listeners.append(lambda partition, name=name: heard.append(f"{name} {partition.is_leader}"))
    replicas.say(state())
    assert heard == ["a True", "b True"]
