"""The page of `ottla console` in a real Chromium: every page, changes by keyboard and dialogs, hostile names, login.

`make judge` runs it on Apache Kafka, too.
"""

import json
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.cli.console.passwords import hashed
from tests.support.acl_requests import ANONYMOUS, AUTHORIZER
from tests.support.chromium import Page, a_page, is_installed
from tests.support.command_line import CommandLine
from tests.support.judged_broker import JudgedBroker, a_judged_broker, needs_its_broker, only_ottla
from tests.support.running_console import Console, a_console

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_installed, reason="chromium is not installed"),
    *needs_its_broker,
]

HOSTILE = '<img src=x onerror="document.title=1">\u202e\x00&amp;'
SHOWN = '<img src=x onerror="document.title=1">\\u202e\\u0000&amp;'
VALUES = (
    HOSTILE,
    "[" * 200_000,
    "[" * 8000 + "]" * 8000,
    '{"large":12345678901234567890}',
    '{"a": [1, {"b": "c: d"}]}',
    "x" * 1_000_000,
)
GROUP = "<b>group</b>/\u202e"
TITLE = "Ottla console"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgedBroker]:
    access = {"authorizer_class_name": AUTHORIZER, "super_users": ANONYMOUS}
    with a_judged_broker(tmp_path_factory.mktemp("console"), **access) as running:
        line = CommandLine(running.bootstrap)
        line("topics", "create", "t", "-p", "2")
        lines = "\n".join(json.dumps({"key": HOSTILE, "value": value, "headers": [[HOSTILE, "x"]]}) for value in VALUES)
        line("produce", "-J", "-p", "1", "t", input=lines)
        line("consume", "-G", GROUP, "-e", "-c", "2", "t")
        yield running


@pytest.fixture(scope="module")
def console(broker: JudgedBroker) -> Iterator[Console]:
    with a_console(broker.bootstrap) as running:
        yield running


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with a_page(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("", "controller"),
        ("#/brokers", "online"),
        ("#/brokers/0", "advertised.listeners"),
        ("#/topics", "__consumer_offsets"),
        ("#/topics/t", "cleanup.policy"),
        ("#/topics/t/records/1", "12345678901234567890"),
        ("#/topics/t/records", SHOWN),
        ("#/topics/t/records", '"b": "c: d"\n'),
        ("#/groups", "<b>group</b>/\\u202e"),
        (f"#/groups/{urllib.parse.quote(GROUP, safe='')}", "Offsets"),
        (f"#/groups/{urllib.parse.quote(GROUP, safe='')}/reset", "Preview"),
        ("#/reassignments", "No partition is being moved."),
        ("#/transactions", "Find hanging transactions"),
        ("#/acls", "Add an ACL"),
        ("#/acls/TOPIC/t", "ACLs of TOPIC t"),
        ("#/users", "Add a user"),
        ("#/quotas", "Set a quota"),
        ("#/findings", "Findings"),
        ("#/topics/%3Cimg%3E", "INVALID_TOPIC_EXCEPTION"),
        ("#/__proto__", "There is no page __proto__."),
        ("#/constructor/x", "There is no page constructor."),
    ],
)
def test_every_page_shows_its_content_as_text(console: Console, page: Page, path: str, shown: str) -> None:
    page.open(console.address + path)
    page.wait_for_text(shown)
    assert page.run("document.querySelector('img, script:not([src])')") is None
    assert page.run("document.title") == TITLE


def test_a_topic_is_created_filled_read_and_deleted(console: Console, page: Page, broker: JudgedBroker) -> None:
    page.open(f"{console.address}#/topics")
    page.click("button", "Create a topic")
    page.fill("Name", "made")
    page.fill("Partitions", "2")
    page.fill("Configuration", "retention.ms=1000000")
    page.click("dialog button", "Create")
    page.wait_for_text("Topic made")
    page.click("button", "Produce a record")
    page.fill("Partition", "1")
    page.fill("Key", "k")
    page.fill("Value", HOSTILE)
    page.click("dialog button", "Produce")
    page.wait_for_text("Written to partition 1 at offset 0.")
    page.open(f"{console.address}#/topics/made/records/1")
    page.wait_for_text("1 of 1 records read are shown")
    assert SHOWN in page.text()
    page.click("button", "Live")
    page.wait_for_text("Waiting for new records")
    for number in range(3):
        CommandLine(broker.bootstrap)("produce", "-p", "1", "made", input=f"live {number}\n")
    page.wait_for_text("3 records so far")
    assert [page.run(f"document.querySelectorAll('.records pre')[{at}].textContent") for at in range(3)] == ["live 2", "live 1", "live 0"]
    page.click("button", "Cancel")
    page.wait_for_text("Cancelled.")
    page.open(f"{console.address}#/topics/made")
    page.click("button", "Delete the topic")
    page.fill("Type", "mad")
    assert page.run("document.querySelector('dialog button').disabled")
    page.fill("Type", "made")
    page.click("dialog button", "Delete")
    page.wait_for("location.hash === '#/topics'")
    assert "made" not in [each["name"] for each in console.get("topics")["topics"]]


def test_offsets_are_reset_after_a_preview_and_a_hostile_group_is_deleted(console: Console, page: Page) -> None:
    quoted = urllib.parse.quote(GROUP, safe="")
    page.open(f"{console.address}#/groups/{quoted}/reset")
    page.fill("Reset", "latest")
    page.click("button", "Preview")
    page.wait_for_text("Nothing is changed yet.")
    page.click("button", "Apply these offsets")
    page.wait_for_text("offsets of 2 partitions were reset.")
    assert {each["lag"] for each in console.get(f"groups/{quoted}")["partitions"]} == {0}
    page.open(f"{console.address}#/groups/{quoted}")
    page.click("button", "Delete the group")
    page.fill("Type", "<b>group</b>/\\u202e")  # as it is shown: its marks cannot be typed
    page.click("dialog button", "Delete")
    page.wait_for("location.hash === '#/groups'")
    page.wait_for("!document.body.innerText.includes('group</b>')")


def test_security_is_changed_by_dialogs(console: Console, page: Page) -> None:
    page.open(f"{console.address}#/acls")
    page.click("button", "Add an ACL")
    page.fill("Principal", "User:alice")
    page.fill("Name", "t")
    page.click("dialog button", "Add")
    page.wait_for_text("User:alice")
    page.click(".row button", "Remove")
    page.fill("Type", "t")
    page.click("dialog button", "Remove")
    page.wait_for("!document.body.innerText.includes('User:alice')")
    page.open(f"{console.address}#/users")
    page.click("button", "Add a user")
    page.fill("Name", "alice")
    page.fill("Password", "secret")
    page.click("dialog button", "Save")
    page.wait_for_text("SCRAM-SHA-512")
    page.open(f"{console.address}#/quotas")
    page.click("button", "Set a quota")
    page.fill("Of:", "user=")
    page.fill("Value", "x")
    page.click("dialog button", "Set")
    page.wait_for_text("Value: x is not a number")
    page.fill("Value", "1000")
    page.click("dialog button", "Set")
    page.wait_for_text("default user")


def test_the_page_is_used_by_keyboard_alone(console: Console, page: Page) -> None:
    page.open(f"{console.address}#/topics")
    page.wait_for_text("__consumer_offsets")
    page.press("/")
    page.wait_for("document.activeElement.classList.contains('filter')")
    page.type("t")
    page.wait_for_text(" of ")
    page.run("document.querySelector('.rows').focus()")
    page.press("End")
    page.press("Enter")
    page.wait_for_text("Topic t")
    page.run("document.querySelector('.skip').focus()")
    reached = set()
    for _ in range(60):
        page.press("Tab")
        reached.add(page.run("document.activeElement.textContent.trim() || document.activeElement.className"))
    assert {"Groups", "Reload", "Records", "Produce a record", "Delete the topic", "filter"} <= reached
    page.run("[...document.querySelectorAll('button')].find((one) => one.textContent === 'Add partitions').focus()")
    page.press("Enter")
    page.wait_for("document.querySelector('dialog[open]')")
    page.press("Escape")
    page.wait_for("!document.querySelector('dialog')")
    assert page.run("document.activeElement.textContent") == "Add partitions"


def test_colours_follow_the_browser_or_the_choice(console: Console, page: Page) -> None:
    page.open(console.address)
    page.wait_for_text("controller")
    shades = []
    for scheme in ("light", "dark"):
        page.colours(scheme)
        shades.append(page.run("getComputedStyle(document.querySelector('nav a')).color"))
    assert len(set(shades)) == 2
    page.run("theme.value = 'light'; theme.dispatchEvent(new Event('change'))")
    assert page.run("getComputedStyle(document.querySelector('nav a')).color") == shades[0]
    page.run("theme.value = 'system'; theme.dispatchEvent(new Event('change'))")


@only_ottla
def test_the_page_asks_for_a_login_and_a_read_only_one_has_no_buttons(broker: JudgedBroker, page: Page, tmp_path: Path) -> None:
    (tmp_path / "users").write_text(f"alice:{hashed('secret')}\n")
    with a_console(broker.bootstrap, "--passwords", str(tmp_path / "users"), "--read-only") as console:
        page.open(f"{console.address}#/topics/t")
        page.fill("User", "alice")
        page.fill("Password", "wrong")
        page.click("button", "Log in")
        page.wait_for_text("wrong user or password")
        page.fill("Password", "secret")
        page.click("main button", "Log in")
        page.wait_for_text("cleanup.policy")
        assert page.run("document.cookie") == ""
        assert page.run("document.querySelectorAll('main button').length") == 0
        page.wait_for_text("read-only")
        page.click("header button", "Log out")
        page.wait_for_text("Password")
        page.open(f"{console.address}#/overview")
        page.wait_for("document.getElementById('login-user')")
