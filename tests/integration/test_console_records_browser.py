"""The records of a topic in Chromium: one line each, newest first, older and newer ones, opened, as a file; and the charts beside."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.chromium import Page, is_installed
from tests.support.command_line import CommandLine
from tests.support.running_console import Console, a_console

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not is_installed, reason="chromium is not installed")]

COUNT = 120
VALUE = (
    '{"n" :\t1.50,"large":12345678901234567890,"twice":1,"twice":2,"e":[],"o":{ },"s":"a: {b}, \\u00e9 \\"q\\"","deep":[[1],[{"x":null}]]}'
)
INDENTED = """{
  "n": 1.50,
  "large": 12345678901234567890,
  "twice": 1,
  "twice": 2,
  "e": [],
  "o": {},
  "s": "a: {b}, \\u00e9 \\"q\\"",
  "deep": [
    [
      1
    ],
    [
      {
        "x": null
      }
    ]
  ]
}"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("broker")) as running:
        line = CommandLine(running.bootstrap)
        for name, partitions in (("one", "1"), ("three", "3"), ("json", "1")):
            line("topics", "create", name, "-p", partitions)
        for name in ("one", "three"):
            line("produce", name, input="".join(f"{name} {number}\n" for number in range(COUNT)))
        for value in (VALUE, "x" * 100_000):
            line("produce", "-J", "json", input=json.dumps({"value": value}))
        yield running


@pytest.fixture(scope="module")
def console(broker: BrokerProcess) -> Iterator[Console]:
    with a_console(broker.bootstrap) as running:
        yield running


def previews(page: Page) -> list[str]:
    found = page.run("[...document.querySelectorAll('.record .preview')].map((one) => one.textContent)")
    assert isinstance(found, list)
    return found


def turn(page: Page, button: str) -> list[str]:
    """The records after a click on Older or Newer."""
    before = previews(page)
    page.click(".turns button", button)
    page.wait_for(f"document.querySelector('.record .preview')?.textContent !== {json.dumps(before[0])}")
    page.wait_for_text("records read are shown")
    return previews(page)


def test_the_newest_record_is_first_and_older_and_newer_ones_follow(console: Console, page: Page) -> None:
    page.open(f"{console.address}#/topics/one/records")
    page.wait_for_text("50 of 50 records read are shown")
    newest = [f"one {number}" for number in reversed(range(COUNT))]
    assert previews(page) == newest[:50]
    assert turn(page, "Older") == newest[50:100]
    assert turn(page, "Older") == newest[100:]
    assert page.run("[...document.querySelectorAll('.turns button')].map((one) => one.disabled)") == [False, True] * 1
    assert turn(page, "Newer") == newest[50:100]
    assert turn(page, "Newer") == newest[:50]
    page.fill("From offset", "5")
    page.click("form button", "Search")
    page.wait_for("document.querySelector('.record .preview').textContent === 'one 5'")
    assert turn(page, "Newer") == [f"one {number}" for number in range(55, 105)]
    assert turn(page, "Older") == [f"one {number}" for number in range(5, 55)]


def test_older_records_of_several_partitions_are_each_shown_once(console: Console) -> None:
    found: list[str] = []
    place = ""
    for _ in range(10):
        answer = console.get(f"topics/three/records?limit=25{place}")
        found += [record["value"]["text"] for record in reversed(answer["records"])]
        if all(each["older"] is None for each in answer["partitions"]):
            break
        ends = ",".join(f"{each['partition']}:{each['start'] if each['older'] is None else each['older']}" for each in answer["partitions"])
        place = f"&ends={ends}"
    assert sorted(found) == sorted(f"three {number}" for number in range(COUNT))
    for bad in ("x", "0", "0:", "0:-1", "a:1"):
        assert "ends is" in console.get(f"topics/three/records?ends={bad}", 400)["error"]


def test_json_of_any_spacing_is_indented_and_keeps_its_numbers(console: Console, page: Page) -> None:
    page.open(f"{console.address}#/topics/json/records")
    page.wait_for_text("2 of 2 records read are shown")
    page.run("[...document.querySelectorAll('.record summary')].at(-1).click()")
    page.wait_for("document.querySelector('.opened pre')")
    assert page.run("document.querySelector('.opened pre').textContent") == INDENTED


def test_a_large_value_is_downloaded_whole(console: Console, page: Page) -> None:
    page.open(f"{console.address}#/topics/json/records/0")
    page.wait_for_text("Records of json-0")
    page.wait_for("document.querySelectorAll('.record').length === 2")
    page.run("document.querySelector('.record summary').click()")
    page.wait_for_text("The first 16.0 KiB are shown; the download has all.")
    address = page.run("[...document.querySelectorAll('.opened a[download]')].at(-1).getAttribute('href')")
    with console.open("GET", str(address).removeprefix("/api/v1/")) as answer:
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"] == 'attachment; filename="json-0-1.value"'
        assert answer.read() == b"x" * 100_000
    assert "RESOURCE_NOT_FOUND" in console.get("topics/json/whole?partition=0&offset=2", 404)["error"]
    for bad in ("", "?partition=0", "?offset=0", "?partition=0&offset=0&part=headers", "?partition=0,1&offset=0"):
        assert "whole needs one partition" in console.get(f"topics/json/whole{bad}", 400)["error"]


def test_charts_have_the_samples_that_were_taken_before_the_page_was_opened(console: Console, page: Page, broker: BrokerProcess) -> None:
    line = CommandLine(broker.bootstrap)

    def has_samples() -> bool:
        line("produce", "one", input="more\n" * 50)
        found = console.get("history?topic=one")["series"]["records"]
        return sum(each is not None and each > 0 for each in found) >= 3

    eventually(has_samples, what="three samples with records")
    page.open(console.address)
    page.wait_for("document.querySelectorAll('.plot canvas').length === 2")
    assert page.run("document.querySelector('.plot').getAttribute('aria-label')").startswith("Records written per second: now ")


def test_the_configuration_of_a_broker_that_has_generated_its_id_has_that_id(console: Console) -> None:
    (broker_id,) = [each["id"] for each in console.get("brokers")["brokers"]]
    values = {each["name"]: each["value"] for each in console.get(f"brokers/{broker_id}/configs")["configs"]}
    assert values["broker.id"] == str(broker_id) != "-1"
