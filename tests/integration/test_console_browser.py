"""The page of `ottla console` in a real Chromium: every page, changes by keyboard and dialogs, hostile names, login.

`make judge` runs it on Apache Kafka, too.
"""

import json
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ottla.console.login.passwords import hashed
from tests.support.chromium import Page, is_installed
from tests.support.command_line import CommandLine
from tests.support.hostile_records import GROUP, HOSTILE, a_broker_of_hostile_records
from tests.support.judged_broker import JudgedBroker, needs_its_broker, only_ottla
from tests.support.many_topics import a_broker_of_topics
from tests.support.running_console import Console, a_console

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_installed, reason="chromium is not installed"),
    *needs_its_broker,
]

SHOWN = '<img src=x onerror="document.title=1">\\u202e\\u0000&amp;'
VALUES = (
    HOSTILE,
    "[" * 1_000_000,
    "[" * 8000 + "]" * 8000,
    '{"large":12345678901234567890}',
    '{"a": [1, {"b": "c: d"}]}',
    "x" * 1_000_000,
)
TITLE = "Ottla console"
SAFE = "!'()*"
"""Characters that encodeURIComponent leaves alone, beside those that quote does."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgedBroker]:
    with a_broker_of_hostile_records(tmp_path_factory.mktemp("console"), VALUES) as running:
        yield running


@pytest.fixture(scope="module")
def console(broker: JudgedBroker) -> Iterator[Console]:
    with a_console(broker.bootstrap) as running:
        yield running


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("", "controller"),
        ("", "3.9-IV0"),
        ("", "disk free"),
        ("#/brokers", "online"),
        ("#/brokers/0", "advertised.listeners"),
        ("#/topics", "__consumer_offsets"),
        ("#/topics", "The leader size counts each record once"),
        ("#/topics/t", "cleanup.policy"),
        ("#/topics/t/records/1", "12345678901234567890"),
        ("#/topics/t/records", SHOWN),
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


def use_dialog(page: Page, button: str, fields: Mapping[str, str], send: str) -> None:
    """Open a dialog, fill its fields by their labels, and send it."""
    page.click("main button", button)
    for label, value in fields.items():
        page.fill(label, value)
    page.click("dialog button", send)


def test_a_topic_is_created_filled_read_and_deleted(console: Console, page: Page, broker: JudgedBroker) -> None:
    page.open(f"{console.address}#/topics")
    use_dialog(page, "Create a topic", {"Name": "made", "Partitions": "2", "Configuration": "retention.ms=1\nretention.ms=2"}, "Create")
    page.wait_for_text("retention.ms is given twice")
    page.fill("Configuration", "retention.ms=1000000")
    page.click("dialog button", "Create")
    page.wait_for_text("Topic made")
    headers = [["h", "2"], ["2", "h"], ["h", "1"], ["__proto__", "x"], ["1", ""]]
    lines = "\n".join("=".join(header) for header in headers)
    use_dialog(page, "Produce a record", {"Partition": "1", "Key": "k", "Value": HOSTILE, "Headers": lines}, "Produce")
    page.wait_for_text("Written to partition 1 at offset 0.")
    page.open(f"{console.address}#/topics/made/records/1")
    page.wait_for_text("1 of 1 records read are shown")
    assert SHOWN in page.text()
    (record,) = console.get("topics/made/records")["records"]
    assert [[each["name"], each["text"]] for each in record["headers"]] == headers
    page.click("button", "Live")
    page.wait_for_text("Waiting for new records")
    for number in range(3):
        CommandLine(broker.bootstrap)("produce", "-p", "1", "made", input=f"live {number}\n")
    page.wait_for_text("3 records so far")
    assert "the last" not in page.run("document.querySelector('.state .note').textContent")  # all are shown
    drawn = "[...document.querySelectorAll('.record .preview')].map((one) => one.textContent)"
    assert page.run(drawn) == ["live 2", "live 1", "live 0"]
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
    use_dialog(page, "Delete the group", {"Type": "<b>group</b>/\\u202e"}, "Delete")  # as it is shown: its marks cannot be typed
    page.wait_for("location.hash === '#/groups'")
    page.wait_for("!document.body.innerText.includes('group</b>')")


@pytest.mark.parametrize(
    ("name", "typed"), [("tab\t, line\n and  blanks", "tab\\u0009, line\\u000a and  blanks"), (".", "."), ("..", "..")]
)
def test_a_name_that_a_field_or_a_path_does_not_take_is_typed_as_it_is_shown(console: Console, page: Page, name: str, typed: str) -> None:
    offset = {"topic": "t", "partition": 0, "before": None, "offset": 0}
    console.change("POST", "group-reset", {"group": name, "offsets": [offset]})
    page.open(f"{console.address}#/groups/{urllib.parse.quote(name)}")
    page.wait_for_text("Classic")
    use_dialog(page, "Delete the group", {"Type": typed}, "Delete")
    page.wait_for("location.hash === '#/groups'")
    assert name not in [each["group"] for each in console.get("groups")["groups"]]


def test_security_is_changed_by_dialogs(console: Console, page: Page) -> None:
    page.open(f"{console.address}#/acls")
    use_dialog(page, "Add an ACL", {"Principal": "User:alice", "Name": "t"}, "Add")
    page.wait_for_text("User:alice")
    use_dialog(page, "Remove", {"Type": "t"}, "Remove")
    page.wait_for("!document.body.innerText.includes('User:alice')")
    page.open(f"{console.address}#/users")
    use_dialog(page, "Add a user", {"Name": "alice", "Password": "secret"}, "Save")
    page.wait_for_text("SCRAM-SHA-512")
    page.open(f"{console.address}#/quotas")
    use_dialog(page, "Set a quota", {"Of:": "user=", "Value": "x"}, "Set")
    page.wait_for_text("Value: x is not a number")
    page.fill("Value", "1000")
    page.click("dialog button", "Set")
    page.wait_for_text("default user")
    use_dialog(page, "Remove", {"Type": "producer_byte_rate"}, "Remove")
    page.wait_for("!document.body.innerText.includes('default user')")


def test_the_page_is_used_by_keyboard_alone(console: Console, page: Page) -> None:
    page.open(f"{console.address}#/topics")
    page.wait_for_text("__consumer_offsets")
    page.press("/")
    page.wait_for("document.activeElement.classList.contains('filter')")
    page.type("t")
    page.wait_for("/^[0-9]+ of [0-9]+$/.test(document.querySelector('form .note').textContent)")
    page.run("document.querySelector('.rows').focus()")
    page.press("End")
    page.press("Enter")
    page.wait_for_text("Topic t")
    page.run("document.querySelector('.skip').focus()")
    page.press("Enter")
    page.wait_for("document.activeElement.id === 'main'")
    assert page.run("[location.hash, document.querySelector('h1').textContent]") == ["#/topics/t", "Topic t"]
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


def focused(page: Page) -> str:
    return str(page.run("document.activeElement.textContent.trim() || document.activeElement.className"))


@pytest.mark.parametrize("key", ["Home", "End"])
def test_the_tab_key_reaches_the_chosen_row_of_a_long_table_and_passes_the_others(console: Console, page: Page, key: str) -> None:
    if "long" not in [each["name"] for each in console.get("topics")["topics"]]:
        console.change("POST", "topics", {"name": "long", "partitions": 60})
    page.open(f"{console.address}#/topics/long")
    page.wait_for_text("Topic long")
    page.wait_for_text("No group reads this topic.")
    page.run("document.querySelector('.rows').focus()")
    page.press(key)
    chosen = "0" if key == "Home" else "59"
    page.wait_for(f"document.querySelector('.rows .current a').textContent === '{chosen}'")
    columns = ["partition", "leader", "replicas", "in sync", "start", "end", "records", "bytes"]
    reached: list[str] = []
    while "filter" not in reached and len(reached) < 30:
        page.press("Tab")
        reached.append(focused(page))
    assert reached == [*columns, chosen, "producers", "filter"]
    page.run("document.querySelector('.rows').scrollTop = 900")  # the focus is elsewhere, and the rows are drawn anew
    page.wait_for("[...document.querySelectorAll('.rows .row a')].some((one) => one.textContent === '40')")
    page.run("[...document.querySelectorAll('.rows .row a')].find((one) => one.textContent === '40').focus()")
    page.press("Tab")
    assert focused(page) == "producers"
    assert page.run("document.querySelector('.rows .current a').textContent") == "40"
    page.press("Enter")
    page.wait_for_text("Producers of long-40")
    page.press("Escape")
    page.wait_for("!document.querySelector('dialog')")
    assert focused(page) == "producers"
    for first in ("0", "59"):  # numbers are sorted as numbers, and the second time the other way
        page.click("[role=columnheader] a", "partition")
        assert page.run("document.querySelector('.rows .space a').textContent") == first


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


@only_ottla
def test_the_chosen_cluster_is_that_of_every_page_and_of_the_live_view(broker: JudgedBroker, page: Page, tmp_path: Path) -> None:
    (tmp_path / "profiles.toml").write_text('[dead]\nbootstrap-server = "127.0.0.1:1"\n')
    variables = {"OTTLA_PROFILES": str(tmp_path / "profiles.toml")}
    with a_console(broker.bootstrap, "--cluster", "dead", variables=variables) as console:
        page.open(f"{console.address}#/topics")
        page.wait_for_text("__consumer_offsets")
        assert page.run("document.title") == f"{broker.bootstrap} – {TITLE}"
        page.run("cluster.value = 'dead'; cluster.dispatchEvent(new Event('change'))")
        page.wait_for_text("no broker can be reached at 127.0.0.1:1")
        assert page.run("[location.search, location.hash]") == ["?cluster=dead", "#/topics"]
        page.click("nav a", "Groups")
        page.wait_for("location.hash === '#/groups'")
        page.wait_for_text("no broker can be reached at 127.0.0.1:1")
        for unknown in ("..", "<img src=x>"):
            page.open(f"{console.address}?cluster={urllib.parse.quote(unknown)}#/topics")
            page.wait_for_text(f"This console has no cluster {unknown}; it has {broker.bootstrap}, dead.")
            page.click("nav a", "Groups")
            page.wait_for_text(f"This console has no cluster {unknown}; it has {broker.bootstrap}, dead.")
        page.open(f"{console.address}?cluster={urllib.parse.quote(broker.bootstrap)}#/topics/t/records/1")
        page.wait_for_text("records read are shown")
        page.click("button", "Live")
        page.wait_for_text("Waiting for new records")
        CommandLine(broker.bootstrap)("produce", "-p", "1", "t", input="of the chosen cluster\n")
        page.wait_for_text("of the chosen cluster")
        page.open(f"{console.address}?cluster={urllib.parse.quote(broker.bootstrap)}#/topics/t")
        page.click("button", "Delete the topic")
        page.wait_for_text(f"Cluster {broker.bootstrap}")


@only_ottla
def test_a_page_is_used_again_after_its_console_was_restarted(broker: JudgedBroker, page: Page) -> None:
    with a_console(broker.bootstrap) as console:
        page.open(f"{console.address}#/topics")
        page.wait_for_text("__consumer_offsets")
    with a_console(broker.bootstrap, "--listen", console.address.removeprefix("http://").rstrip("/")):
        use_dialog(page, "Create a topic", {"Name": "again"}, "Create")
        page.wait_for_text("the X-CSRF-Token header is not that of this session; reload the page")
        page.click("dialog button", "Cancel")
        page.click("header button", "Reload")
        page.wait_for("!document.querySelector('main[aria-busy]')")
        use_dialog(page, "Create a topic", {"Name": "again"}, "Create")
        page.wait_for_text("Topic again")


@only_ottla
def test_a_page_behind_a_proxy_that_names_no_user_asks_for_no_password(broker: JudgedBroker, page: Page, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a secret of the proxy\n")
    with a_console(broker.bootstrap, "--user-header", "X-User", "--proxy-secret", str(tmp_path / "secret")) as console:
        for path in ("", "#/topics"):
            page.open(console.address + path)
            page.wait_for_text("the proxy does not name a user, or does not send its secret")
            assert page.run("document.getElementById('login-user')") is None


ANSWER = {
    "partitions": [{"partition": 1, "start": 0, "end": 1, "next": 1}],
    "records": [
        {
            "partition": 1, "offset": 0, "timestamp": 0, "header_count": 3,
            "key": {"form": "null", "text": None, "bytes": 0}, "value": {"form": "text", "text": "v", "bytes": 1},
            "headers": [{"name": "h", "form": "text", "text": "x", "bytes": 1}],
        }
    ],
    "scanned": {"records": 1, "bytes": 2}, "stopped_by": None,
    "missing": [{"partition": number, "error": f"t-{number}: \u202e no leader"} for number in range(12)],
}  # fmt: skip


def test_records_that_cannot_be_shown_are_named(console: Console, page: Page) -> None:
    page.open(f"{console.address}#/topics/t/records")
    page.wait_for_text("records read are shown")
    page.run(f"window.fetch = () => Promise.resolve(Response.json({json.dumps(ANSWER)}))")
    page.click("button", "Search")
    page.wait_for_text("Not shown: the records of partition 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more. t-0: \\u202e no leader")
    page.run("document.querySelector('.record summary').click()")
    page.wait_for_text("2 more headers are in the export.")


def test_escape_ends_a_search_wherever_the_focus_is(console: Console, page: Page) -> None:
    page.open(f"{console.address}#/topics/t/records")
    page.wait_for_text("records read are shown")
    page.run("window.fetch = (_, { signal }) => new Promise((_, refuse) => { signal.onabort = () => refuse(signal.reason); })")
    page.click("button", "Search")
    page.wait_for_text("Reading")
    page.run("document.activeElement.blur()")
    page.press("Escape")
    page.wait_for_text("Cancelled.")


def test_a_live_view_that_is_refused_or_interrupted_says_so(console: Console, page: Page) -> None:
    page.open(f"{console.address}#/topics/t/records")
    page.wait_for_text("records read are shown")
    page.fill("From offset", "x")
    page.click("button", "Live")
    page.wait_for_text("offset is not a number")
    refused = "Response.json({ error: 'there are 16 searches already' }, { status: 503 })"
    interrupted = "new Response('event: records\\ndata: {\"records\":[]}\\n\\nevent: rec')"
    for answer, shown in ((refused, "there are 16 searches already"), (interrupted, "The live view was interrupted; start it again.")):
        page.run(f"window.fetch = () => Promise.resolve({answer})")
        page.click("button", "Live")
        page.wait_for_text(shown)


def test_a_dialog_ends_with_its_page_and_the_focus_stays_in_the_page(console: Console, page: Page) -> None:
    def open_page(place: str, heading: str) -> None:
        page.run(f"location.hash = '{place}'")
        page.wait_for(f"document.querySelector('h1')?.textContent === '{heading}' && !document.querySelector('main[aria-busy]')")

    page.open(console.address)
    page.wait_for_text("controller")
    open_page("#/topics/t", "Topic t")
    page.click("button", "Delete the topic")
    open_page("#/groups", "Groups")
    page.wait_for("!document.querySelector('dialog')")
    open_page("#/topics/t", "Topic t")
    page.run("[...document.querySelectorAll('button')].find((one) => one.textContent === 'Elect preferred leaders').focus()")
    use_dialog(page, "Elect preferred leaders", {}, "Elect")
    page.wait_for_text("0 leaders were elected.")
    page.wait_for("!document.querySelector('main[aria-busy]')")
    assert page.run("document.activeElement.textContent") == "Elect preferred leaders"
    page.click("button", "Add partitions")
    page.run("document.getElementById('main').replaceChildren()")  # the button is gone that would get the focus back
    page.click("dialog button", "Cancel")
    page.wait_for("document.activeElement.id === 'main'")


def test_a_name_with_line_breaks_is_one_line_that_differs_from_the_name_with_blanks(
    console: Console, page: Page, broker: JudgedBroker
) -> None:
    name = "two\n\tlines"
    CommandLine(broker.bootstrap)("consume", "-G", name, "-e", "-c", "1", "t")
    page.open(f"{console.address}#/groups")
    page.wait_for_text("two\\u000a\\u0009lines")
    page.click(".row a", "two\\u000a\\u0009lines")
    page.wait_for("document.querySelector('h1')?.textContent === 'Group two\\\\u000a\\\\u0009lines'")


def test_records_are_saved_as_json_and_as_csv(console: Console, page: Page) -> None:
    page.open(f"{console.address}#/topics/t/records/1")
    page.wait_for_text("records read are shown")
    page.run("window.saved = []; HTMLAnchorElement.prototype.click = function () { window.saved.push(this.href); }")
    page.fill("From offset", "4")
    page.click("button", "Export as JSON")
    page.click("button", "Export as CSV")
    as_json, as_csv = page.run("Promise.all(window.saved.map((href) => fetch(href).then((answer) => answer.text())))")
    assert json.loads(as_json.splitlines()[0])["value"] == VALUES[4]
    assert as_csv.startswith('"topic","partition","offset",')
    assert '"{""a"": [1, {""b"": ""c: d""}]}"' in as_csv


def test_the_page_of_a_topic_shows_the_groups_that_read_it(console: Console, page: Page, broker: JudgedBroker) -> None:
    line = CommandLine(broker.bootstrap)
    line("topics", "create", "read", "-p", "1")
    page.open(f"{console.address}#/topics/read")
    page.wait_for_text("No group reads this topic.")
    line("produce", "read", input="1\n2\n3\n")
    line("consume", "-G", GROUP, "-e", "-c", "1", "read")
    page.press("r")
    page.wait_for_text("<b>group</b>/\\u202e")
    cells = (
        "[...document.querySelectorAll('[aria-label=Groups] .space .row')].map((row) => [...row.children].map((one) => one.textContent))"
    )
    assert page.run(cells) == [["<b>group</b>/\\u202e", "Empty", "0", "1", "2"]]


def test_a_configuration_has_the_source_and_the_default_of_each_value(console: Console, page: Page) -> None:
    page.open(f"{console.address}#/topics/t")
    page.wait_for("document.querySelector('h1')?.textContent === 'Topic t'")
    page.fill("Filter by name", "cleanup.policy")
    row = "document.querySelector('[aria-label=Configuration] .space .row').children"
    assert page.run(f"[...{row}].slice(0, 4).map((one) => one.textContent)") == ["cleanup.policy", "delete", "DEFAULT_CONFIG", "delete"]
    # For a screen reader: the head and the row that the filter left.
    assert page.run("document.querySelector('[aria-label=Configuration]').getAttribute('aria-rowcount')") == "2"


@only_ottla
def test_hostile_names_of_topics_are_text(page: Page) -> None:
    names = [HOSTILE, "..", "a/b", "\u202e\u2066", "=cmd", "x" * 30_000]
    with a_broker_of_topics(names, 1) as broker, a_console(broker.bootstrap) as console:
        page.open(f"{console.address}#/topics")
        page.wait_for_text(SHOWN)
        for name in names:
            place = f"#/topics/{urllib.parse.quote(name, safe=SAFE)}"
            page.wait_for(f"[...document.querySelectorAll('.space a')].some((one) => one.hash === {json.dumps(place)})")
            page.open(console.address + place)
            page.wait_for("document.querySelector('main [role=alert]') && !document.querySelector('main[aria-busy]')")
            assert page.run("document.querySelector('img, script:not([src])')") is None
            assert page.run("document.title") == TITLE
            page.open(f"{console.address}#/topics")
            page.wait_for_text(SHOWN)
