"""A broker that is about to stop asks the controller to move its leaderships: how often, whom, and when it gives up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.cluster.controlled_shutdown import ControlledShutdown, Leaving
from ottla.config.broker import BrokerConfig
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse, RemainingPartition
from ottla.protocol.schema.message import Message
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.ports.cluster import EndPoint, LiveBroker, MetadataCache
from ottla.replication.ports.peer import PeerUnavailable
from tests.support.fake_peers import Asked, FakePeers

REMAINING = ControlledShutdownResponse(remaining_partitions=[RemainingPartition(topic_name="t", partition_index=3)])


class Bench:
    """Broker 1 with epoch 47; broker 0 is the controller, at port 9000."""

    def __init__(self, *answers: Message | Exception, brokers: tuple[int, ...] = (0, 1, 2), is_controller: bool = False) -> None:
        self.answers = list(answers)
        self.peers = FakePeers(self._answer)
        self.slept: list[float] = []
        self.partitions: list[Any] = []
        self.here: list[Message] = []
        self.is_store_connected = True
        self.on_sleep: Callable[[], object] = lambda: None
        cluster = self.cluster = MetadataCache()
        cluster.controller_id = 0
        for each in brokers:
            cluster.brokers[each] = LiveBroker(each, {"PLAINTEXT": EndPoint("host", 9000 + each, "PLAINTEXT", 0)}, None)
        config = BrokerConfig({"log.dirs": "/nowhere", "controlled.shutdown.retry.backoff.ms": "700"})
        self.shutdown = ControlledShutdown(
            config,
            cluster,
            cast("Any", self.partitions),
            self.peers,
            lambda: is_controller,
            self._ask_here,
            lambda: self.is_store_connected,
            self._sleep,
        )

    def run(self) -> bool:
        return asyncio.run(self.shutdown.run(1, 47))

    def _answer(self, asked: Asked) -> Message:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _ask_here(self, api_key: ApiKey, version: int, message: Message) -> Message:
        self.here.append(message)
        if not self.answers:
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        assert isinstance(answer, Message)
        return answer

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.on_sleep()


def test_the_controller_is_asked_once_over_a_connection_of_its_own() -> None:
    bench = Bench(ControlledShutdownResponse())
    assert bench.run()
    ((address, client_id, api_key, version, message),) = bench.peers.asked
    assert (address.port, client_id, api_key, version) == (9000, "1", ApiKey.CONTROLLED_SHUTDOWN, 3)
    assert isinstance(message, ControlledShutdownRequest)
    assert (message.broker_id, message.broker_epoch) == (1, 47)
    assert not bench.peers.made[0].negotiate
    assert not bench.peers.open
    assert not bench.slept


def test_what_failed_is_tried_again_after_the_backoff() -> None:
    refused = ControlledShutdownResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
    bench = Bench(PeerUnavailable("gone"), refused, ControlledShutdownResponse())
    assert bench.run()
    assert (sum(bench.slept), bench.peers.open) == (pytest.approx(1.4), 0)


def test_after_the_last_attempt_the_broker_stops_anyway() -> None:
    bench = Bench(REMAINING, REMAINING, REMAINING)
    assert not bench.run()
    assert (sum(bench.slept), len(bench.peers.asked)) == (pytest.approx(1.4), 3)


def test_a_controller_that_cannot_decide_for_want_of_the_metadata_store_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.cluster.controlled_shutdown.STORE_AWAY_SECONDS", 0.2)
    bench = Bench(is_controller=True)
    bench.is_store_connected = False
    assert not bench.run()
    assert (len(bench.here), bench.slept) == (1, [])


def test_an_answer_counts_although_the_metadata_store_is_away_here() -> None:
    bench = Bench(ControlledShutdownResponse())
    bench.is_store_connected = False
    assert bench.run()


def test_the_last_broker_does_not_wait_for_anybody() -> None:
    bench = Bench(REMAINING)
    bench.on_sleep = lambda: [bench.cluster.brokers.pop(each) for each in (0, 2)]
    assert bench.run()
    assert (len(bench.slept), len(bench.peers.asked)) == (1, 1)


def test_who_comes_into_sync_during_the_pause_is_asked_for_at_once() -> None:
    bench = Bench(REMAINING, ControlledShutdownResponse())
    bench.partitions.append(partition := SimpleNamespace(is_leader=True, isr=(1,)))

    def catch_up() -> None:
        partition.isr = (1, 2)
        partition.is_leader = len(bench.peers.asked) < 2

    bench.on_sleep = catch_up
    assert bench.run()
    assert sum(bench.slept) < 0.2


def test_a_broker_that_is_alone_asks_nobody() -> None:
    bench = Bench(brokers=(1,))
    assert bench.run()
    assert not bench.peers.made


def test_a_controller_asks_itself() -> None:
    bench = Bench(ControlledShutdownResponse(), is_controller=True)
    assert bench.run()
    assert (len(bench.here), bench.peers.made) == (1, [])


def test_it_is_over_when_this_broker_has_heard_that_it_leads_no_longer() -> None:
    bench = Bench(ControlledShutdownResponse())
    bench.partitions.append(partition := SimpleNamespace(is_leader=True, isr=(1, 2)))
    bench.on_sleep = lambda: setattr(partition, "is_leader", len(bench.slept) < 2)
    assert bench.run()
    assert len(bench.slept) == 2


def test_what_only_this_broker_has_is_not_waited_for() -> None:
    bench = Bench(ControlledShutdownResponse())
    bench.partitions += [SimpleNamespace(is_leader=True, isr=(1,)), SimpleNamespace(is_leader=True, isr=(1, 5))]
    assert bench.run()
    assert not bench.slept


def test_who_leaves_follows_nothing_anew_and_stops_to_follow_what_has_a_new_leader() -> None:
    unfollowed: list[TopicPartition] = []
    leaving = Leaving(cast("Any", SimpleNamespace(unfollow=unfollowed.extend)))
    leaving.follow([cast("Any", SimpleNamespace(topic_partition=TopicPartition("t", 0)))])
    leaving.unfollow([TopicPartition("t", 1)])
    assert unfollowed == [TopicPartition("t", 0), TopicPartition("t", 1)]
