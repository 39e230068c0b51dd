"""A login whose steps may wait for another server does not stop the loop of the broker, and ends with the deadline of the request."""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections.abc import Callable

import pytest

from ottla.broker.network.peer_connection import PeerConnections
from ottla.config.listeners import SecurityProtocol
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeResponse
from ottla.protocol.sasl_login import CredentialUnavailable, SaslClient
from ottla.protocol.schema.message import Message
from ottla.replication.ports.peer import PeerRefused, PeerUnavailable
from tests.support.peers import LOOPS, run_on
from tests.support.scripted_peer import Received, a_peer

SECONDS = 20
ANSWERS: dict[ApiKey, Message] = {
    ApiKey.API_VERSIONS: ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=key, min_version=0, max_version=1) for key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)]
    ),
    ApiKey.SASL_HANDSHAKE: SaslHandshakeResponse(mechanisms=["GSSAPI"]),
    ApiKey.SASL_AUTHENTICATE: SaslAuthenticateResponse(),
    ApiKey.METADATA: MetadataResponse(),
}


class SlowClient(SaslClient):
    """Waits in its first step as for a KDC, until it is released."""

    __slots__ = ("entered", "refusal", "released", "threads")

    may_block = True

    def __init__(self, refusal: str | None = None) -> None:
        super().__init__("GSSAPI")
        self.refusal = refusal
        self.entered = threading.Event()
        self.released = threading.Event()
        self.threads: list[threading.Thread] = []

    def first(self) -> bytes:
        self.threads.append(threading.current_thread())
        self.entered.set()
        assert self.released.wait(SECONDS)
        if self.refusal is not None:
            raise CredentialUnavailable(self.refusal)
        return b"ticket"

    def answer(self, challenge: bytes) -> bytes | None:
        self.threads.append(threading.current_thread())
        return None


class Security:
    """Logs in with one client."""

    protocol = SecurityProtocol.SASL_PLAINTEXT
    random_bytes = staticmethod(os.urandom)

    def __init__(self, client: SlowClient) -> None:
        self.client = client
        self.hosts: list[str] = []

    def context(self) -> ssl.SSLContext:
        raise NotImplementedError

    def begin(self, host: str) -> SaslClient:
        self.hosts.append(host)
        return self.client


async def answer(received: Received) -> bytes:
    return received.answer(ANSWERS[received.api_key])


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], object]], None]:
    return run_on(request.param)


def test_the_loop_goes_on_while_a_step_waits(run) -> None:
    client = SlowClient()
    security = Security(client)

    async def scenario() -> None:
        async with a_peer(answer) as peer:
            connection = PeerConnections(security=security)(lambda: peer.address, "broker-1")
            asked = asyncio.create_task(connection.request(ApiKey.METADATA, 1, MetadataRequest(topics=[]), timeout_ms=SECONDS * 1000))
            assert await asyncio.to_thread(client.entered.wait, SECONDS)
            assert not asked.done()
            client.released.set()  # by the loop, which a waiting step would have stopped
            assert isinstance(await asked, MetadataResponse)
            tokens = [bytes(each.body.auth_bytes) for each in peer.requests if isinstance(each.body, SaslAuthenticateRequest)]
            assert tokens == [b"ticket"]
            await connection.close()

    run(scenario)
    assert security.hosts == ["127.0.0.1"]
    assert len(client.threads) == 2
    assert threading.main_thread() not in client.threads


def test_a_step_that_waits_too_long_ends_the_request(run) -> None:
    client = SlowClient()

    async def scenario() -> None:
        async with a_peer(answer) as peer:
            connection = PeerConnections(security=Security(client))(lambda: peer.address, "broker-1")
            with pytest.raises(PeerUnavailable, match="no ticket for it in time"):
                await connection.request(ApiKey.METADATA, 1, MetadataRequest(topics=[]), timeout_ms=100)
            assert not connection.is_connected
            client.released.set()

    run(scenario)


def test_a_step_without_a_credential_is_one_line(run) -> None:
    client = SlowClient("Cannot contact any KDC for realm 'X'")
    client.released.set()

    async def scenario() -> None:
        async with a_peer(answer) as peer:
            connection = PeerConnections(security=Security(client))(lambda: peer.address, "broker-1")
            with pytest.raises(PeerRefused, match=r"GSSAPI with it failed: Cannot contact any KDC for realm 'X'$"):
                await connection.request(ApiKey.METADATA, 1, MetadataRequest(topics=[]), timeout_ms=SECONDS * 1000)

    run(scenario)
