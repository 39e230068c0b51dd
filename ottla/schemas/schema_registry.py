"""Requests the schemas of records (Avro, Protobuf, JSON Schema) from a schema registry by their ids, and caches them.

Speaks the one request that Confluent's, Karapace and Apicurio share: `GET /schemas/ids/ID`, with basic authentication (RFC 7617) if there
is a login. No error and no log contains the login, and only the address of the registry gets it: redirects are not followed.
"""

from __future__ import annotations

import base64
import http.client
import io
import ipaddress
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any, Final, NamedTuple
from urllib.parse import urlsplit

from ottla.client.errors import ClientError
from ottla.schemas.avro import AvroSchema, NotAvro, decode_avro
from ottla.schemas.avro_encoding import encode_avro
from ottla.schemas.proto_file import NotAProtoFile, read_proto
from ottla.schemas.protobuf import decode_protobuf
from ottla.schemas.protobuf_encoding import encode_protobuf

MAGIC: Final = 0
"""The first byte of a key or a value that was written by a schema; the id of the schema follows in four bytes, big-endian."""
HEADER_BYTES: Final = 5
MAX_SCHEMAS: Final = 1000
"""Schemas that are remembered; the oldest is forgotten for a new one."""
MAX_SCHEMA_BYTES: Final = 1024 * 1024
"""Size of an answer of the registry, bytes."""
LOGIN_VARIABLE: Final = "OTTLA_SCHEMA_REGISTRY_LOGIN"
"""The environment variable with USER:PASSWORD."""
_SECONDS: Final = 3.0
"""Time to connect, and until the next byte of an answer, seconds."""
ANSWER_SECONDS: Final = 5.0
"""Time of an answer from its first byte to its last, seconds: all searches that need a schema wait meanwhile."""
_UNKNOWN_SECONDS: Final = 30.0
"""Time until the next request after the registry gave no answer, or not the schema, seconds."""
_MAX_LOGIN_BYTES: Final = 4096
_MOST_REASON_CHARACTERS: Final = 200
_REFUSALS: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


class NoSchema(Exception):
    """There is no schema to decode bytes with; the text is for the user."""


class Schema(NamedTuple):
    """A schema by which bytes are shown. `text` gives the JSON text of bytes, and `encoded` the bytes of JSON text. Both raise ValueError
    or RecursionError."""

    form: str
    text: Callable[[bytes], str]
    encoded: Callable[[str], bytes]


class Login:
    """A user and a password for a registry. Its text shows neither."""

    __slots__ = ("_header",)

    def __init__(self, user: str, password: str) -> None:
        self._header = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def __repr__(self) -> str:
        return "Login(hidden)"

    def add_to(self, request: urllib.request.Request) -> None:
        """Authenticate a request. A request to which a redirect leads gets no login."""
        request.add_unredirected_header("Authorization", self._header)


def parse_login(text: str, source: str) -> Login:
    """The login in USER:PASSWORD. Raises ClientError, which names the source and shows nothing of the text."""
    user, colon, password = text.rstrip("\r\n").partition(":")
    if not colon or not user or not (user + password).isprintable():
        raise ClientError(f"{source} is not one line USER:PASSWORD")
    return Login(user, password)


def read_login(file: Path) -> Login:
    """The login in a file. Raises ClientError."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_MAX_LOGIN_BYTES + 1)
    except OSError as error:
        raise ClientError(f"the login for the schema registry cannot be read: {file}: {error.strerror}") from None
    try:
        text = data.decode() if len(data) <= _MAX_LOGIN_BYTES else ""
    except UnicodeDecodeError:
        text = ""
    return parse_login(text, str(file))


def check_url(url: str) -> None:
    """Raises ClientError for an address that no registry can have. A login in it is refused, because processes show their arguments."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ClientError("the address of the schema registry is not an http(s) URL")
    if "@" in parts.netloc:
        raise ClientError(
            "the URL of the schema registry has a user or a password; "
            f"put USER:PASSWORD into a file for --schema-registry-login, or into {LOGIN_VARIABLE}"
        )


def open_registry(
    url: str | None, login_file: Path | None, environment: Mapping[str, str], warn: Callable[[str], None]
) -> SchemaRegistry | None:
    """The registry of the options, if there is one, with the login of the file or of the environment.

    `warn` gets a line about a login that crosses a network without encryption. Raises ClientError.
    """
    if url is None:
        if login_file is not None:
            raise ClientError("a login for a schema registry needs the address of the registry: schema-registry")
        return None
    login = None
    if login_file is not None:
        login = read_login(login_file)
    elif LOGIN_VARIABLE in environment:
        login = parse_login(environment[LOGIN_VARIABLE], LOGIN_VARIABLE)
    found = SchemaRegistry(url, login)
    if login is not None and sends_in_clear(url):
        warn(f"ottla: the login for {url} crosses the network without encryption; use https")
    return found


def sends_in_clear(url: str) -> bool:
    """Whether a login for this registry crosses a network without encryption."""
    parts = urlsplit(url)
    try:
        is_loopback = ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        is_loopback = parts.hostname == "localhost"
    return parts.scheme == "http" and not is_loopback


def has_schema(data: bytes | memoryview) -> bool:
    """Whether the bytes may have been written by a schema of a registry."""
    return len(data) > HEADER_BYTES and data[0] == MAGIC


def _schema(schema_id: int, found: Any) -> Schema:
    """The schema of an answer. Raises NoSchema, ValueError, KeyError, TypeError, AttributeError, RecursionError."""
    kind, text = found.get("schemaType", "AVRO"), found["schema"]
    if kind == "JSON":
        return Schema("json", _checked_json, lambda text: _checked_json(text.encode()).encode())
    if kind == "PROTOBUF":
        file = read_proto(text)  # types of its references are shown as bytes
        return Schema(
            "protobuf", lambda data: _json_text(decode_protobuf(file, data)), lambda text: encode_protobuf(file, json.loads(text))
        )
    if kind != "AVRO":
        raise NoSchema(f"schema {schema_id} is of the kind {str(kind)[:50]!a}, which is not decoded")
    if found.get("references"):
        raise NoSchema(f"schema {schema_id} has references, with which Avro is not decoded")
    avro = AvroSchema(json.loads(text))
    return Schema("avro", lambda data: _json_text(decode_avro(avro, data)), lambda text: encode_avro(avro, json.loads(text)))


def _checked_json(data: bytes) -> str:
    json.loads(data)
    return data.decode()  # as it is: numbers and repeated keys do not survive decoding


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> None:
        """See HTTPRedirectHandler; the redirect becomes an HTTPError."""


class _TimedReader(io.RawIOBase):
    """Reads from a socket until a time. The timeout of the socket alone would begin again with each byte."""

    def __init__(self, raw: io.RawIOBase, source: socket.socket, seconds: float) -> None:
        self._raw = raw
        self._source = source
        self._seconds = seconds
        self._until = time.monotonic() + seconds

    def readable(self) -> bool:
        """See RawIOBase."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """See RawIOBase. Raises TimeoutError."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"the answer is not complete after {self._seconds:g} s")
        self._source.settimeout(min(left, _SECONDS))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """See IOBase."""
        self._raw.close()
        super().close()


class _TimedResponse(http.client.HTTPResponse):
    """An answer whose status, headers and body have to arrive within ANSWER_SECONDS."""

    def __init__(self, sock: socket.socket, *args: Any, **named: Any) -> None:
        super().__init__(sock, *args, **named)
        self.fp = io.BufferedReader(_TimedReader(self.fp.detach(), sock, ANSWER_SECONDS))


class _TimedConnection(http.client.HTTPConnection):
    response_class = _TimedResponse


class _TimedSecureConnection(http.client.HTTPSConnection):
    response_class = _TimedResponse


class _TimedHTTP(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """See HTTPHandler."""
        return self.do_open(_TimedConnection, req)


class _TimedHTTPS(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """See HTTPSHandler."""
        return self.do_open(_TimedSecureConnection, req)


class SchemaRegistry:
    """A registry at a URL. Called from any thread."""

    def __init__(self, url: str, login: Login | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Raises ClientError for a URL that cannot be used."""
        check_url(url)
        self._url = url.rstrip("/")
        self._login = login
        self._opener = urllib.request.build_opener(_NoRedirect, _TimedHTTP, _TimedHTTPS)
        self._monotonic = monotonic
        self._known: dict[int, tuple[Schema | NoSchema, float]] = {}
        self._silent_until = float("-inf")
        self._lock = threading.Lock()

    def schema(self, schema_id: int) -> Schema:
        """The schema with an id. Raises NoSchema."""
        with self._lock:
            found, until = self._known.get(schema_id, (None, 0.0))
            if found is None or until <= self._monotonic():
                try:
                    found, until = self._asked(schema_id), float("inf")
                except NoSchema as error:
                    found, until = error, self._monotonic() + _UNKNOWN_SECONDS
                self._known.pop(schema_id, None)
                while len(self._known) >= MAX_SCHEMAS:
                    del self._known[next(iter(self._known))]
                self._known[schema_id] = found, until
        if isinstance(found, NoSchema):
            raise NoSchema(str(found))
        return found

    def decoded(self, data: bytes) -> tuple[str, str]:
        """The form and the JSON text of bytes that were written by a schema. Raises NoSchema, ValueError, RecursionError."""
        if not has_schema(data):
            raise NoSchema("these bytes do not begin with the id of a schema")
        schema = self.schema(int.from_bytes(data[1:HEADER_BYTES], "big"))
        return schema.form, schema.text(data[HEADER_BYTES:])

    def encoded(self, schema_id: int, text: str) -> bytes:
        """The bytes of JSON text by a schema, after its id. Raises NoSchema, ValueError, RecursionError."""
        return bytes([MAGIC]) + schema_id.to_bytes(4, "big") + self.schema(schema_id).encoded(text)

    def _asked(self, schema_id: int) -> Schema:
        if self._monotonic() < self._silent_until:
            raise NoSchema("the schema registry did not answer lately")
        request = urllib.request.Request(f"{self._url}/schemas/ids/{schema_id}", headers={"Accept": "application/json"})
        if self._login is not None:
            self._login.add_to(request)
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                data = answer.read(MAX_SCHEMA_BYTES + 1)
        except urllib.error.HTTPError as error:
            error.close()
            raise NoSchema(self._reason(error.code, schema_id)) from None
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            self._silent_until = self._monotonic() + _UNKNOWN_SECONDS
            reason = " ".join(str(getattr(error, "reason", None) or error).split())[:_MOST_REASON_CHARACTERS]
            raise NoSchema(f"the schema registry does not answer: {reason}") from None
        if len(data) > MAX_SCHEMA_BYTES:
            raise NoSchema(f"schema {schema_id} has more than {MAX_SCHEMA_BYTES} bytes")
        try:
            return _schema(schema_id, json.loads(data))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            why = f": {error}" if isinstance(error, NotAvro | NotAProtoFile) else ""
            raise NoSchema(f"the schema registry has no usable schema {schema_id}{why}") from None

    def _reason(self, status: int, schema_id: int) -> str:
        if status in _REFUSALS:
            remedy = "give one by --schema-registry-login" if self._login is None else "correct --schema-registry-login"
            return f"the schema registry refuses the login with {status}; {remedy}"
        if 300 <= status < 400:
            return f"the schema registry redirects schema {schema_id} ({status}); give the other address by --schema-registry"
        return f"the schema registry answers {status} to schema {schema_id}"
