"""All fetchers of a broker: who fetches what, and when they come and go."""

import asyncio

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.offset_for_leader_epoch import EpochEndOffset, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.follower.fetcher_pool import fetcher_id
from ottla.replication.follower.leader_requests import InterBrokerVersions
from ottla.replication.leader.followers import NoFollowers
from tests.support.followers import Follower, ScriptedPeer, answer, answer_by_name, batch, data, until
from tests.support.logs import append
from tests.support.replicas import TOPIC, TOPIC_ID
from tests.support.virtual_time import in_virtual_time


@pytest.mark.parametrize(
    ("topic", "partition", "hashed"),
    [
        # (31 * String.hashCode + partition), made positive as Kafka's Utils.abs does
        ("a", 0, 31 * 97),
        ("ab", 1, 31 * (97 * 31 + 98) + 1),
        ("orders", 5, (31 * -1008770331 + 5) & 0xFFFFFFFF),
    ],
)
def test_partitions_are_spread_by_javas_hash(topic: str, partition: int, hashed: int) -> None:
    signed = hashed - (1 << 32) if hashed >= 1 << 31 else hashed
    assert fetcher_id(TopicPartition(topic, partition), 1000) == abs(signed) % 1000
    assert fetcher_id(TopicPartition(topic, partition), 1) == 0


def test_the_versions_are_those_of_the_inter_broker_protocol() -> None:
    versions = InterBrokerVersions("3.9")
    assert (versions.fetch, versions.list_offsets, versions.offset_for_leader_epoch) == (17, 9, 4)
    assert (versions.truncates_on_fetch, versions.asks_for_epochs) == (True, True)
    versions = InterBrokerVersions("2.6")
    assert (versions.fetch, versions.list_offsets, versions.offset_for_leader_epoch) == (11, 5, 3)
    assert (versions.truncates_on_fetch, versions.asks_for_epochs) == (False, True)
    versions = InterBrokerVersions("0.8.2")
    assert (versions.fetch, versions.list_offsets, versions.offset_for_leader_epoch) == (0, 0, 0)
    assert not versions.asks_for_epochs


@in_virtual_time
async def test_each_leader_has_its_fetchers_and_a_partition_moves_between_them() -> None:
    first, second = ScriptedPeer(), ScriptedPeer()
    follower = Follower(first, second)
    follower.follow(0, leader=0)
    follower.follow(1, leader=2)
    await until(lambda: bool(first.asked and second.asked))
    assert sorted(follower.pool.fetchers) == [(0, 0), (2, 0)]

    follower.follow(0, leader=2, epoch=2)

    assert sorted(each.partition for each in follower.pool.fetchers[2, 0].followed) == [0, 1]
    assert not follower.pool.fetchers[0, 0].followed
    await follower.pool.close()
    assert second.closed


@in_virtual_time
async def test_a_fetcher_without_partitions_ends_and_closes_its_connection() -> None:
    peer = ScriptedPeer()
    follower = Follower(peer)
    follower.follow()
    await until(lambda: bool(peer.asked))
    follower.lead(epoch=2)
    peer.script.append(answer_by_name())
    await until(lambda: peer.closed)

    assert not follower.pool.fetchers
    assert follower.pool.followed(TopicPartition(TOPIC, 0)) is None


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_topic_whose_id_the_controller_does_not_say_any_more_is_fetched_by_its_name(epoch: int) -> None:
    """One of an old inter.broker.protocol.version has taken over: leaders know no ids then, though the log here has one."""

    @in_virtual_time
    async def scenario() -> None:
        peer = ScriptedPeer()
        follower = Follower(peer)
        follower.follow(epoch=1)
        await until(lambda: len(peer.asked) == 1)
        follower.follow(epoch=epoch, topic_id=ZERO_UUID)
        peer.script.append(answer())
        await until(lambda: len(peer.asked) == 2)
        asked = [(each.version, [topic.topic for topic in each.request.topics]) for each in peer.asked]
        assert asked == [(17, [""]), (12, [TOPIC])]
        peer.script.append(answer_by_name())
        follower.follow(epoch=3)
        await until(lambda: len(peer.asked) > 2 and bool(peer.fetches[-1].topics))
        assert (peer.asked[-1].version, peer.fetches[-1].topics[0].topic_id) == (17, TOPIC_ID)
        await follower.pool.close()

    scenario()


@in_virtual_time
async def test_the_number_of_fetchers_changes_while_they_fetch() -> None:
    follower = Follower(*(ScriptedPeer() for _ in range(9)))
    follower.follow(0, 1, 2, 3)
    follower.config.update_dynamic({}, {"num.replica.fetchers": "2"})

    assert sorted(follower.pool.fetchers) == [(0, 0), (0, 1)]
    assert {number: len(fetcher.followed) for (_, number), fetcher in follower.pool.fetchers.items()} == {0: 2, 1: 2}
    assert all(fetcher.client_id == f"broker-1-fetcher-{number}" for (_, number), fetcher in follower.pool.fetchers.items())
    await follower.pool.close()


@in_virtual_time
async def test_a_closed_pool_follows_nobody() -> None:
    follower = Follower()
    await follower.pool.close()
    follower.follow()

    assert not follower.pool.fetchers


@in_virtual_time
async def test_nothing_is_asked_while_there_is_more_to_follow() -> None:
    peer = ScriptedPeer()
    follower = Follower(peer)
    follower.manager.followers = NoFollowers()
    follower.follow(0)
    follower.follow(1)
    follower.pool.follow([follower.partition(0)], more_to_come=True)
    await asyncio.sleep(0.01)
    assert not peer.asked
    follower.pool.follow([follower.partition(1)])
    await until(lambda: bool(peer.asked))
    assert [len(topic.partitions) for topic in peer.fetches[0].topics] == [2]
    await follower.pool.close()


@in_virtual_time
async def test_the_same_epoch_again_changes_nothing() -> None:
    peer = ScriptedPeer()
    follower = Follower(peer)
    follower.follow()
    before = follower.followed()
    follower.pool.follow([follower.partition()])

    assert follower.followed() is before
    await follower.pool.close()


def epochs(offset: int, epoch: int, error_code: int = 0) -> OffsetForLeaderEpochResponse:
    found = EpochEndOffset(partition=0, leader_epoch=epoch, end_offset=offset, error_code=error_code)
    return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic=TOPIC, partitions=[found])])


@in_virtual_time
async def test_before_two_seven_followers_ask_where_epochs_ended_until_they_know() -> None:
    peer = ScriptedPeer(epochs(3, 1), epochs(2, 0), answer_by_name(data(found=bytes(batch(2, 1, epoch=3)), high_watermark=2)))
    follower = Follower(peer, inter_broker_protocol_version="2.6")
    follower.lead(epoch=0)
    for epoch, records in ((0, 2), (2, 3)):
        for _ in range(records):
            append(follower.log(), epoch=epoch)
    follower.follow(epoch=3)
    await until(lambda: len(peer.asked) == 4)

    asked = [each.request.topics[0].partitions[0] for each in peer.asked[:2]]
    assert [(each.current_leader_epoch, each.leader_epoch) for each in asked] == [(3, 2), (3, 0)]
    assert [each.version for each in peer.asked] == [3, 3, 11, 11]
    assert [each.api_key for each in peer.asked[:3]] == [ApiKey.OFFSET_FOR_LEADER_EPOCH] * 2 + [ApiKey.FETCH]
    fetch = peer.fetches[0]
    assert fetch.replica_id == 1
    assert (fetch.topics[0].topic, fetch.topics[0].partitions[0].fetch_offset) == (TOPIC, 2)
    assert follower.log().leader_epochs.entries == [(0, 0), (3, 2)]
    await follower.pool.close()


@pytest.mark.parametrize(("code", "gives_up"), [(74, True), (75, False), (6, False)])
def test_before_two_seven_a_leader_may_refuse_to_say_where_epochs_ended(code: int, gives_up: bool) -> None:
    @in_virtual_time
    async def scenario() -> None:
        peer = ScriptedPeer(epochs(-1, -1, code))
        follower = Follower(peer, inter_broker_protocol_version="2.6")
        follower.lead(epoch=0)
        append(follower.log(), epoch=0)
        follower.follow(epoch=3)
        if gives_up:
            await until(lambda: bool(follower.pool.failed))
        else:
            await until(lambda: len(peer.asked) == 2)
            assert not peer.fetches
        assert follower.log().log_end_offset == 1
        await follower.pool.close()

    scenario()
