"""The console answers its own page only, explains what it cannot answer, and shows every byte of a record safely."""

import asyncio
import json
import re
from typing import Any

import pytest
from click.testing import CliRunner
from starlette.types import Message

from broker.cli.console import views
from broker.cli.console.application import STATIC, application
from broker.cli.main import main
from broker.client.cluster import Cluster
from broker.client.errors import Unreachable

OWN = {"host": "127.0.0.1:8080"}


def get(path: str, headers: dict[str, str] | None = None, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one request to a console whose cluster is dead."""
    name, _, query = path.partition("?")
    sent: list[Message] = []

    def connect() -> Cluster:
        raise Unreachable("no broker can be reached")

    requests: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Message:
        if not requests:
            await asyncio.Event().wait()  # the client stays connected
        return requests.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http", "path": name,
        "raw_path": name.encode(), "root_path": "", "query_string": query.encode(), "client": None, "server": None,
        "headers": [(key.encode(), value.encode()) for key, value in (OWN if headers is None else headers).items()],
    }  # fmt: skip
    asyncio.run(application(connect)(scope, receive, send))
    answered = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
    return sent[0]["status"], answered, b"".join(message.get("body", b"") for message in sent[1:])


def error_of(body: bytes) -> str:
    found: dict[str, Any] = json.loads(body)
    return str(found["error"])


@pytest.mark.parametrize("path", ["overview", "topics", "topics/t", "topics/t/records", "groups", "groups/a/b", "findings"])
def test_a_dead_cluster_is_one_line(path: str) -> None:
    status, _, body = get(f"/api/v1/{path}")
    assert (status, error_of(body)) == (502, "no broker can be reached")


@pytest.mark.parametrize("path", ["/", "/api/v1/topics", "/static/console.js", "/nothing"])
def test_every_answer_has_the_headers_that_protect_the_page(path: str) -> None:
    _, headers, _ = get(path)
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8080", "", "[::2]:8080", "localhost@evil.example"])
def test_another_host_name_is_refused(host: str) -> None:
    assert get("/api/v1/overview", {"host": host})[0] == 421
    assert get("/", {"host": host})[0] == 421


@pytest.mark.parametrize("host", ["localhost:8080", "LOCALHOST", "127.0.0.1", "[::1]:8080", "[::1]"])
def test_the_names_of_this_host_are_accepted(host: str) -> None:
    assert get("/", {"host": host})[0] == 200


def test_requests_of_other_sites_are_refused_and_links_to_the_page_are_not() -> None:
    for site in ("cross-site", "same-site"):
        assert get("/api/v1/topics", {**OWN, "sec-fetch-site": site})[0] == 403
        assert get("/", {**OWN, "sec-fetch-site": site})[0] == 200
    assert get("/api/v1/topics", {**OWN, "sec-fetch-site": "same-origin"})[0] == 502


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(method: str) -> None:
    assert get("/api/v1/topics/t", method=method)[0] == 405


@pytest.mark.parametrize("path", ["/static/../application.py", "/static/%2e%2e/views.py", "/static//etc/passwd", "/../../pyproject.toml"])
def test_no_other_file_is_served(path: str) -> None:
    assert get(path)[0] == 404


def test_parameters_that_are_no_numbers_are_refused() -> None:
    from broker.cli.console.application import BadParameter, _number

    assert _number(None, "offset") is None
    assert _number("", "offset") is None
    assert _number("17", "offset") == 17
    for text in ("-1", "1e3", "٣", "9" * 20, "x", "1\n"):
        with pytest.raises(BadParameter, match="offset is not a number"):
            _number(text, "offset")


def test_the_page_has_no_code_or_style_that_its_policy_forbids_and_nothing_from_another_host() -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    code = (STATIC / "console.js").read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*src=\"/static/)|<style|style=|\son\w+=|javascript:", page)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", code)
    assert not re.search(r"https?://|//[a-z0-9-]+\.[a-z]", page + (STATIC / "console.css").read_text(encoding="utf-8"))
    for name in re.findall(r"/static/([\w.]+)", page):
        assert (STATIC / name).is_file()


@pytest.mark.parametrize(
    ("data", "form", "text"),
    [
        (None, "null", None),
        (b"", "text", ""),
        ("<b>\0\u202e".encode(), "text", "<b>\0\u202e"),
        (b"\xff\x00", "hex", "ff 00"),
        (b"x" * 20_000, "text", "x" * views.SHOWN_BYTES),
        ("é".encode() * 20_000, "text", "é" * (views.SHOWN_BYTES // 2)),
        (b"x" + "é".encode() * 20_000, "text", "x" + "é" * (views.SHOWN_BYTES // 2 - 1)),
        (b"xy" + "𝄞".encode() * 20_000, "text", "xy" + "𝄞" * ((views.SHOWN_BYTES - 2) // 4)),
    ],
)
def test_bytes_are_shown_as_text_or_as_digits_and_cut_between_characters(data: bytes | None, form: str, text: str | None) -> None:
    shown = views._bytes(data)
    assert (shown["form"], shown["text"], shown["bytes"]) == (form, text, len(data or b""))


@pytest.mark.parametrize("listen", ["0.0.0.0:8080", "192.0.2.1:80", "[::]:8080", "example.com:80"])
def test_without_a_login_it_listens_on_loopback_addresses_only(listen: str) -> None:
    refused = CliRunner().invoke(main, ["console", "--listen", listen])
    assert refused.exit_code == 2
    assert "the console has no login" in refused.output


@pytest.mark.parametrize("listen", ["8080", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999"])
def test_an_address_that_is_none_is_refused(listen: str) -> None:
    refused = CliRunner().invoke(main, ["console", "--listen", listen])
    assert refused.exit_code == 2
    assert "is not HOST:PORT" in refused.output
