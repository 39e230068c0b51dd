"""Each page of the console in Chromium: no violation of accessibility, light and dark, and nothing that is cut off in narrow windows."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.acl_requests import ANONYMOUS, AUTHORIZER
from tests.support.axe import axe_source, violations
from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.chromium import Page, is_installed
from tests.support.command_line import CommandLine
from tests.support.running_console import Console, a_console

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.skipif(not is_installed, reason="chromium is not installed")]

LONG = "a-name-that-is-as-long-as-a-name-may-be-" * 6
NAMES = ("orders", LONG)
PAGES = {
    "": "online",
    "#/brokers": "online",
    "#/brokers/0": "advertised.listeners",
    "#/topics": "The leader size counts each record once",
    "#/topics/orders": "readers",
    "#/topics/orders/records": "records read are shown",
    "#/groups": "readers",
    "#/groups/readers": "Offsets",
    "#/groups/readers/reset": "Preview",
    "#/reassignments": "No partition is being moved.",
    "#/transactions": "Hanging transactions",
    "#/acls": "User:alice",
    "#/users": "SCRAM-SHA-512",
    "#/quotas": "producer_byte_rate",
    "#/findings": "Examined at",
}
"""A text of each page that is there, at any width, when the page is complete."""
WIDTHS = (390, 900, 1440)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("broker")
    with a_broker(directory, broker_id=0, authorizer_class_name=AUTHORIZER, super_users=ANONYMOUS) as running:
        line = CommandLine(running.bootstrap)
        for name in NAMES:
            line("topics", "create", name, "-p", "3")
        value = json.dumps({"a": [1, {"b": "x" * 2000}]})
        line("produce", "-J", "orders", input="".join(json.dumps({"key": LONG, "value": value}) + "\n" for _ in range(30)))
        line("consume", "-G", "readers", "-e", "-c", "10", "orders")
        with a_console(running.bootstrap) as console:
            console.change("PUT", f"users/{LONG[:60]}", {"password": "alice-secret", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]})
            console.change("PATCH", "quotas", {"entity": {"user": "alice"}, "set": {"producer_byte_rate": 1}})
            rule = {"principal": "User:alice", "permission_type": "DENY", "operation": "READ", "resource_type": "TOPIC", "name": LONG}
            console.change("POST", "acls", {**rule, "pattern_type": "LITERAL", "host": "*"})
        yield running


@pytest.fixture(scope="module")
def console(broker: BrokerProcess) -> Iterator[Console]:
    with a_console(broker.bootstrap) as running:
        yield running


def open_page(page: Page, console: Console, path: str) -> None:
    page.open(console.address + path)
    page.wait_for_text(PAGES[path])
    page.wait_for("!document.querySelector('main[aria-busy]') && !/Asking the|Examining|Reading…/.test(document.body.innerText)")


@pytest.fixture(scope="module")
def axe() -> str:
    return axe_source()


@pytest.mark.parametrize("path", PAGES)
def test_no_page_has_a_violation_of_accessibility(console: Console, page: Page, axe: str, path: str) -> None:
    page.size(1440, 900)
    for scheme in ("light", "dark"):
        page.colours(scheme)
        open_page(page, console, path)
        assert violations(page, axe) == [], scheme
    page.size(390, 844)
    page.run("document.getElementById('menu').click()")
    page.wait_for("document.querySelector('.pages.open')")
    assert violations(page, axe) == []


def test_dialogs_and_opened_records_have_no_violation_of_accessibility(console: Console, page: Page, axe: str) -> None:
    page.size(1440, 900)
    for scheme in ("light", "dark"):
        page.colours(scheme)
        open_page(page, console, "#/topics/orders/records")
        page.run("document.querySelector('.record summary').click()")
        page.run("document.querySelector('.search summary').click()")
        page.wait_for_text("Download")
        assert violations(page, axe) == []
        page.click("main button", "Produce a record")
        page.wait_for("document.querySelector('dialog[open]')")
        assert violations(page, axe) == []
        page.press("Escape")
        open_page(page, console, "#/topics/orders")
        page.click("button", "Delete the topic")
        page.wait_for("document.querySelector('dialog[open]')")
        assert violations(page, axe) == []
        page.press("Escape")


NAMED = "`${one.className || one.tagName}: ${one.textContent.slice(0, 80)}`"
CUT_OFF = f"""[...document.querySelectorAll('body, main, .rows, .row > *, .actions, .bar, h1, h2, p, dd, .badge, .health')]
    .filter((one) => one.offsetParent !== null && !one.closest('.charts'))
    .filter((one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display !== 'inline').map((one) => {NAMED})"""
OUTSIDE = f"""[...document.querySelectorAll('main *')].filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
    .filter((one) => !one.closest('.charts, .record summary, .hidden')).map((one) => {NAMED})"""
BROKEN = f"""[...document.querySelectorAll('.badge, .row:not(.head) > .number')].filter((one) => {{
    const range = document.createRange();
    const words = [...one.childNodes].filter((part) => part.nodeType === Node.TEXT_NODE);
    return words.some((word) => {{
        range.selectNodeContents(word);
        return range.getClientRects().length > 1;
    }});
}}).map((one) => {NAMED})"""
"""Words and numbers that go on in a second line."""
UNNAMED = """[...document.querySelectorAll('.cards [role=cell]')]
    .filter((one) => one.dataset.name && !one.matches(':first-child:not(.id)'))
    .filter((one) => !getComputedStyle(one, '::before').content.includes(one.dataset.name)).map((one) => one.dataset.name)"""
"""The values on cards, which have no head, without the name of their column. The first is the title of its card."""

WRAPPED = """[...document.querySelectorAll('[role=columnheader] a')]
    .filter((one) => one.getClientRects().length > 1).map((one) => one.innerText)"""
"""The headings of columns that take two lines."""
GLUED = """[...document.querySelectorAll('.row:not(.head) > .number + .text')].map((one) => {
    const [left, right] = [one.previousElementSibling, one].map((cell) => {
        const range = document.createRange();
        range.selectNodeContents(cell);
        return range.getBoundingClientRect();
    });
    return right.left - left.right;
}).filter((gap) => gap < 30)"""
"""The gaps after numbers that are too small to be seen as those between columns, pixels."""


@pytest.mark.parametrize("path", ["", "#/topics", "#/topics/orders", "#/groups"])
def test_a_wide_window_has_headings_of_one_line_and_gaps_after_numbers(console: Console, page: Page, path: str) -> None:
    page.size(1440, 900)
    open_page(page, console, path)
    assert page.run("document.querySelector('.rows .number') !== null")
    assert page.run(WRAPPED) == []
    assert page.run(GLUED) == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("path", PAGES)
def test_nothing_is_cut_off_at_any_width(console: Console, page: Page, path: str, width: int) -> None:
    page.size(width, 844)
    open_page(page, console, path)
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run(CUT_OFF) == []
    assert page.run(OUTSIDE) == []
    assert page.run(BROKEN) == []
    assert page.run(UNNAMED) == []


@pytest.mark.parametrize("path", ["", "#/brokers"])
def test_cards_name_the_values_of_a_log_directory(console: Console, page: Page, path: str) -> None:
    page.size(390, 844)
    open_page(page, console, path)
    cells = """[...document.querySelectorAll('.cards[aria-label="Log directories"] [role=cell]')]"""
    shown = page.run(f"{cells}.map((one) => getComputedStyle(one, '::before').content)")
    assert [name for name in ("broker", "replicas", "disk free", "state") if not any(name in each for each in shown)] == []
