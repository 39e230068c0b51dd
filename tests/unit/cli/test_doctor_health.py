"""The doctor asks the metrics listeners that it reaches, and nobody's loopback interface but its own."""

import http.server
import threading
from collections.abc import Iterator

import pytest

from ottla.cli.doctor.health import degraded


@pytest.fixture
def port() -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"degraded\nthe remote store does not answer: 503\n" if self.path == "/health" else b"?"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("listener", "advertised", "is_asked"),
    [
        ("127.0.0.1:{}", "127.0.0.1", True),
        ("127.0.0.1:{}", "localhost", True),
        ("0.0.0.0:{}", "127.0.0.1", True),
        (":{}", "localhost", True),
        ("127.0.0.1:{}", "192.0.2.1", False),
        ("localhost:{}", "kafka.example.com", False),
        ("127.0.0.1:0", "127.0.0.1", False),
        ("nothing", "127.0.0.1", False),
    ],
)
def test_a_listener_is_asked_where_it_is_seen(port: int, listener: str, advertised: str, is_asked: bool) -> None:
    expected = {7: "the remote store does not answer: 503"} if is_asked else {}
    assert degraded({7: (listener.format(port), advertised)}) == expected


def test_a_broker_that_does_not_answer_has_no_finding(port: int) -> None:
    assert degraded({1: ("127.0.0.1:1", "127.0.0.1"), 2: (f"127.0.0.1:{port}", "127.0.0.1")}).keys() == {2}
