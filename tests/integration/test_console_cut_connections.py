"""The console behind a proxy that cuts connections at random: errors are one line, nothing is left behind, and the page goes on."""

from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.chromium import a_page, is_installed
from tests.support.command_line import CommandLine
from tests.support.cutting_proxy import CuttingProxy, a_cutting_proxy
from tests.support.running_console import Console, a_console

pytestmark = pytest.mark.slow

RECORDS = 2000
REQUESTS = 300
MOST_STREAMS = 16
"""Searches, live views and exports of a cluster at a time; ottla.console.streams has the limit."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("cut")) as running:
        line = CommandLine(running.bootstrap)
        line("topics", "create", "orders")
        line("produce", "orders", input=f"{'x' * 500}\n" * RECORDS)
        yield running


def behind(proxy: CuttingProxy, console: Console) -> str:
    """The address of the console as the clients of the proxy know it."""
    proxy.target = int(console.address.rstrip("/").rpartition(":")[2])
    return f"http://127.0.0.1:{proxy.port}/"


def test_answers_that_are_cut_leave_no_stream_and_no_line(broker: BrokerProcess, capfd: pytest.CaptureFixture[str]) -> None:
    with a_console(broker.bootstrap) as console, a_cutting_proxy(seed=11) as proxy:
        address = behind(proxy, console)
        whole = 0
        refused: set[int] = set()
        for number in range(REQUESTS):
            path = ("topics/orders/export", "topics/orders/records?limit=500", "overview")[number % 3]
            try:
                with urlopen(f"{address}api/v1/{path}", timeout=60) as answer:
                    whole += bool(answer.read())
            except HTTPError as error:
                refused.add(error.code)
                error.close()
            except (HTTPException, OSError):
                pass  # cut
        assert proxy.cuts > 0
        assert whole > 0
        assert refused <= {503}  # the streams of clients that were cut off end a moment later
        proxy.is_calm = True

        def all_streams_are_free() -> bool:
            opened: list[HTTPResponse] = []
            try:
                opened.extend(console.open("GET", "topics/orders/live") for _ in range(MOST_STREAMS))
            except HTTPError as error:
                error.close()
            finally:
                for each in opened:
                    each.close()
            return len(opened) == MOST_STREAMS

        eventually(all_streams_are_free, what="the end of all streams whose clients are gone")
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.skipif(not is_installed, reason="chromium is not installed")
def test_the_page_says_so_in_one_line_and_is_whole_after_a_reload(broker: BrokerProcess, tmp_path: Path) -> None:
    with a_console(broker.bootstrap) as console, a_cutting_proxy(seed=12) as proxy, a_page(tmp_path / "profile") as page:
        proxy.is_calm = True
        page.open(behind(proxy, console))
        page.wait_for_text("All is well")
        target, proxy.target = proxy.target, 1  # nobody listens there: each connection ends at once
        for _ in range(2):
            page.run("document.getElementById('reload').click()")
            page.wait_for("document.querySelector('main [role=alert]') && !document.querySelector('main[aria-busy]')")
            assert page.run("[...document.querySelectorAll('main [role=alert]')].every((one) => !one.innerText.includes('\\n'))")
        proxy.target = target
        page.run("document.getElementById('reload').click()")
        page.wait_for_text("All is well")
        assert page.run("document.querySelector('main [role=alert]')") is None
