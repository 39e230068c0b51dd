"""The connection to another broker, against one that does what it likes."""

from __future__ import annotations

import asyncio
import gc
import struct
from collections.abc import Awaitable, Callable

import pytest

from ottla.broker.network.peer_connection import PeerConnections
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.cursors.request_reader import PARTITION
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.replication.ports.peer import Peer, PeerAddress, PeerUnavailable
from tests.support.peers import LOOPS, run_on, until
from tests.support.scripted_peer import Received, ScriptedPeer, a_peer

SECONDS = 20_000
ASK = AllocateProducerIdsRequest(broker_id=3, broker_epoch=25)


async def a_block(received: Received) -> bytes:
    """The block that begins at the correlation id, so that answers can be told apart."""
    return received.answer(AllocateProducerIdsResponse(producer_id_start=received.correlation_id, producer_id_len=1000))


async def ask(peer: Peer, timeout_ms: int = SECONDS) -> AllocateProducerIdsResponse:
    response = await peer.request(ApiKey.ALLOCATE_PRODUCER_IDS, 0, ASK, timeout_ms=timeout_ms)
    assert isinstance(response, AllocateProducerIdsResponse)
    return response


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[None]]], None]:
    return run_on(request.param)


def test_requests_go_over_one_connection_with_the_headers_of_a_broker(run) -> None:
    async def scenario() -> None:
        async with a_peer(a_block) as other:
            peer = PeerConnections()(lambda: other.address, "broker-1")
            assert other.connections == 0
            assert [(await ask(peer)).producer_id_start for _ in range(3)] == [0, 1, 2]
            assert other.connections == 1
            assert {(each.api_key, each.version, each.client_id, each.body.broker_epoch) for each in other.requests} == {
                (ApiKey.ALLOCATE_PRODUCER_IDS, 0, "broker-1", 25)
            }
            await peer.close()

    run(scenario)


@pytest.mark.parametrize("size", [10, 65_000, 65_536, 70_000, 262_000, 262_144, 3_000_000])
@pytest.mark.parametrize("version", [11, 17])
def test_records_of_any_size_are_views_of_what_came(run, size: int, version: int) -> None:
    async def scenario() -> None:
        async def records(received: Received) -> bytes:
            found = bytes([received.correlation_id]) * (size + received.correlation_id % 2)
            partition = PartitionData(partition_index=0, high_watermark=7, records=found)
            return received.answer(
                FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=b"t" * 16, partitions=[partition])]),
            )

        async with a_peer(records) as other:
            peer = PeerConnections()(lambda: other.address, "broker-1")
            for number in range(4):
                answer = await peer.fetch(version, FetchRequest(), timeout_ms=SECONDS)
                assert answer.advance() == PARTITION
                assert bytes(answer.records()) == bytes([number]) * (size + number % 2)
            await peer.close()

    run(scenario)


def test_a_fetcher_may_ask_other_things_over_its_connection(run) -> None:
    async def scenario() -> None:
        async def anything(received: Received) -> bytes:
            if received.api_key != ApiKey.FETCH:
                return await a_block(received)
            partition = PartitionData(partition_index=received.correlation_id, high_watermark=7, records=b"x" * 300_000)
            return received.answer(FetchResponse(responses=[FetchableTopicResponse(topic_id=b"t" * 16, partitions=[partition])]))

        async with a_peer(anything) as other:
            peer = PeerConnections()(lambda: other.address, "broker-1")
            assert (await ask(peer)).producer_id_start == 0
            for number in (1, 3, 5):
                answer = await peer.fetch(17, FetchRequest(), timeout_ms=SECONDS)
                assert answer.advance() == PARTITION
                assert answer.index == number
                assert (await ask(peer)).producer_id_start == number + 1
            await peer.close()

    run(scenario)


def test_an_answer_to_a_fetch_in_single_bytes_is_put_together(run) -> None:
    async def scenario() -> None:
        async def slowly(received: Received) -> bytes:
            received.writer.transport.set_write_buffer_limits(0)
            for byte in received.answer(FetchResponse(session_id=received.correlation_id)):
                received.writer.write(bytes([byte]))
                await asyncio.sleep(0.001)
            return b""

        async with a_peer(slowly) as other:
            peer = PeerConnections()(lambda: other.address, "broker-1")
            for number in range(2):
                assert (await peer.fetch(17, FetchRequest(), timeout_ms=SECONDS)).session_id == number
            await peer.close()

    run(scenario)


def test_a_response_in_single_bytes_is_put_together(run) -> None:
    async def scenario() -> None:
        async def slowly(received: Received) -> bytes:
            received.writer.transport.set_write_buffer_limits(0)
            for byte in await a_block(received):
                received.writer.write(bytes([byte]))
                await asyncio.sleep(0.001)
            return b""

        async with a_peer(slowly) as other:
            peer = PeerConnections()(lambda: other.address, "broker-1")
            assert [(await ask(peer)).producer_id_start for _ in range(2)] == [0, 1]
            await peer.close()

    run(scenario)


def test_after_the_other_side_closed_the_next_request_connects_again(run) -> None:
    async def scenario() -> None:
        async def once(received: Received) -> bytes | None:
            return await a_block(received) if other.connections > 1 else None

        async with a_peer(once) as other:
            peer = PeerConnections()(lambda: other.address, "broker-1")
            with pytest.raises(PeerUnavailable, match="closed the connection"):
                await ask(peer)
            assert (await ask(peer)).producer_id_start == 0
            await peer.close()

    run(scenario)


def test_the_address_is_looked_up_for_every_connection(run) -> None:
    async def scenario() -> None:
        async with a_peer(a_block) as first, a_peer(a_block) as second:
            at: list[PeerAddress | None] = [None]
            peer = PeerConnections()(lambda: at[0], "broker-1")
            with pytest.raises(PeerUnavailable, match="not known"):
                await ask(peer)
            for other in (first, second):
                at[0] = other.address
                await ask(peer)
                other.requests[-1].writer.close()
                await until(lambda: not peer.is_connected)
            assert (first.connections, second.connections) == (1, 1)
            await peer.close()

    run(scenario)


def test_silence_is_unavailable_after_the_timeout_and_closes(run) -> None:
    async def scenario() -> None:
        async def silence(received: Received) -> bytes:
            await asyncio.sleep(60)
            return b""

        async with a_peer(silence) as other:
            peer = PeerConnections()(lambda: other.address, "broker-1")
            for connections in (1, 2):
                with pytest.raises(PeerUnavailable, match="no answer in time"):
                    await ask(peer, timeout_ms=50)
                assert other.connections == connections
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

    run(scenario)


def test_the_timer_of_one_request_does_not_end_the_next(run) -> None:
    async def scenario() -> None:
        async def after_a_while(received: Received) -> bytes:
            await asyncio.sleep(0.12 * len(other.requests) - 0.12)
            return await a_block(received)

        async with a_peer(after_a_while) as other:
            peer = PeerConnections()(lambda: other.address, "broker-1")
            await ask(peer, timeout_ms=100)
            assert (await ask(peer, timeout_ms=SECONDS)).producer_id_start == 1
            await peer.close()

    run(scenario)


def test_a_cancelled_request_closes_the_connection_and_its_answer_goes_to_nobody(run) -> None:
    async def scenario() -> None:
        async def late(received: Received) -> bytes:
            if other.connections == 1:
                await asyncio.sleep(0.1)
            return await a_block(received)

        async with a_peer(late) as other:
            peer = PeerConnections()(lambda: other.address, "broker-1")
            asking = asyncio.ensure_future(ask(peer))
            await until(lambda: len(other.requests) == 1)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert (await ask(peer)).producer_id_start == 0
            assert other.connections == 2
            await peer.close()

    run(scenario)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (struct.pack(">ii", 4, 99), "an unexpected answer"),
        (struct.pack(">ii", 2_000_000, 0), "2000000 bytes; at most 1000000"),
        (struct.pack(">ii", -1, 0), "-1 bytes"),
        (struct.pack(">ii", 4, 0) + b"more", "extra bytes after the answer"),
        (struct.pack(">iib", 5, 0, 0), "malformed answer"),
        (struct.pack(">iib", 5, 0, -1), "malformed answer"),
    ],
)
def test_what_is_no_answer_closes_the_connection(run, answer: bytes, why: str) -> None:
    async def scenario() -> None:
        async def nonsense(received: Received) -> bytes:
            return answer

        async with a_peer(nonsense) as other:
            peer = PeerConnections(max_response_bytes=1_000_000)(lambda: other.address, "broker-1")
            with pytest.raises(PeerUnavailable, match=why):
                await ask(peer)
            await until(lambda: not other.open)

    run(scenario)


def test_nobody_there_is_unavailable() -> None:
    async def scenario() -> None:
        async with a_peer(a_block) as other:
            gone = other.address
        peer = PeerConnections()(lambda: gone, "broker-1")
        for _ in range(20):
            with pytest.raises(PeerUnavailable, match=f"cannot connect to 127.0.0.1:{gone.port}"):
                await ask(peer)
        gc.collect()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_on("uvloop")(scenario)


def test_a_closed_peer_stays_closed() -> None:
    async def scenario() -> None:
        async with a_peer(a_block) as other:
            peer = PeerConnections()(lambda: other.address, "broker-1")
            await ask(peer)
            await peer.close()
            with pytest.raises(PeerUnavailable):
                await ask(peer)
            await until(lambda: not other.open)

    run_on("uvloop")(scenario)


def test_a_close_fails_the_request_under_way() -> None:
    async def scenario() -> None:
        async def silence(received: Received) -> bytes:
            await asyncio.sleep(0.2)
            return b""

        async with a_peer(silence) as other:
            peer = PeerConnections()(lambda: other.address, "broker-1")
            asking = asyncio.ensure_future(ask(peer))
            await until(lambda: len(other.requests) == 1)
            await peer.close()
            with pytest.raises(PeerUnavailable, match="this broker closed the connection"):
                await asking

    run_on("uvloop")(scenario)


def test_a_second_request_while_one_is_under_way_is_a_fault_of_the_caller() -> None:
    async def scenario() -> None:
        async def late(received: Received) -> bytes:
            await asyncio.sleep(0.05)
            return await a_block(received)

        async with a_peer(late) as other:
            peer = PeerConnections()(lambda: other.address, "broker-1")
            await ask(peer)
            first = asyncio.ensure_future(ask(peer))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError):
                await ask(peer)
            await first
            await peer.close()

    run_on("uvloop")(scenario)


def a_negotiator(versions: list[ApiVersion], of_api_versions: int = 4) -> Callable[[Received], Awaitable[bytes]]:
    async def on_request(received: Received) -> bytes:
        if received.api_key == ApiKey.API_VERSIONS and received.version > of_api_versions:
            only = [ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=of_api_versions)]
            return received.answer(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=only), 0)
        if received.api_key == ApiKey.API_VERSIONS:
            return received.answer(ApiVersionsResponse(api_keys=versions))
        return received.answer(HeartbeatResponse())

    return on_request


def test_a_negotiated_connection_begins_with_api_versions_and_lowers_versions() -> None:
    async def scenario() -> None:
        async with a_peer(a_negotiator([ApiVersion(api_key=ApiKey.HEARTBEAT, min_version=0, max_version=2)])) as other:
            peer = PeerConnections()(lambda: other.address, "1", negotiate=True)
            for _ in range(2):
                await peer.request(ApiKey.HEARTBEAT, 4, HeartbeatRequest(), timeout_ms=SECONDS)
            assert [(each.api_key, each.version) for each in other.requests] == [
                (ApiKey.API_VERSIONS, 4),
                (ApiKey.HEARTBEAT, 2),
                (ApiKey.HEARTBEAT, 2),
            ]
            asked = other.requests[0].body
            assert isinstance(asked, ApiVersionsRequest)
            assert (asked.client_software_name, asked.client_software_version) == ("apache-kafka-java", "3.9.1")
            with pytest.raises(PeerUnavailable, match="no version of ALLOCATE_PRODUCER_IDS"):
                await ask(peer)
            await peer.close()

    run_on("uvloop")(scenario)


def test_an_older_broker_is_asked_again_in_the_version_that_it_knows() -> None:
    async def scenario() -> None:
        known = [ApiVersion(api_key=ApiKey.HEARTBEAT, min_version=0, max_version=4)]
        async with a_peer(a_negotiator(known, of_api_versions=2)) as other:
            peer = PeerConnections()(lambda: other.address, "1", negotiate=True)
            await peer.request(ApiKey.HEARTBEAT, 4, HeartbeatRequest(), timeout_ms=SECONDS)
            assert [(each.api_key, each.version) for each in other.requests] == [
                (ApiKey.API_VERSIONS, 4),
                (ApiKey.API_VERSIONS, 2),
                (ApiKey.HEARTBEAT, 4),
            ]
            await peer.close()

    run_on("uvloop")(scenario)


def test_the_other_side_may_come_and_go_without_a_trace() -> None:
    async def scenario() -> None:
        async def sometimes(received: Received) -> bytes | None:
            return None if len(other.requests) % 2 else await a_block(received)

        other: ScriptedPeer
        async with a_peer(sometimes) as other:
            peer = PeerConnections()(lambda: other.address, "broker-1")
            for _ in range(50):
                try:
                    await ask(peer)
                except PeerUnavailable:
                    continue
            await peer.close()
            await until(lambda: not other.open)
            await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})

    run_on("uvloop")(scenario)
