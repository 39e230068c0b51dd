"""The way to the active controller: who it is, what is tried again, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ottla.broker.cluster.controller_channel import ControllerChannel
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.protocol.schema.message import Message
from ottla.replication.ports.cluster import EndPoint, LiveBroker, MetadataCache
from ottla.replication.ports.peer import PeerUnavailable
from tests.support.fake_peers import Asked, FakePeers

REQUEST = AllocateProducerIdsRequest(broker_id=1, broker_epoch=47)


def a_cluster(controller_id: int, *brokers: int) -> MetadataCache:
    """Broker n listens for brokers at port n."""
    cluster = MetadataCache()
    cluster.controller_id = controller_id
    for broker_id in brokers:
        cluster.brokers[broker_id] = LiveBroker(broker_id, {"INTERNAL": EndPoint("host", broker_id, "INTERNAL", 0)}, None)
    return cluster


def a_channel(cluster: MetadataCache, peers: FakePeers, is_controller: Callable[[], bool] = lambda: False) -> ControllerChannel:
    async def here(api_key: ApiKey, version: int, message: Message) -> Message:
        return AllocateProducerIdsResponse(producer_id_start=7)

    return ControllerChannel(cluster, peers, "INTERNAL", "1", is_controller, here)


def ask(channel: ControllerChannel, timeout_ms: int = 10_000) -> AllocateProducerIdsResponse:
    response = asyncio.run(channel.request(ApiKey.ALLOCATE_PRODUCER_IDS, 0, REQUEST, timeout_ms))
    assert isinstance(response, AllocateProducerIdsResponse)
    return response


def test_the_controller_is_asked_at_its_endpoint_for_brokers_after_api_versions() -> None:
    peers = FakePeers(lambda asked: AllocateProducerIdsResponse(producer_id_start=3000))
    assert ask(a_channel(a_cluster(2, 1, 2), peers)).producer_id_start == 3000
    assert [(each.address.port, each.client_id, each.version) for each in peers.asked] == [(2, "1", 0)]
    assert peers.made[0].negotiate


def test_a_controller_in_this_process_is_called_without_a_connection() -> None:
    peers = FakePeers(lambda asked: AllocateProducerIdsResponse())
    assert ask(a_channel(a_cluster(-1), peers, lambda: True)).producer_id_start == 7
    assert not peers.made


def test_one_connection_serves_many_requests() -> None:
    async def scenario() -> None:
        peers = FakePeers(lambda asked: AllocateProducerIdsResponse())
        channel = a_channel(a_cluster(2, 2), peers)
        await asyncio.gather(*(channel.request(ApiKey.ALLOCATE_PRODUCER_IDS, 0, REQUEST, 10_000) for _ in range(5)))
        assert (len(peers.made), len(peers.asked)) == (1, 5)
        await channel.close()
        assert not peers.open

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["not the controller", "gone"])
def test_who_is_not_the_controller_any_more_is_asked_no_more_once_another_is_known(how: str) -> None:
    cluster = a_cluster(1, 1, 2)

    def answer(asked: Asked) -> Message:
        if asked.address.port == 2:
            return AllocateProducerIdsResponse(producer_id_start=2000)
        cluster.controller_id = 2
        if how == "gone":
            raise PeerUnavailable("gone")
        return AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)

    peers = FakePeers(answer)
    assert ask(a_channel(cluster, peers)).producer_id_start == 2000
    assert ([each.address.port for each in peers.asked], peers.open) == ([1, 2], 1)


def test_a_connection_to_a_former_controller_is_not_used_again() -> None:
    async def scenario() -> None:
        cluster = a_cluster(1, 1, 2)
        peers = FakePeers(lambda asked: AllocateProducerIdsResponse())
        channel = a_channel(cluster, peers)
        await channel.request(ApiKey.ALLOCATE_PRODUCER_IDS, 0, REQUEST, 10_000)
        cluster.controller_id = 2
        await channel.request(ApiKey.ALLOCATE_PRODUCER_IDS, 0, REQUEST, 10_000)
        assert ([each.address.port for each in peers.asked], peers.open) == ([1, 2], 1)

    asyncio.run(scenario())


def test_a_controller_that_is_elected_meanwhile_is_found() -> None:
    async def scenario() -> None:
        cluster = a_cluster(-1, 2)
        channel = a_channel(cluster, FakePeers(lambda asked: AllocateProducerIdsResponse(producer_id_start=1000)))
        asking = asyncio.ensure_future(channel.request(ApiKey.ALLOCATE_PRODUCER_IDS, 0, REQUEST, 10_000))
        await asyncio.sleep(0)
        cluster.controller_id = 2
        response = await asking
        assert isinstance(response, AllocateProducerIdsResponse)
        assert response.producer_id_start == 1000

    asyncio.run(scenario())


def test_after_the_timeout_nobody_is_asked_and_the_reason_is_said() -> None:
    peers = FakePeers(lambda asked: AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER))
    with pytest.raises(PeerUnavailable, match="ALLOCATE_PRODUCER_IDS within 120 ms: broker 2 is no longer the controller"):
        ask(a_channel(a_cluster(2, 2), peers), timeout_ms=120)
    assert peers.asked
    with pytest.raises(PeerUnavailable, match="no controller is known"):
        ask(a_channel(a_cluster(-1), peers), timeout_ms=10)


def test_other_errors_are_for_whoever_asked() -> None:
    peers = FakePeers(lambda asked: AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    assert ask(a_channel(a_cluster(2, 2), peers)).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert len(peers.asked) == 1
