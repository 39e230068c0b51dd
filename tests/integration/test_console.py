"""`ottla console` with a real broker: the API answers, hostile names and records stay text, also in a real Chromium."""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import Cluster, a_cluster
from tests.support.command_line import CommandLine

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SECONDS = 60.0
HOSTILE = '<img src=x onerror="document.title=1">\u202e\x00&amp;'
NESTED = "[" * 200_000
GROUP = "<b>group</b>/\u202e"


class Console:
    """The API of a running console."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str, status: int = 200) -> Any:
        try:
            with urllib.request.urlopen(f"{self.address}api/v1/{path}", timeout=SECONDS) as answer:
                found, body = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                found, body = error.code, error.read()
        assert found == status, body
        return json.loads(body)


@contextmanager
def a_console(bootstrap: str) -> Iterator[Console]:
    command = [sys.executable, "-m", "broker", "console", "-b", bootstrap, "--listen", "127.0.0.1:0", "--timeout", "30"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            found = re.fullmatch(r"ottla console is ready: (http://127\.0\.0\.1:\d+/)\n", process.stdout.readline())
            assert found is not None
            yield Console(found[1])
        finally:
            process.terminate()
            process.wait(SECONDS)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker with a topic of hostile records, and a group."""
    with a_cluster(tmp_path_factory.mktemp("console"), 1) as running:
        running.create_topic("t", partitions=2)
        line = CommandLine(running.bootstrap)
        for value in (HOSTILE, NESTED, '{"large":12345678901234567890}', '{"a":[1]}'):
            line("produce", "-J", "-p", "1", "t", input=json.dumps({"key": HOSTILE, "value": value, "headers": [[HOSTILE, "x"]]}))
        line("consume", "-G", GROUP, "-e", "-c", "2", "t")
        yield running


@pytest.fixture(scope="module")
def console(cluster: Cluster) -> Iterator[Console]:
    with a_console(cluster.bootstrap) as running:
        yield running


def test_the_api_shows_the_cluster(console: Console) -> None:
    overview = console.get("overview")
    assert (overview["controller"], len(overview["brokers"]), overview["offline"]) == (0, 1, 0)
    assert {"name": "t", "internal": False, "partitions": 2, "replicas": 1, "under_replicated": 0, "offline": 0} in console.get("topics")[
        "topics"
    ]
    topic = console.get("topics/t")
    assert [(each["leader"], each["start"], each["end"]) for each in topic["partitions"]] == [(0, 0, 0), (0, 0, 4)]
    assert {"name": "cleanup.policy", "value": "delete", "source": "DEFAULT_CONFIG"} in topic["configs"]
    assert GROUP in [each["group"] for each in console.get("groups")["groups"]]
    group = console.get(f"groups/{urllib.parse.quote(GROUP, safe='')}")
    assert [(each["offset"], each["end"], each["lag"]) for each in group["partitions"] if each["partition"] == 1] == [(2, 4, 2)]
    assert console.get("findings")["not_examined"] == []


def test_records_are_found_by_offset_by_time_and_from_the_end(console: Console) -> None:
    def offsets(query: str) -> list[int]:
        return [record["offset"] for record in console.get(f"topics/t/records?partition=1&{query}")["records"]]

    assert offsets("") == [0, 1, 2, 3]
    assert offsets("limit=1") == [3]
    assert offsets("offset=1&limit=2") == [1, 2]
    assert offsets("offset=99") == []
    assert offsets("timestamp=0&limit=1") == [0]
    assert offsets("timestamp=99999999999999") == []
    first, second = console.get("topics/t/records?partition=1&limit=2&offset=0")["records"]
    assert first["value"] == {"form": "text", "text": HOSTILE, "bytes": len(HOSTILE.encode())}
    assert (len(second["value"]["text"]), second["value"]["bytes"]) == (16 * 1024, len(NESTED))


def test_what_does_not_exist_is_one_line(console: Console) -> None:
    assert "there is no such topic" in console.get("topics/none", 404)["error"]
    assert "there is no such group" in console.get("groups/none", 404)["error"]
    assert console.get("topics/t/records?limit=-1", 400) == {"error": "limit is not a number"}
    assert "no partition 7" in console.get("topics/t/records?partition=7", 502)["error"]


def test_a_dead_cluster_is_one_line_and_the_console_goes_on() -> None:
    with a_console("127.0.0.1:1") as console:
        for _ in range(3):
            assert "no broker can be reached at 127.0.0.1:1" in console.get("topics", 502)["error"]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("", "controller"),
        ("#/topics", ">t</a>"),
        ("#/topics/t", "cleanup.policy"),
        ("#/topics/t/records/1", "12345678901234567890"),
        ("#/topics/t/records/1", r'&lt;img src=x onerror="document.title=1"&gt;\u202e\u0000&amp;amp;'),
        ("#/groups", r"&lt;b&gt;group&lt;/b&gt;/\u202e"),
        (f"#/groups/{urllib.parse.quote(GROUP, safe='')}", "Offsets"),
        ("#/findings", "Nothing is wrong."),
        ("#/__proto__", "There is no page __proto__."),
    ],
)
def test_pages_are_drawn_by_a_real_browser(console: Console, page: str, shown: str, tmp_path: Path) -> None:
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--virtual-time-budget=8000", "--dump-dom"]
    command = ["chromium", *options, console.address + page]
    drawn = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True).stdout
    assert shown in drawn
    assert "<img" not in drawn
    assert "<title>Ottla console</title>" in drawn
