"""Implements the port to other brokers (`ottla.replication.ports.peer`) on sockets: one connection, one request in flight, as in Apache
Kafka.

`ClientSecurity` determines the security of a connection. The login precedes the first request. A session is renewed before it ends, before
the next request. Without security this costs a request one comparison of numbers.

`ottla.broker.server` makes peers for the follower fetchers, the controller's channels and the broker's channel to the controller. A peer
owns its connection but no task. A request opens the connection, and so does the next request after the connection was lost. A request costs
one future and no task. One timer per connection serves all of its requests. `peer_wire` handles the bytes.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeVar

from ottla.broker.network.peer_wire import WINDOW_BYTES, Wire
from ottla.config.errors import ConfigError
from ottla.pauses import in_slices, pause
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.client_security import PLAINTEXT, ClientSecurity
from ottla.protocol.cursors.fetch_answer_reader import FetchAnswerReader
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.sasl_login import Login, LoginFailed, LoginRequest, SaslClient, advance, log_in, renewal_seconds
from ottla.protocol.schema.api_versions import versions_in_3_9
from ottla.protocol.schema.fields import Versions
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import api
from ottla.protocol.schema.wire import ProtocolError, skip_tagged_fields
from ottla.replication.ports.peer import Peer, PeerAddress, PeerRefused, PeerUnavailable, Resolve

CLIENT_SOFTWARE_NAME = "apache-kafka-java"
CLIENT_SOFTWARE_VERSION = "3.9.1"
"""Names that Apache Kafka's brokers send to each other in ApiVersions. The receiver may act upon them."""

MAX_RESPONSE_BYTES: Final = 256 * 1024 * 1024

MAY_BE_LARGE: Final = frozenset(
    {ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA, ApiKey.ALTER_PARTITION, ApiKey.ADD_PARTITIONS_TO_TXN}
)
"""Requests that may have thousands of partitions. They are encoded, and their answers decoded, over several turns of the event loop."""
PARTITIONS_AT_ONCE: Final = 1000
"""Partitions of an answer to a Fetch that are verified between two pauses, a fraction of a millisecond."""
LARGE_ANSWER_BYTES: Final = 4 * 1024

_MALFORMED: Final = (ProtocolError, IndexError, struct.error)
_T = TypeVar("_T")

_INT16: Final = Struct(">h")
_NO_TAGGED_FIELDS: Final = b"\x00"
_NEVER: Final = float("inf")


class _Wire(Wire, asyncio.BufferedProtocol):
    """A connection for the event loop, which checks for this base class of protocols with their own buffer."""

    __slots__ = ()


class PeerConnections:
    """Makes peers (`ottla.replication.ports.peer.Connect`). They share one receive buffer, because the bytes of a read are taken at
    once."""

    __slots__ = ("_max_response_bytes", "_security", "_window")

    def __init__(self, max_response_bytes: int = MAX_RESPONSE_BYTES, security: ClientSecurity = PLAINTEXT) -> None:
        self._max_response_bytes = max_response_bytes
        self._security = security
        self._window = memoryview(bytearray(WINDOW_BYTES))

    def __call__(self, resolve: Resolve, client_id: str, *, negotiate: bool = False) -> Peer:
        """See replication.peer.Connect."""
        return PeerConnection(resolve, client_id, self._window, self._max_response_bytes, self._security, negotiate=negotiate)


class _Form(NamedTuple):
    """The constant parts of all requests of one (API, version) to one peer."""

    client_id: bytes  # followed by the end of the header
    response: type[Message]
    flexible_response_header: bool


class PeerConnection(Peer):
    """A peer on a socket; see `ottla.replication.ports.peer.Peer`. Belongs to one event loop."""

    __slots__ = (
        "_client_id",
        "_closed",
        "_forms",
        "_max_response_bytes",
        "_negotiate",
        "_renew_at",
        "_resolve",
        "_security",
        "_supported",
        "_versions",
        "_window",
        "_wire",
    )

    def __init__(
        self,
        resolve: Resolve,
        client_id: str,
        window: memoryview,
        max_response_bytes: int,
        security: ClientSecurity,
        *,
        negotiate: bool = False,
    ) -> None:
        self._resolve = resolve
        self._client_id = client_id.encode()
        self._window = window
        self._max_response_bytes = max_response_bytes
        self._security = security
        self._negotiate = negotiate
        self._versions: dict[int, Versions] = {}
        """The versions that the other broker listed before the login."""
        self._supported: dict[int, Versions] | None = None
        """The versions that bound those of requests."""
        self._renew_at = _NEVER
        """When the session has to be renewed, by the loop's clock."""
        self._forms: dict[int, _Form] = {}
        self._wire: Wire | None = None
        self._closed = False

    @property
    def is_connected(self) -> bool:
        """Whether the connection is open now."""
        return self._wire is not None and not self._wire.is_lost

    async def request(self, api_key: ApiKey, version: int, request: Message, *, timeout_ms: int) -> Message:
        """See replication.peer.Peer. Raises UnsupportedVersion, and UnsupportedField when the version lacks a field that is set."""
        now = asyncio.get_running_loop().time()
        deadline = now + timeout_ms / 1000
        wire = self._wire
        if wire is None or wire.is_lost or now >= self._renew_at:
            wire = await self._ready(deadline)
        if self._supported is not None:
            version = self._lowered(api_key, version)
        return await self._ask(wire, api_key, version, request, deadline)

    async def fetch(self, version: int, request: FetchRequest, *, timeout_ms: int) -> FetchAnswerReader:
        """See replication.peer.Peer."""
        now = asyncio.get_running_loop().time()
        deadline = now + timeout_ms / 1000
        wire = self._wire
        if wire is None or wire.is_lost or now >= self._renew_at:
            wire = await self._ready(deadline)
        wire.keep_window()
        form = self._forms.get(ApiKey.FETCH << 16 | version) or self._form(ApiKey.FETCH, version)
        try:
            frame = await wire.exchange(ApiKey.FETCH, version, form.client_id, (request.encode(version),), deadline)
        except asyncio.CancelledError:
            wire.lose("the request was cancelled")
            raise
        try:
            answer = FetchAnswerReader(frame, _body_at(frame, form), version)
            while not answer.verify(PARTITIONS_AT_ONCE):
                await pause()
        except _MALFORMED as malformed:
            raise _unreadable(wire, ApiKey.FETCH, version, malformed) from None
        return answer

    async def close(self) -> None:
        """See replication.peer.Peer."""
        self._closed = True
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.lose("this broker closed the connection")

    async def _ask(self, wire: Wire, api_key: ApiKey, version: int, request: Message, deadline: float) -> Message:
        form = self._forms.get(api_key << 16 | version) or self._form(api_key, version)
        in_steps = api_key in MAY_BE_LARGE
        body: Sequence[bytes | memoryview]
        body = await in_slices(request.encode_steps(version)) if in_steps else (request.encode(version),)
        try:
            frame = await wire.exchange(api_key, version, form.client_id, body, deadline)
        except asyncio.CancelledError:
            wire.lose("the request was cancelled")
            raise
        if in_steps and len(frame) >= LARGE_ANSWER_BYTES:
            return await self._decode_unhurried(wire, api_key, version, form, frame)
        return self._decode(wire, api_key, version, form, frame)

    def _decode(self, wire: Wire, api_key: ApiKey, version: int, form: _Form, frame: memoryview) -> Message:
        try:
            offset = _body_at(frame, form)
            if api_key == ApiKey.API_VERSIONS and _INT16.unpack_from(frame, offset)[0] == ErrorCode.UNSUPPORTED_VERSION:
                version = 0  # a broker that does not know the version answers in version 0 (KIP-511)
            response, _ = form.response.decode(frame, version, offset)
        except _MALFORMED as malformed:
            raise _unreadable(wire, api_key, version, malformed) from None
        return response

    async def _decode_unhurried(self, wire: Wire, api_key: ApiKey, version: int, form: _Form, frame: memoryview) -> Message:
        try:
            response, _ = await in_slices(form.response.decode_steps(frame, version, _body_at(frame, form)))
        except _MALFORMED as malformed:
            raise _unreadable(wire, api_key, version, malformed) from None
        return response

    def _form(self, api_key: ApiKey, version: int) -> _Form:
        types = api(api_key)
        end_of_header = _NO_TAGGED_FIELDS if types.request_header_version(version) >= 2 else b""
        client_id = _INT16.pack(len(self._client_id)) + self._client_id + end_of_header
        form = _Form(client_id, types.response, types.response_header_version(version) >= 1)
        self._forms[api_key << 16 | version] = form
        return form

    async def _ready(self, deadline: float) -> Wire:
        """A connection with a session that has not ended."""
        if self._closed:
            raise PeerUnavailable("this broker closed the connection")
        wire = self._wire
        if wire is None or wire.is_lost:
            return await self._connect(deadline)
        await self._log_in(wire, deadline)
        return wire

    async def _connect(self, deadline: float) -> Wire:
        self._wire = None
        self._renew_at = _NEVER
        address = self._resolve()
        if address is None:
            raise PeerUnavailable("the broker's address is not known")
        protocol = self._security.protocol
        wire = await self._opened(address, deadline, with_tls=protocol.uses_tls)
        try:
            if self._closed:
                raise PeerUnavailable("this broker closed the connection")
            if self._negotiate or protocol.uses_sasl:
                self._versions = await self._versions_of(wire, deadline)
                self._supported = self._versions if self._negotiate else None
            if protocol.uses_sasl:
                await self._log_in(wire, deadline)
        except BaseException:
            wire.lose("this broker closed the connection")
            raise
        self._wire = wire
        return wire

    async def _opened(self, address: PeerAddress, deadline: float, *, with_tls: bool) -> Wire:
        """A new connection, after the TLS handshake. Raises PeerUnavailable."""
        loop = asyncio.get_running_loop()
        wire = _Wire(loop, address, self._window, self._max_response_bytes)
        try:
            context = self._security.context() if with_tls else None
            async with asyncio.timeout_at(deadline):
                await loop.create_connection(lambda: wire, address.host, address.port, ssl=context)
        except TimeoutError:
            raise PeerUnavailable(f"{wire.name} accepted no connection in time") from None
        except ConfigError as error:
            raise PeerRefused(f"this broker's TLS cannot be used: {error}") from None
        except ssl.SSLCertVerificationError as error:
            raise PeerRefused(
                f"the certificate of {wire.name} is not accepted: {error.verify_message}; compare ssl.truststore.* of this broker with it, "
                "and its names with the advertised listener"
            ) from None
        except ssl.SSLError as error:
            raise PeerRefused(f"the TLS handshake with {wire.name} failed: {error.reason or error}") from None
        except OSError as error:
            raise PeerUnavailable(f"cannot connect to {wire.name}: {error}") from None
        return wire

    async def _log_in(self, wire: Wire, deadline: float) -> None:
        """Begin a SASL session, or the next one of the same connection. Raises PeerUnavailable, and then the connection is closed."""
        try:
            client = self._security.begin(wire.host)
            steps = log_in(client, self._versions)
            asked = await _advanced(client, steps, None, deadline)
            while isinstance(asked, LoginRequest):
                answer = await self._ask(wire, asked.api_key, asked.version, asked.message, deadline)
                asked = await _advanced(client, steps, answer, deadline)
        except (ConfigError, LoginFailed) as failed:
            wire.lose("the login failed")
            raise PeerRefused(f"{wire.name}: {failed}") from None
        except asyncio.CancelledError:
            wire.lose("the login was cancelled")
            raise
        except TimeoutError:
            wire.lose("the login took too long")
            raise PeerUnavailable(f"{wire.name}: this broker got no ticket for it in time") from None
        self._renew_at = asyncio.get_running_loop().time() + renewal_seconds(asked, self._security.random_bytes)

    async def _versions_of(self, wire: Wire, deadline: float) -> dict[int, Versions]:
        """The versions that the peer supports. Raises PeerUnavailable."""
        from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

        request = ApiVersionsRequest(client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=CLIENT_SOFTWARE_VERSION)
        version = versions_in_3_9(ApiKey.API_VERSIONS).last
        while True:
            response = await self._ask(wire, ApiKey.API_VERSIONS, version, request, deadline)
            assert isinstance(response, ApiVersionsResponse)
            known = {each.api_key: Versions(each.min_version, each.max_version) for each in response.api_keys}
            if response.error_code == ErrorCode.NONE:
                return known
            lower = known[ApiKey.API_VERSIONS].last if ApiKey.API_VERSIONS in known else 0
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION or lower >= version:
                wire.lose("it refused ApiVersions")
                raise PeerUnavailable(f"{wire.name} refused ApiVersions with {ErrorCode.of(response.error_code).name}")
            version = max(lower, 0)

    def _lowered(self, api_key: ApiKey, version: int) -> int:
        known = None if self._supported is None else self._supported.get(api_key)
        lowest = api(api_key).versions.first
        if known is None or known.last < lowest or known.first > version:
            raise PeerUnavailable(f"the peer supports no version of {api_key.name} that this broker supports; is it an older release?")
        return min(version, known.last)


async def _advanced(client: SaslClient, steps: Login, answer: Message | None, deadline: float) -> LoginRequest | int:
    """As `advance`; a step that may wait for another server is made on a thread. Raises LoginFailed, TimeoutError."""
    if not client.may_block:
        return advance(steps, answer)
    async with asyncio.timeout_at(deadline):
        return await asyncio.to_thread(advance, steps, answer)


def _body_at(frame: memoryview, form: _Form) -> int:
    """The start of the answer, after its header."""
    if not form.flexible_response_header:
        return 4
    return 5 if not frame[4] else skip_tagged_fields(frame, 4)


def _unreadable(wire: Wire, api_key: ApiKey, version: int, malformed: Exception) -> PeerUnavailable:
    wire.lose("the answer is malformed")
    return PeerUnavailable(f"{wire.name} sent a malformed answer to {api_key.name} v{version}: {malformed}")
