"""What UpdateMetadata does to a broker, and that of a large one nothing can be seen before all can."""

import asyncio

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse, UpdateMetadataTopicState
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.errors import NotLeaderOrFollower
from tests.support.pauses import at_once, every_pause_waits
from tests.support.replicas import TOPIC, TOPIC_ID, Replicas, brokers, into, metadata, state

T0 = TopicPartition(TOPIC, 0)
OTHER_ID = b"another topic id"
MANY = 20


def test_deleted_partitions_are_reported() -> None:
    replicas = Replicas()
    gone: list[TopicPartition] = []
    replicas.manager.deletion_listeners.append(into(gone))
    topic_states = [metadata(TOPIC, TOPIC_ID, p0=-2, p1=-2)]
    at_once(replicas.manager.on_update_metadata(UpdateMetadataRequest(controller_epoch=1, topic_states=topic_states)))
    assert gone == [T0, TopicPartition(TOPIC, 1)]


def test_a_deletion_that_no_controller_reported_is_told_apart() -> None:
    replicas = Replicas()
    gone: list[TopicPartition] = []
    reported: list[TopicPartition] = []
    replicas.manager.deletion_listeners.append(into(gone))
    replicas.manager.reported_deletion_listeners.append(into(reported))

    def hear(leader: int) -> None:
        topic_states = [metadata(TOPIC, TOPIC_ID, p0=leader)]
        at_once(replicas.manager.on_update_metadata(UpdateMetadataRequest(controller_epoch=1, topic_states=topic_states)))

    hear(1)
    at_once(replicas.manager.forget_topics(list(replicas.cluster.topics.values())))
    assert (gone, reported) == ([T0], [])
    hear(1)
    hear(-2)
    assert (gone, reported) == ([T0, T0], [T0])


@pytest.mark.parametrize("topic_id", [TOPIC_ID, ZERO_UUID])
def test_a_leader_whose_replica_was_moved_away_while_it_stood_still_leads_no_more(topic_id: bytes) -> None:
    replicas = Replicas()
    replicas.say(state(epoch=4, isr=[0], replicas=[0, 1]))
    led = replicas.partition
    told: list[bool] = []
    replicas.manager.leadership_listeners.append(lambda partition: told.append(partition.is_leader))

    def hear(epoch: int, *replicas_now: int) -> None:
        topic = metadata(TOPIC, topic_id, p0=1)
        topic.partition_states[0].leader_epoch, topic.partition_states[0].replicas = epoch, replicas_now
        at_once(
            replicas.manager.on_update_metadata(
                UpdateMetadataRequest(controller_epoch=1, live_brokers=brokers(0, 1, 2), topic_states=[topic])
            )
        )

    hear(5, 1, 0)
    hear(4, 1, 2)
    assert led.is_leader, "it is a replica, or the news is old"
    hear(5, 1, 2)
    assert not led.is_leader
    assert told == [False]
    with pytest.raises(NotLeaderOrFollower):
        replicas.manager.partition_or_raise(TOPIC, 0)
    assert replicas.logs.get(T0) is led.log
    replicas.say(state(epoch=6, isr=[0], replicas=[0, 1]))
    assert replicas.partition.is_leader


def news(leader: int, partitions: int = MANY, *, controller_epoch: int = 1, live: tuple[int, ...] = (0, 1, 2)) -> UpdateMetadataRequest:
    """Every partition of two topics has this leader."""
    topics = [_topic(name, topic_id, leader, partitions) for name, topic_id in ((TOPIC, TOPIC_ID), ("other", OTHER_ID))]
    return UpdateMetadataRequest(controller_id=1, controller_epoch=controller_epoch, live_brokers=brokers(*live), topic_states=topics)


def _topic(name: str, topic_id: bytes, leader: int, partitions: int) -> UpdateMetadataTopicState:
    return metadata(name, topic_id, **{f"p{index}": leader for index in range(partitions)})


def leaders(replicas: Replicas) -> list[int]:
    return sorted({each.leader for image in replicas.cluster.topics.values() for each in image.partitions.values()})


async def turns_of(replicas: Replicas, *requests: UpdateMetadataRequest) -> tuple[list[list[int]], list[UpdateMetadataResponse]]:
    """Who led what after each turn of the loop while these were taken in, and the answers."""
    every_pause_waits()
    work = [asyncio.ensure_future(replicas.manager.on_update_metadata(request)) for request in requests]
    seen = []
    while not all(each.done() for each in work):
        await asyncio.sleep(0)
        seen.append(leaders(replicas))
    return seen, [each.result() for each in work]


def test_a_large_one_takes_several_turns_and_is_seen_all_at_once() -> None:
    replicas = Replicas()
    at_once(replicas.manager.on_update_metadata(news(0)))
    before = replicas.cluster.topics, replicas.cluster.brokers
    seen, (response,) = asyncio.run(turns_of(replicas, news(1, live=(1,))))
    assert response.error_code == ErrorCode.NONE
    assert len(seen) > 2 * MANY
    assert sorted(map(tuple, seen)) == list(map(tuple, seen))
    assert set(map(tuple, seen)) == {(0,), (1,)}
    assert set(replicas.cluster.brokers) == {1}
    assert {state.leader for image in before[0].values() for state in image.partitions.values()} == {0}
    assert set(before[1]) == {0, 1, 2}


def test_brokers_and_topics_change_in_the_same_turn() -> None:
    replicas = Replicas()
    at_once(replicas.manager.on_update_metadata(news(0)))

    async def scenario() -> None:
        every_pause_waits()
        work = asyncio.ensure_future(replicas.manager.on_update_metadata(news(1, live=(1,))))
        while not work.done():
            await asyncio.sleep(0)
            assert (leaders(replicas), set(replicas.cluster.brokers)) in (([0], {0, 1, 2}), ([1], {1}))

    asyncio.run(scenario())


def test_they_are_taken_in_one_after_the_other_as_they_came() -> None:
    replicas = Replicas()
    seen, responses = asyncio.run(turns_of(replicas, news(0), news(1), news(2, 1), news(0, 1)))
    assert [response.error_code for response in responses] == [0, 0, 0, 0]
    assert [found for at, found in enumerate(seen) if not at or found != seen[at - 1]] == [[], [0], [1], [1, 2], [0, 1]]


def test_of_a_controller_that_is_deposed_meanwhile_nothing_is_taken_in() -> None:
    replicas = Replicas()
    gone: list[TopicPartition] = []
    replicas.manager.deletion_listeners.append(into(gone))
    at_once(replicas.manager.on_update_metadata(news(0)))
    seen, (old, new) = asyncio.run(turns_of(replicas, news(-2), news(1, controller_epoch=2)))
    assert (old.error_code, new.error_code) == (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.NONE)
    assert set(map(tuple, seen)) == {(0,), (1,)}
    assert gone == []
    assert replicas.cluster.controller_epoch == 2


def test_one_that_is_not_waited_for_any_more_changes_nothing_and_is_in_nobodys_way() -> None:
    replicas = Replicas()

    async def scenario() -> None:
        every_pause_waits()
        given_up = asyncio.ensure_future(replicas.manager.on_update_metadata(news(0)))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        assert leaders(replicas) == []
        await replicas.manager.on_update_metadata(news(1))

    asyncio.run(scenario())
    assert leaders(replicas) == [1]


def test_what_is_forgotten_waits_for_the_update_that_is_under_way() -> None:
    replicas = Replicas()
    at_once(replicas.manager.on_update_metadata(news(0)))

    async def scenario() -> None:
        ghosts = list(replicas.cluster.topics.values())
        updating = asyncio.ensure_future(replicas.manager.on_update_metadata(UpdateMetadataRequest(
            controller_epoch=1, topic_states=[_topic(TOPIC, TOPIC_ID, 1, MANY)]
        )))  # fmt: skip
        await asyncio.sleep(0)
        assert [image.name for image in await replicas.manager.forget_topics(ghosts)] == ["other"]
        assert updating.done()

    asyncio.run(scenario())
    assert list(replicas.cluster.topics) == [TOPIC]
    assert leaders(replicas) == [1]
    assert list(replicas.cluster.names_by_id) == [TOPIC_ID]
