"""The console asks a schema registry for each schema once, logs in there, and shows the login to nobody else."""

import base64
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.client.errors import ClientError
from ottla.console.clusters import Clusters
from ottla.console.decoding import Decoder
from ottla.schemas import schema_registry
from ottla.schemas.schema_registry import (
    LOGIN_VARIABLE,
    MAX_SCHEMAS,
    Login,
    NoSchema,
    SchemaRegistry,
    check_url,
    parse_login,
    read_login,
    sends_in_clear,
)
from tests.unit.cli.test_console_records import DECODED, ENCODED, USER

PASSWORD = "pass:word-secret"
FRAMED = b"\0\0\0\0\1" + ENCODED


class Registry:
    """A registry that answers by path. `asked` has the paths, `logins` the Authorization header of each."""

    def __init__(self, answers: Mapping[str, bytes | int], wanted: str | None) -> None:
        self.answers = answers
        self.wanted = wanted
        self.asked: list[str] = []
        self.logins: list[str | None] = []
        self.url = ""
        self.other_url = ""
        """Where it redirects to with 302."""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """See BaseHTTPRequestHandler.do_GET."""
        self.asked.append(handler.path)
        self.logins.append(handler.headers["Authorization"])
        found = self.answers.get(handler.path, 404)
        if self.wanted is not None and self.logins[-1] != f"Basic {base64.b64encode(self.wanted.encode()).decode()}":
            found = 401
        if found == b"garbage":
            handler.wfile.write(b"garbage\r\n\r\n")
            return
        handler.send_response(found if isinstance(found, int) else 200)
        if found == 302:
            handler.send_header("Location", self.other_url + handler.path)
        handler.end_headers()
        handler.wfile.write(b"" if isinstance(found, int) else found)


@contextmanager
def a_registry(answers: Mapping[str, bytes | int], wanted: str | None = None) -> Iterator[Registry]:
    """A registry that wants this USER:PASSWORD, if it is given."""
    registry = Registry(answers, wanted)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            registry.url = f"http://127.0.0.1:{server.server_port}"
            yield registry
        finally:
            server.shutdown()
            thread.join()


SCHEMA = {"/schemas/ids/1": json.dumps({"schema": json.dumps(USER)}).encode()}


def test_schemas_come_from_the_registry_once() -> None:
    answers = {
        **SCHEMA,
        "/schemas/ids/2": json.dumps({"schema": "syntax = 'proto3'", "schemaType": "PROTOBUF"}).encode(),
        "/schemas/ids/3": b"[" * 100_000,
        "/schemas/ids/5": json.dumps({"schema": "struct x {}", "schemaType": "THRIFT"}).encode(),
        "/schemas/ids/6": json.dumps({"schema": json.dumps(USER), "references": [{"name": "other"}]}).encode(),
    }
    now = 0.0
    with a_registry(answers) as running:
        decoder = Decoder(SchemaRegistry(f"{running.url}/", monotonic=lambda: now))
        for form in ("auto", "avro", "auto"):
            shown = decoder.show(FRAMED, form)
            assert (shown["form"], json.loads(shown["text"])) == ("avro", DECODED)
        assert running.asked == ["/schemas/ids/1"]
        reasons = [decoder.show(b"\0\0\0\0" + bytes([number]) + b"x", "auto").get("error") for number in (2, 3, 5, 6, 4, 4)]
        assert reasons == [
            "the schema registry has no usable schema 2: the .proto file has its end instead of more",
            "the schema registry has no usable schema 3",
            "schema 5 is of the kind 'THRIFT', which is not decoded",
            "schema 6 has references, with which Avro is not decoded",
            "the schema registry answers 404 to schema 4",
            "the schema registry answers 404 to schema 4",
        ]
        assert len(running.asked) == 6
        now = 31.0
        decoder.show(b"\0\0\0\0\4x", "auto")
        assert len(running.asked) == 7
        assert running.logins == [None] * 7
        assert decoder.show(b"plain", "auto")["form"] == "text"


def test_schemas_of_other_kinds_are_decoded() -> None:
    file = 'syntax = "proto3"; message Order { int64 id = 1; }'
    answers = {
        "/schemas/ids/1": json.dumps({"schema": file, "schemaType": "PROTOBUF"}).encode(),
        "/schemas/ids/2": json.dumps({"schema": "{}", "schemaType": "JSON", "references": [{"name": "other"}]}).encode(),
    }
    with a_registry(answers) as running:
        decoder = Decoder(SchemaRegistry(running.url))
        for form in ("auto", "protobuf", "avro"):
            shown = decoder.show(b"\0\0\0\0\1\0\x08\x96\x01", form)
            assert (shown["form"], shown["text"]) == ("protobuf", '{"id":150}')
        shown = decoder.show(b'\0\0\0\0\2{"a": 12345678901234567890}', "auto")
        assert (shown["form"], shown["text"]) == ("json", '{"a": 12345678901234567890}')
        assert decoder.show(b"\0\0\0\0\1\0\x08", "auto")["error"] == "a number does not end"
        assert decoder.show(b"\0\0\0\0\2{", "auto")["form"] == "text"


def test_a_registry_that_is_down_is_asked_once_in_a_while_and_schemas_are_bounded() -> None:
    registry = SchemaRegistry("http://127.0.0.1:1", monotonic=lambda: 0.0)
    with pytest.raises(NoSchema, match="does not answer: "):
        registry.schema(0)
    for number in range(1, 3 * MAX_SCHEMAS):
        with pytest.raises(NoSchema, match="did not answer lately"):
            registry.schema(number)
    assert len(registry._known) == MAX_SCHEMAS


def test_a_registry_that_does_not_speak_http_is_one_line() -> None:
    with a_registry({"/schemas/ids/1": b"garbage"}) as running:
        shown = Decoder(SchemaRegistry(running.url)).show(FRAMED, "avro")
    assert shown["error"].startswith("the schema registry does not answer: ")


@contextmanager
def a_slow_registry(prefix: bytes) -> Iterator[str]:
    """The address of a server that begins its answers with these bytes, and sends one byte more now and then, without an end."""
    stopped = threading.Event()

    def serve(server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                with client, suppress(OSError):
                    client.recv(65536)
                    client.sendall(prefix)
                    while not stopped.wait(0.01):
                        client.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            stopped.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.slow
@pytest.mark.parametrize(
    "prefix",
    [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"HTTP/1.1 404 No\r\nX: "],
    ids=["status", "headers", "body", "headers of an error"],
)
def test_an_answer_that_comes_byte_by_byte_ends_after_its_time(prefix: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "ANSWER_SECONDS", 0.2)
    with a_slow_registry(prefix) as url:
        registry = SchemaRegistry(url)
        began = time.monotonic()
        with pytest.raises(NoSchema, match=r"^the schema registry does not answer: "):
            registry.schema(1)
        assert time.monotonic() - began < 3.0
        with pytest.raises(NoSchema, match="did not answer lately"):
            registry.schema(2)


def test_a_login_opens_the_registry_and_no_error_shows_it() -> None:
    with a_registry(SCHEMA, f"alice:{PASSWORD}") as running:
        shown = Decoder(SchemaRegistry(running.url, Login("alice", PASSWORD))).show(FRAMED, "auto")
        assert json.loads(shown["text"]) == DECODED
        wrong = Login("alice", "wrong-secret")
        for login, remedy in ((None, "give one by"), (wrong, "correct")):
            error = Decoder(SchemaRegistry(running.url, login)).show(FRAMED, "auto")["error"]
            assert error == f"the schema registry refuses the login with 401; {remedy} --schema-registry-login"
    assert (str(wrong), f"{wrong!r}") == ("Login(hidden)", "Login(hidden)")


def test_a_redirect_is_not_followed_and_gets_no_login() -> None:
    with a_registry(SCHEMA) as other, a_registry({"/schemas/ids/1": 302}) as running:
        running.other_url = other.url
        error = Decoder(SchemaRegistry(running.url, Login("alice", PASSWORD))).show(FRAMED, "auto")["error"]
        assert error == "the schema registry redirects schema 1 (302); give the other address by --schema-registry"
        assert other.asked == []


@pytest.mark.parametrize("text", ["", "alice", ":secret", "alice:one\nbob:two", "alice:a\0b", "x" * 5000 + ":y"], ids=len)
def test_a_login_that_cannot_be_used_is_one_line_without_it(text: str, tmp_path: Path) -> None:
    (tmp_path / "login").write_text(text)
    with pytest.raises(ClientError, match=rf"^{tmp_path}/login is not one line USER:PASSWORD$"):
        read_login(tmp_path / "login")


def test_a_login_may_have_colons_in_the_password_and_a_line_end_after_it() -> None:
    with a_registry(SCHEMA, "älice:pass:word-secret ") as running:
        login = parse_login("älice:pass:word-secret \r\n", "the file")
        assert Decoder(SchemaRegistry(running.url, login)).show(FRAMED, "auto")["form"] == "avro"


def test_a_file_of_a_login_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"alice:\xff")
    with pytest.raises(ClientError, match="is not one line USER:PASSWORD"):
        read_login(tmp_path / "bytes")
    with pytest.raises(ClientError, match=r"the login for the schema registry cannot be read: .*/none: No such file"):
        read_login(tmp_path / "none")


@pytest.mark.parametrize("url", ["ftp://host", "host:8081", "http://", "http://host:port", "http://[::1", "//host", ""])
def test_an_address_that_is_none_of_a_registry_is_refused(url: str) -> None:
    with pytest.raises(ClientError, match=r"is not an http\(s\) URL"):
        check_url(url)


def test_a_login_in_the_address_is_refused_and_not_repeated() -> None:
    refused = CliRunner().invoke(main, ["console", "--schema-registry", f"https://alice:{PASSWORD}@registry.example"])
    assert (refused.exit_code, PASSWORD in refused.output) == (2, False)
    assert f"put USER:PASSWORD into a file for --schema-registry-login, or into {LOGIN_VARIABLE}" in refused.output


@pytest.mark.parametrize(
    ("url", "is_in_clear"),
    [
        ("http://registry.example:8081", True),
        ("https://registry.example", False),
        ("http://127.0.0.1:8081", False),
        ("http://[::1]:8081", False),
        ("http://localhost", False),
    ],
)
def test_a_login_without_encryption_is_said(url: str, is_in_clear: bool) -> None:
    assert sends_in_clear(url) is is_in_clear


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Clusters]:
    """The clusters of consoles that were started by `console`, which serve nothing."""
    found: list[Clusters] = []
    monkeypatch.setattr("ottla.console.application.application", lambda clusters, _: found.append(clusters))
    monkeypatch.setattr("ottla.console.command._serve", lambda *_: None)
    return found


def console(*options: str) -> str:
    """The output of a start that succeeds."""
    done = CliRunner().invoke(main, ["console", *options])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_login_comes_from_a_file_from_the_environment_or_from_the_profile(
    served: list[Clusters], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "login").write_text(f"alice:{PASSWORD}\n")
    with a_registry(SCHEMA, f"alice:{PASSWORD}") as running:
        profiles = tmp_path / "profiles.toml"
        registry = f'schema-registry = "{running.url}"\nschema-registry-login = "{tmp_path}/login"\n'
        profiles.write_text(f'[here]\nbootstrap-server = "127.0.0.1:1"\n{registry}[there]\nbootstrap-server = "127.0.0.1:2"\n')
        monkeypatch.setenv("OTTLA_PROFILES", str(profiles))
        output = console("--schema-registry", running.url, "--schema-registry-login", f"{tmp_path}/login")
        output += console("--profile", "here")
        output += console("--cluster", "there", "--cluster", "here")
        monkeypatch.setenv(LOGIN_VARIABLE, f"alice:{PASSWORD}")
        output += console("--schema-registry", running.url)
        decoders = {(at, each.name): each.decoder for at, clusters in enumerate(served) for each in clusters}
        forms = {key: decoder.show(FRAMED, "auto")["form"] for key, decoder in decoders.items()}
        assert forms == {
            (0, "127.0.0.1:9092"): "avro",
            (1, "here"): "avro",
            (2, "there"): "hex",
            (2, "here"): "avro",
            (3, "127.0.0.1:9092"): "avro",
        }
    assert PASSWORD not in output


def test_the_login_of_the_environment_goes_to_no_registry_of_another_profile(
    served: list[Clusters], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_registry(SCHEMA) as own, a_registry(SCHEMA) as other:
        profiles = tmp_path / "profiles.toml"
        profiles.write_text(f'[other]\nbootstrap-server = "127.0.0.1:1"\nschema-registry = "{other.url}"\n')
        monkeypatch.setenv("OTTLA_PROFILES", str(profiles))
        monkeypatch.setenv(LOGIN_VARIABLE, f"alice:{PASSWORD}")
        console("-b", "127.0.0.1:2", "--schema-registry", own.url, "--cluster", "other")
        for each in served[0]:
            assert each.decoder.show(FRAMED, "auto")["form"] == "avro"
        assert other.logins == [None]
        assert own.logins != [None]


def test_a_login_without_a_registry_is_refused(tmp_path: Path) -> None:
    (tmp_path / "login").write_text(f"alice:{PASSWORD}\n")
    refused = CliRunner().invoke(main, ["console", "--schema-registry-login", f"{tmp_path}/login"])
    assert (refused.exit_code, refused.output) == (
        1,
        "ottla: a login for a schema registry needs the address of the registry: schema-registry\n",
    )
