"""Sizes, disks and versions in a real Chromium: they come after the page, are text, and are unknown where no broker tells them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ottla.protocol.api_keys import ApiKey
from tests.support.broker_process import eventually
from tests.support.chromium import Page, is_installed
from tests.support.hostile_records import HOSTILE
from tests.support.many_topics import a_broker_of_topics
from tests.support.running_console import Console, a_console

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not is_installed, reason="chromium is not installed")]

SHOWN = '<img src=x onerror="document.title=1">\\u202e\\u0000&amp;'
BROKERS = [{"id": number, "address": f"127.0.0.1:{number}", "rack": None, "leads": 1, "replicas": 2} for number in range(3)]
OVERVIEW = {"cluster_id": "c", "controller": 0, "topics": 1, "partitions": 3, "offline": 0, "under_replicated": 0, "brokers": BROKERS}
DIRECTORY = {"path": HOSTILE, "error": None, "total_bytes": 2**40, "usable_bytes": None, "replicas": 2, "replica_bytes": 2048}
TOLD = {
    "missing": [7],
    "other_requests": [1],
    "brokers": [
        {
            **BROKERS[0],
            "protocol_version": "3.9-IV0",
            "error": None,
            "log_dirs": [DIRECTORY, {**DIRECTORY, "error": "KAFKA_STORAGE_ERROR"}],
        },
        {**BROKERS[1], "protocol_version": HOSTILE, "error": None, "log_dirs": [DIRECTORY]},
        {**BROKERS[2], "protocol_version": None, "error": HOSTILE, "log_dirs": []},
    ],
}
NAMES = ("a", "b", "c")
LINE = {"internal": False, "partitions": 1, "replicas": 2, "under_replicated": 0, "offline": 0}
TOPICS = {"topics": [{"name": name, **LINE} for name in NAMES]}
SIZES = {
    "topics": [{"name": "a", "bytes": 0, "replica_bytes": 0}, {"name": "b", "bytes": 5000, "replica_bytes": None}],
    "errors": [{"broker": number, "error": HOSTILE} for number in range(7)],
}


@pytest.fixture(scope="module")
def console() -> Iterator[Console]:
    with a_console("127.0.0.1:1") as running:  # all answers about the cluster are those of the tests
        yield running


def open_with(page: Page, console: Console, place: str, answers: Mapping[str, Any], late: str) -> None:
    """Open a page with these answers of the API by path. The answer to `late` comes when the page calls `tell()`."""
    page.open(f"{console.address}#/topics")
    page.wait_for_text("no broker can be reached")
    page.run(
        f"""(() => {{
            const answers = {json.dumps(answers)}, real = window.fetch;
            const refused = () => Response.json({{ error: 'no broker tells it' }}, {{ status: 502 }});
            const answer = (found) => (found === null ? refused() : Response.json(found));
            window.fetch = (address, ...rest) => {{
                const path = address.replace('/api/v1/', '');
                if (!Object.hasOwn(answers, path)) return real(address, ...rest);
                if (path !== {json.dumps(late)}) return Promise.resolve(answer(answers[path]));
                return new Promise((resolve) => {{ window.tell = () => resolve(answer(answers[path])); }});
            }};
            if (location.hash === {json.dumps(place)}) document.getElementById('reload').click();
            else location.hash = {json.dumps(place)};
        }})()"""
    )
    page.wait_for_text("…")


def answer_late(page: Page) -> None:
    """Give the answer to `late`, once the page has asked for it."""
    page.wait_for("window.tell", "the page asks")
    page.run("tell()")


def rows(page: Page, label: str) -> list[list[str]]:
    """The texts of the cells of a table."""
    drawn = f"[...document.querySelectorAll('[aria-label=\"{label}\"] .space .row')]"
    found = page.run(f"{drawn}.map((row) => [...row.children].map((one) => one.textContent))")
    assert isinstance(found, list)
    return found


def test_the_overview_shows_disks_and_versions_when_the_brokers_have_answered(console: Console, page: Page) -> None:
    open_with(page, console, "#/", {"overview": OVERVIEW, "brokers": TOLD}, "brokers")
    assert [row[-1] for row in rows(page, "Brokers")] == ["…"] * 3
    page.run("document.querySelector('[aria-label=Brokers] .space a').focus()")
    answer_late(page)
    page.wait_for_text("Broker 7 is not alive: its disks are unknown.")
    page.wait_for_text(f"Broker 2: {SHOWN}")
    page.wait_for_text("Brokers 0, 2 support other requests than 1: versions are mixed")
    assert [row[-1] for row in rows(page, "Brokers")] == ["3.9-IV0", SHOWN, "unknown"]
    assert rows(page, "Log directories") == [
        ["0", SHOWN, "2", "2.0 KiB", "–", "1.0 TiB", "–", "online"],
        ["0", SHOWN, "2", "2.0 KiB", "–", "1.0 TiB", "–", "KAFKA_STORAGE_ERROR"],
        ["1", SHOWN, "2", "2.0 KiB", "–", "1.0 TiB", "–", "online"],
    ]
    assert page.run("document.querySelector('[aria-label=Brokers] .space a') === document.activeElement")
    assert page.run("document.querySelector('img, script:not([src])')") is None
    assert page.run("document.title") == "Ottla console"


def test_topics_get_their_sizes_and_are_sorted_by_them(console: Console, page: Page) -> None:
    open_with(page, console, "#/topics", {"topics": TOPICS, "topic-sizes": SIZES}, "topic-sizes")
    assert [row[3:5] for row in rows(page, "Topics")] == [["…", "…"]] * 3
    for _ in range(2):
        page.click("[role=columnheader] a", "leader size")
    page.run("document.querySelector('.space a').focus()")
    answer_late(page)
    page.wait_for_text("The leader size counts each record once")
    assert [[row[0], *row[3:5]] for row in rows(page, "Topics")] == [
        ["b", "4.9 KiB", "unknown"],
        ["a", "0 B", "0 B"],
        ["c", "unknown", "unknown"],
    ]
    assert page.run("document.activeElement.closest('.rows').getAttribute('aria-label')") == "Topics"  # and not lost with the row
    page.fill("Filter by name", "")
    assert [row[0] for row in rows(page, "Topics")] == ["b", "a", "c"]
    page.wait_for_text(f"Sizes on broker 4 are unknown: {SHOWN}")
    page.wait_for_text("2 more parts are unknown.")
    assert "on broker 5" not in page.text()
    assert page.run("document.querySelector('img, script:not([src])')") is None


def test_the_page_of_a_topic_has_an_error_in_place_of_a_configuration_that_may_not_be_seen(console: Console, page: Page) -> None:
    topic = {**LINE, "name": "t", "id": "i", "partitions": [], "configs": [], "configs_error": f"topic t: {HOSTILE}"}
    open_with(page, console, "#/topics/t", {"topics/t": topic, "topics/t/groups": None}, "topics/t/groups")
    page.wait_for_text(f"topic t: {SHOWN}")
    assert page.run("document.querySelector('[aria-label=Partitions]') !== null")
    assert page.run("document.querySelector('[aria-label=Configuration]')") is None
    assert "Set another key" not in page.text()


@pytest.mark.parametrize(
    ("place", "label", "answers", "late"),
    [
        ("#/", "Brokers", {"overview": OVERVIEW, "brokers": None}, "brokers"),
        ("#/topics", "Topics", {"topics": TOPICS, "topic-sizes": None}, "topic-sizes"),
    ],
)
def test_the_page_stays_if_no_broker_tells_more(
    console: Console, page: Page, place: str, label: str, answers: Mapping[str, Any], late: str
) -> None:
    open_with(page, console, place, answers, late)
    answer_late(page)
    page.wait_for_text("no broker tells it")
    assert all("unknown" in row and "…" not in row for row in rows(page, label))
    assert len(rows(page, label)) == 3


def test_of_ten_thousand_topics_with_100_000_partitions_those_in_view_are_drawn(page: Page) -> None:
    names = [f"topic-{number:05}" for number in range(10_000)]
    with a_broker_of_topics(names, 10) as broker, a_console(broker.bootstrap) as console:
        page.open(f"{console.address}#/topics")
        page.wait_for_text("topic-00000")
        assert page.run("document.querySelector('.rows').getAttribute('aria-rowcount')") == "10001"
        assert page.run("document.querySelectorAll('.rows .space .row').length") < 60
        page.run("document.querySelector('.rows').scrollTop = 1e9")
        page.wait_for_text("topic-09999")
        assert page.run("document.querySelectorAll('.rows .space .row').length") < 60
        page.run("document.querySelector('.rows').scrollTop = 0")
        assert console.get("overview")["partitions"] == 100_000
        page.wait_for_text("30 B")  # of the topic at place 1, whose leaders have 10

        def is_shared() -> bool:
            count = broker.asked.count(ApiKey.DESCRIBE_LOG_DIRS)
            page.open(f"{console.address}#/topics")
            page.wait_for_text("30 B")
            return broker.asked.count(ApiKey.DESCRIBE_LOG_DIRS) == count

        # The answers that the last page got may have been old.
        eventually(is_shared, 60.0, "two pages with the same answers of the brokers")
        for first in ("topic-00000", "topic-09999"):
            page.click("[role=columnheader] a", "leader size")
            page.wait_for(f"document.querySelector('.space a').textContent === '{first}'")
        assert page.run("[...document.querySelector('.space .row').children].slice(3, 5).map((one) => one.textContent)") == [
            "97.6 KiB",
            "293 KiB",
        ]
