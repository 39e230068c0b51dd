"""Connects to one broker: sends requests in the negotiated versions, and receives answers in the order of the requests.

Blocking, for one thread. A connection cannot be used after a failure. A session that ends is renewed before a request, when the answers
to earlier ones have arrived.
"""

import math
import selectors
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar, cast

from ottla.client.errors import ConnectionLost, DoesNotFit, NotAuthenticated, Unreachable
from ottla.client.versions import ApiTable, api_table, choose_version
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.client_security import PLAINTEXT, ClientSecurity
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.header import RequestHeader, ResponseHeader
from ottla.protocol.sasl_login import LoginFailed, LoginRequest, advance, log_in, renewal_seconds
from ottla.protocol.schema.framing import FrameReader, InvalidFrame, frame
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import Api, api
from ottla.protocol.schema.wire import InvalidValue, ProtocolError

MAX_FRAME_BYTES: Final = 256 * 1024 * 1024
_READ_BYTES: Final = 256 * 1024
CLIENT_SOFTWARE: Final = ("ottla", "0.1.0")
_LEAST_SECONDS: Final = 0.001
"""Time for an address of a host name when no time is left, in seconds; a timeout of 0 would not wait at all."""
_ERROR = struct.Struct(">4xh")  # correlation id, error code

AnyResponse = TypeVar("AnyResponse", bound=Message)


class Address(NamedTuple):
    """The address of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _Expected(NamedTuple):
    correlation_id: int
    api: Api
    version: int


class Connection:
    """Connects, negotiates versions and logs in in its constructor. Raises Unreachable, ConnectionLost, NotAuthenticated."""

    def __init__(self, address: Address, client_id: str, timeout_seconds: float, security: ClientSecurity = PLAINTEXT) -> None:
        self.address = address
        self._client_id = client_id
        self.timeout_seconds = timeout_seconds
        """Time for a request, and for its answer unless the caller says another."""
        self._correlation_id = 0
        self._expected: deque[_Expected] = deque()
        self._frames = FrameReader(MAX_FRAME_BYTES)
        self._received: deque[bytes] = deque()
        self._answers: deque[Message] = deque()
        """Answers that arrived before the session was renewed."""
        self._security = security
        self._renew_at = float("inf")
        try:
            self._socket = _connected(address, timeout_seconds)
        except OSError as error:
            raise Unreachable(f"no broker can be reached at {address}: {error.strerror or error}") from None
        except UnicodeError:
            raise Unreachable(f"no broker can be reached at {address}: a part of the host name is empty or too long") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.versions: ApiTable = {}
        try:
            if security.protocol.uses_tls:
                self._socket = self._secured(self._socket)
            self.versions = self._negotiate()
            if security.protocol.uses_sasl:
                self._log_in()
        except BaseException:
            self.close()
            raise

    def _secured(self, plain: socket.socket) -> ssl.SSLSocket:
        """The socket after the TLS handshake."""
        try:
            return self._security.context().wrap_socket(plain, server_hostname=self.address.host)
        except ssl.SSLCertVerificationError as error:
            raise NotAuthenticated(
                f"the certificate of the broker at {self.address} is not accepted: {error.verify_message}; compare it with the trust store"
            ) from None
        except ssl.SSLError as error:
            raise Unreachable(f"the TLS handshake with {self.address} failed: {error.reason or error}") from None
        except OSError as error:
            raise Unreachable(f"the server at {self.address} ended the TLS handshake: {error.strerror or error}") from None

    def _log_in(self) -> None:
        """Begin a SASL session, or the next one of this connection."""
        steps = log_in(self._security.begin(self.address.host), self.versions)
        try:
            asked = advance(steps, None)
            while isinstance(asked, LoginRequest):
                self._send(asked.message, api(asked.api_key), asked.version)
                answer = self._receive(self.timeout_seconds)
                if answer is None:
                    raise ConnectionLost(f"the broker at {self.address} did not answer the login in time")
                asked = advance(steps, answer)
        except LoginFailed as failed:
            raise NotAuthenticated(f"the broker at {self.address}: {failed}") from None
        self._renew_at = time.monotonic() + renewal_seconds(asked, self._security.random_bytes)

    def _renew(self) -> None:
        """Log in again, after the answers to the requests in flight."""
        while self._expected:
            answer = self._receive(self.timeout_seconds)
            if answer is None:
                raise ConnectionLost(f"the broker at {self.address} did not answer in time")
            self._answers.append(answer)
        self._log_in()

    def fileno(self) -> int:
        """The descriptor for selectors."""
        return self._socket.fileno()

    @property
    def certificate(self) -> bytes | None:
        """The certificate of the broker as DER; None without TLS."""
        return self._socket.getpeercert(binary_form=True) if isinstance(self._socket, ssl.SSLSocket) else None

    @property
    def in_flight(self) -> int:
        """Number of requests without an answer."""
        return len(self._expected) + len(self._answers)

    @property
    def has_received(self) -> bool:
        """Whether bytes have arrived that the socket does not show to selectors."""
        pending = self._socket.pending() if isinstance(self._socket, ssl.SSLSocket) else 0
        return bool(self._answers or self._received or pending)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def version_of(self, key: ApiKey) -> int:
        """The version for requests of this API. Raises UnsupportedByBroker."""
        return choose_version(key, self.versions, str(self.address))

    def ask(
        self,
        request: Message,
        response: type[AnyResponse],
        *,
        timeout_seconds: float | None = None,
        look: Callable[[], None] = lambda: None,
        look_seconds: float = math.inf,
    ) -> AnyResponse:
        """Send a request and wait for the answer; no other request may be in flight. Raises ConnectionLost,
        UnsupportedByBroker.

        `look` is called each time that so many seconds have passed without an answer. An error that it raises ends the wait.
        """
        assert not self.in_flight, "answers come in order"
        self.send(request)
        until = time.monotonic() + (self.timeout_seconds if timeout_seconds is None else timeout_seconds)
        while (answer := self.receive(max(min(until - time.monotonic(), look_seconds), 0.0))) is None:
            if time.monotonic() >= until:
                raise ConnectionLost(f"the broker at {self.address} did not answer in time")
            look()
        assert isinstance(answer, response)
        return answer

    def send(self, request: Message, *, is_answered: bool = True) -> None:
        """Send a request without waiting. A Produce with acks=0 is not answered."""
        key = ApiKey(cast("int", request.SCHEMA.api_key))
        if time.monotonic() >= self._renew_at:
            self._renew()
        self._send(request, api(key), self.version_of(key), is_answered=is_answered)

    def _send(self, request: Message, spoken: Api, version: int, *, is_answered: bool = True) -> None:
        self._correlation_id += 1
        header = RequestHeader(
            request_api_key=spoken.key,
            request_api_version=version,
            correlation_id=self._correlation_id,
            client_id=self._client_id,
        ).encode(spoken.request_header_version(version))
        try:
            data = frame(header, *request.encode_parts(version))
        except InvalidValue as error:
            raise DoesNotFit(f"a given value does not fit into the request: {error}") from None
        try:
            self._socket.settimeout(self.timeout_seconds)
            self._socket.sendall(data)
        except OSError as error:
            raise ConnectionLost(f"the connection to {self.address} broke: {error.strerror or error}") from None
        if is_answered:
            self._expected.append(_Expected(self._correlation_id, spoken, version))

    def receive(self, timeout_seconds: float) -> Message | None:
        """The next answer; None when none came in time. A timeout of 0 only takes one that has arrived. Raises
        ConnectionLost."""
        return self._answers.popleft() if self._answers else self._receive(timeout_seconds)

    def _receive(self, timeout_seconds: float) -> Message | None:
        data = self._receive_frame(timeout_seconds)
        if data is None:
            return None
        expected = self._expected.popleft()
        try:
            header, at = ResponseHeader.decode(data, expected.api.response_header_version(expected.version))
            if header.correlation_id != expected.correlation_id:
                raise ConnectionLost(f"the broker at {self.address} answers requests in a different order")
            return expected.api.response.decode(data, expected.version, at)[0]
        except ProtocolError as error:
            name = expected.api.key.name.title().replace("_", "")
            raise ConnectionLost(
                f"the broker at {self.address} answers {name} {expected.version} with a malformed response: {error}"
            ) from None

    def _receive_frame(self, timeout_seconds: float) -> bytes | None:
        deadline = time.monotonic() + timeout_seconds
        while not self._received:
            self._socket.settimeout(max(deadline - time.monotonic(), 0))
            try:
                data = self._socket.recv(_READ_BYTES)
            except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
                return None
            except OSError as error:
                raise ConnectionLost(f"the connection to {self.address} broke: {error.strerror or error}") from None
            if not data:
                raise ConnectionLost(f"the broker at {self.address} closed the connection")
            try:
                self._received.extend(self._frames.feed(data))
            except InvalidFrame:
                raise ConnectionLost(
                    f"the server at {self.address} does not speak Kafka's protocol, or requires TLS (--command-config)"
                ) from None
        return self._received.popleft()

    def _negotiate(self) -> ApiTable:
        spoken = api(ApiKey.API_VERSIONS)
        version = 3
        request = ApiVersionsRequest(client_software_name=CLIENT_SOFTWARE[0], client_software_version=CLIENT_SOFTWARE[1])
        while True:
            self._send(request if version >= 3 else ApiVersionsRequest(), spoken, version)
            try:
                data = self._receive_frame(self.timeout_seconds)
            except ConnectionLost as error:
                raise Unreachable(f"{error} before it sent its API versions; does it require TLS or SASL (--command-config)?") from None
            if data is None:
                raise Unreachable(f"the server at {self.address} does not answer; does it speak Kafka's protocol?")
            self._expected.popleft()
            answer = decode_api_versions(data, version)
            if answer.error_code != ErrorCode.UNSUPPORTED_VERSION or version == 0:
                return api_table(answer.api_keys)
            listed = api_table(answer.api_keys).get(ApiKey.API_VERSIONS)
            version = min(listed.last, version - 1) if listed is not None else 0


def _connected(address: Address, timeout_seconds: float) -> socket.socket:
    """A socket to the first address of a host name that accepts the connection. Raises OSError of the last one, UnicodeError.

    All addresses together have the timeout: one that does not answer leaves time for those after it.
    """
    failed = OSError("the host name has no address")
    places = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    until = time.monotonic() + timeout_seconds
    for at, (family, kind, protocol, _, place) in enumerate(places):
        share = max((until - time.monotonic()) / (len(places) - at), _LEAST_SECONDS)
        try:
            made = socket.socket(family, kind, protocol)
        except OSError as error:  # the kernel does not have this family
            failed = error
            continue
        try:
            made.settimeout(share)
            made.connect(place)
            made.settimeout(timeout_seconds)
        except OSError as error:
            made.close()
            failed = error
        except BaseException:
            made.close()
            raise
        else:
            return made
    raise failed


def readable(connections: Iterable[Connection], timeout_seconds: float) -> list[Connection]:
    """The connections with something to read: waits until there is one, or until the timeout."""
    connections = list(connections)
    if received := [each for each in connections if each.has_received]:
        return received
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ, connection)
        return [key.data for key, _ in selector.select(timeout_seconds)]


def decode_api_versions(data: bytes, version: int) -> ApiVersionsResponse:
    """The answer to ApiVersions, which is in version 0, with an error, when the broker does not support the requested
    version. Raises Unreachable."""
    try:
        if len(data) >= _ERROR.size and _ERROR.unpack_from(data)[0] == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
        return ApiVersionsResponse.decode(data, version, 4)[0]
    except ProtocolError as error:
        raise Unreachable(f"the server does not speak Kafka's protocol: {error}") from None
