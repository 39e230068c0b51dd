"""The key set of signed tokens: read from files and servers, again from time to time, and for a token with an unknown key."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from ottla.broker.security.sasl import jwks_source
from ottla.broker.security.sasl.json_web_keys import UNKNOWN_KEY_PAUSE_SECONDS, JsonWebKeys
from ottla.broker.security.sasl.jwks_source import MAX_BYTES, JwksUnavailable, read_jwks
from ottla.config.errors import ConfigError
from ottla.config.sasl import JwksSource
from tests.support.certificates import Identity, java_key_store
from tests.support.controlled_cluster import until

PUBLIC = json.loads(jwt.get_algorithm_by_name("ES256").to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key()))
Scenario = Callable[[ThreadPoolExecutor], Awaitable[None]]


def key_set(*key_ids: str) -> bytes:
    return json.dumps({"keys": [{**PUBLIC, "kid": key_id} for key_id in key_ids]}).encode()


def run(scenario: Scenario) -> None:
    async def play() -> None:
        with ThreadPoolExecutor(1) as executor:
            await scenario(executor)

    asyncio.run(play())


@contextmanager
def a_server(answer: Callable[[BaseHTTPRequestHandler], None], tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """The port of a server whose answers `answer` writes."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answering(data: bytes, status: int = 200, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, text in headers.items():
            handler.send_header(name, text)
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def source(url: str, refresh_ms: int = 3_600_000, backoff_ms: int = 1, backoff_max_ms: int = 5, **tls: str) -> JwksSource:
    options = {f"ssl.truststore.{name}": text for name, text in tls.items()}
    return JwksSource(url, refresh_ms, backoff_ms, backoff_max_ms, tuple(options.items()))


def ids(keys: JsonWebKeys) -> list[str | None]:
    return [each.key_id for each in keys.keys]


def test_a_changed_file_is_read_again_and_a_broken_one_leaves_the_earlier_keys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    file = tmp_path / "my keys.json"
    file.write_bytes(key_set("a").replace(b"[", b'[{"kty": "oct", "k": "x"}, '))

    async def scenario(executor: ThreadPoolExecutor) -> None:
        keys = JsonWebKeys(source(f"file://{tmp_path}/my%20keys.json", refresh_ms=20), executor, time.monotonic)
        await keys.load()
        assert ids(keys) == ["a"]
        assert "read 1 keys for signed tokens at" in caplog.text
        assert ", and left 1 out" in caplog.text
        file.write_bytes(key_set("b", "c"))
        await until(lambda: ids(keys) == ["b", "c"])
        file.write_bytes(b"{")
        await until(lambda: "the earlier ones stay" in caplog.text)
        assert ids(keys) == ["b", "c"]
        file.write_bytes(key_set("d"))
        await until(lambda: ids(keys) == ["d"])
        await keys.close()

    run(scenario)


def test_keys_that_cannot_be_read_at_the_start_are_an_error_that_names_the_url(tmp_path: Path) -> None:
    async def scenario(executor: ThreadPoolExecutor) -> None:
        key = r"Invalid value file:/missing for configuration sasl\.oauthbearer\.jwks\.endpoint\.url"
        with pytest.raises(ConfigError, match=rf"{key}: the keys for signed tokens cannot be read: .*No such file"):
            await JsonWebKeys(source("file:/missing"), executor, time.monotonic).load()

    run(scenario)


def test_an_unknown_key_brings_one_reading_forward_and_then_none_for_a_while() -> None:
    readings: list[JwksSource] = []

    def read(asked: JwksSource) -> bytes:
        readings.append(asked)
        return key_set(*map(str, range(len(readings))))

    async def scenario(executor: ThreadPoolExecutor) -> None:
        now = [100.0]
        keys = JsonWebKeys(source("file:/x"), executor, lambda: now[0], read)
        keys.begin()
        await until(lambda: ids(keys) == ["0"])
        assert keys.candidates("0", "ES256")
        assert not keys.candidates("0", "RS256")
        await until(lambda: ids(keys) == ["0", "1"])
        for number in range(1000):
            now[0] += UNKNOWN_KEY_PAUSE_SECONDS / 1001
            assert not keys.candidates(f"unknown-{number}", "ES256")
        await asyncio.sleep(0.02)
        assert len(readings) == 2
        now[0] += 1
        assert not keys.candidates("2", "ES256")
        await until(lambda: len(keys.candidates("2", "ES256")) == 1)
        await keys.close()

    run(scenario)


def test_after_an_error_of_this_broker_the_keys_are_read_again(caplog: pytest.LogCaptureFixture) -> None:
    attempts: list[int] = []

    def read(_: JwksSource) -> bytes:
        attempts.append(1)
        if len(attempts) == 1:
            raise MemoryError
        return key_set("a")

    async def scenario(executor: ThreadPoolExecutor) -> None:
        keys = JsonWebKeys(source("file:/x", refresh_ms=1), executor, time.monotonic, read)
        keys.begin()
        await until(lambda: ids(keys) == ["a"])
        await keys.close()

    run(scenario)
    assert "cannot be read again; the earlier ones stay" in caplog.text


def test_a_reading_is_repeated_with_growing_pauses_up_to_the_longest() -> None:
    attempts: list[float] = []

    def read(_: JwksSource) -> bytes:
        attempts.append(time.monotonic())
        if len(attempts) < 4:
            raise JwksUnavailable("not yet")
        return key_set("a")

    async def scenario(executor: ThreadPoolExecutor) -> None:
        keys = JsonWebKeys(source("file:/x", backoff_ms=20, backoff_max_ms=10_000), executor, time.monotonic, read)
        keys.begin()
        await until(lambda: ids(keys) == ["a"])
        pauses = [after - before for before, after in pairwise(attempts)]
        assert [pause >= least for pause, least in zip(pauses, (0.02, 0.04, 0.08), strict=True)] == [True] * 3
        await keys.close()

    run(scenario)


def test_a_server_is_asked_by_http() -> None:
    with a_server(answering(key_set("a"))) as port:
        assert read_jwks(source(f"http://127.0.0.1:{port}/keys")) == key_set("a")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (answering(b"", 404), "404"),
        (answering(b"", 302, Location="file:/etc/passwd"), "302"),
        (answering(b"", 302, Location="http://127.0.0.1:1/"), "302"),
        (answering(b"x" * (MAX_BYTES + 1)), "larger than"),
        (lambda handler: handler.wfile.write(b"\x15\x03\x01"), "BadStatusLine|\\x15"),
        (lambda handler: None, "closed connection"),
    ],
)
def test_a_server_with_another_answer_is_refused(answer: Callable[[BaseHTTPRequestHandler], None], reason: str) -> None:
    with a_server(answer) as port, pytest.raises(JwksUnavailable, match=reason):
        read_jwks(source(f"http://127.0.0.1:{port}/"))


def test_a_server_that_sends_a_byte_at_a_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks_source, "TOTAL_SECONDS", 0.2)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b" ")
                handler.wfile.flush()
                time.sleep(0.01)
        except OSError:
            pass

    with a_server(answer) as port, pytest.raises(JwksUnavailable, match="it takes longer than"):
        read_jwks(source(f"http://127.0.0.1:{port}/"))


def test_a_silent_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks_source, "SILENCE_SECONDS", 0.1)
    gone = threading.Event()
    try:
        with pytest.raises(JwksUnavailable, match="timed out"), a_server(lambda handler: gone.wait(10) and None) as port:
            read_jwks(source(f"http://127.0.0.1:{port}/"))
    finally:
        gone.set()


@pytest.mark.slow
def test_an_https_server_needs_a_certificate_that_is_trusted(tmp_path: Path) -> None:
    authority = Identity("CN=authority")
    server = Identity("CN=localhost", authority)
    certificate, key = server.files(tmp_path, "server")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    (tmp_path / "ca.pem").write_text(authority.certificate_pem)
    (tmp_path / "ca.jks").write_bytes(java_key_store("secret", authority.jks_certificate()))
    with a_server(answering(key_set("a")), tls) as port:
        url = f"https://localhost:{port}/"
        for trust in (
            {"type": "PEM", "location": str(tmp_path / "ca.pem")},
            {"type": "PEM", "certificates": authority.certificate_pem},
            {"type": "PEM", "certificates": server.certificate_pem},
            {"location": str(tmp_path / "ca.jks"), "password": "secret"},
        ):
            assert read_jwks(source(url, **trust)) == key_set("a")
        with pytest.raises(JwksUnavailable, match="certificate"):
            read_jwks(source(url))
        for wrong in (
            {"type": "PEM", "certificates": Identity("CN=other").certificate_pem},
            {"location": str(tmp_path / "ca.jks"), "password": "wrong"},
            {"location": "/missing"},
            {"type": "PEM"},
            {"type": "BKS"},
            {"provider": "x"},
        ):
            with pytest.raises(JwksUnavailable):
                read_jwks(source(url, **wrong))
