"""Takes screenshots of the console in each state that a user sees, at three widths, light and dark.

`python -m tests.support.console_screenshots DIRECTORY [STATE...]` writes them all, or those of some states. All states are of real
brokers. Needs chromium.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from ottla.client.cluster import Cluster as Client
from ottla.client.topic_admin import NewTopic, create_topics
from ottla.console.login.passwords import hashed
from tests.support.broker_process import a_broker, eventually
from tests.support.chromium import Page, a_page
from tests.support.cluster import Cluster, a_cluster
from tests.support.command_line import CommandLine
from tests.support.running_console import Console, a_console
from tests.support.share_clients import Librdkafka, begin_group
from tests.support.share_members import produce
from tests.support.tiered_directory import a_tiered_topic
from tests.support.wire_client import a_wire_client

WIDTHS = {390: 844, 900: 900, 1440: 900}
"""The height of the window by its width, pixels."""
SCHEMES = ("light", "dark")
MOST_HEIGHT = 3000
"""Height of a screenshot, pixels; a page that is longer is cut off."""
ORDERS = 40
TOPICS = 1000
SETTINGS = {
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:ANONYMOUS",
    "offsets_topic_replication_factor": 3,
    "default_replication_factor": 3,
    "min_insync_replicas": 2,
}
QUIET_SECONDS = 60.0
"""Time in which a cluster gets samples for its charts, seconds."""


class State(NamedTuple):
    """A page of a console, and the steps there before its screenshot."""

    name: str
    path: str
    shown: str
    """A text that is there when the page is complete."""
    prepare: Callable[[Page], None] = lambda _: None
    widths: Sequence[int] = tuple(WIDTHS)


def _open_record(page: Page) -> None:
    page.run("document.querySelector('.record summary').click()")
    page.wait_for_text("headers")


def _preview_reset(page: Page) -> None:
    page.fill("Reset", "earliest")
    page.click("main button", "Preview")
    page.wait_for_text("will be")


def _open_menu(page: Page) -> None:
    page.run("document.getElementById('menu').click()")


def _open_dialog(page: Page) -> None:
    page.click("main button", "Create a topic")
    page.wait_for("document.querySelector('dialog[open]')")


OF_THE_CLUSTER = (
    State("overview", "", "disk free"),
    State("overview-menu", "", "disk free", _open_menu, (390,)),
    State("brokers", "#/brokers", "disk free"),
    State("topics", "#/topics", "The leader size counts each record once"),
    State("create-topic", "#/topics", "The leader size counts each record once", _open_dialog),
    State("topic", "#/topics/orders", "billing"),
    State("records", "#/topics/orders/records", "records read are shown"),
    State("record", "#/topics/orders/records", "records read are shown", _open_record),
    State("groups", "#/groups", "billing"),
    State("group", "#/groups/billing", "Offsets"),
    State("reset", "#/groups/billing/reset", "Preview", _preview_reset),
    State("configs", "#/brokers/0", "advertised.listeners"),
    State("acls", "#/acls", "User:alice"),
    State("users", "#/users", "SCRAM-SHA-512"),
    State("quotas", "#/quotas", "producer_byte_rate"),
    State("reassignments", "#/reassignments", "No partition is being moved."),
    State("transactions", "#/transactions", "Hanging transactions"),
    State("findings", "#/findings", "Examined at"),
)
OF_A_DEAD_BROKER = (
    State("dead-broker", "", "disk free"),
    State("dead-broker-topics", "#/topics", "The leader size"),
    State("dead-broker-findings", "#/findings", "Examined at"),
    State("dead-broker-records", "#/topics/alone/records", "Not shown"),
)
OF_NO_TOPICS = (
    State("no-topics", "#/topics", "has no topics"),
    State("no-groups", "#/groups", "has no groups"),
    State("new-overview", "", "online"),
)
OF_MANY_TOPICS = (State("many-topics", "#/topics", "The leader size counts each record once"),)
OF_SHARES = (State("share-group", "#/groups/shared", "Offsets"),)
OF_A_TIERED_TOPIC = (State("tiered-topic", "#/topics/events", "remote size"),)
OF_A_LOGIN = (State("login", "", "Password"),)


def take(page: Page, console: Console, states: Sequence[State], directory: Path, wanted: Sequence[str]) -> None:
    """Write the screenshots of the wanted states; of all without any."""
    for state in states:
        if wanted and state.name not in wanted:
            continue
        for width in state.widths:
            for scheme in SCHEMES:
                page.size(width, WIDTHS[width])
                page.colours(scheme)
                page.open(console.address + state.path)
                page.wait_for_text(state.shown)
                state.prepare(page)
                page.wait_for("!document.querySelector('main[aria-busy]')")
                page.wait_for("!/Asking the|Examining|Reading…/.test(document.body.innerText)")
                page.wait_for("![...document.querySelectorAll('.row > *, dd')].some((one) => one.textContent === '…')")
                page.wait_for("document.getAnimations().every((one) => one.playState !== 'running')")
                height = page.run("Math.max(innerHeight, document.documentElement.scrollHeight)")
                page.size(width, min(height, MOST_HEIGHT))
                page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
                page.screenshot(directory / f"{state.name}-{width}-{scheme}.png")


def _order(number: int) -> dict[str, object]:
    """A record, as `ottla produce --json` takes it."""
    items = [{"sku": "A-17", "count": 1 + number % 3, "price": 12.50}]
    value = {"order": 100_000 + number, "customer": f"customer-{number % 7}", "items": items, "note": "Grüße · עברית"}
    headers = [["trace", f"{number:08x}"], ["source", "web"]]
    return {"key": f"customer-{number % 7}", "value": json.dumps(value, ensure_ascii=False), "headers": headers}


def _fill(cluster: Cluster) -> None:
    """Topics, records, groups, users and rights, as in a small shop."""
    line = CommandLine(cluster.bootstrap)
    cluster.create_topic("orders", replicas=[[0, 1, 2], [1, 2, 0], [2, 0, 1]])
    cluster.create_topic("payments", replicas=[[1, 2, 0]])
    cluster.create_topic("web-events", replicas=[[0, 1, 2], [1, 2, 0], [2, 0, 1]] * 2, **{"retention.ms": 86400000})
    cluster.create_topic("stock", replicas=[[2, 0, 1]])
    records = [_order(number) for number in range(ORDERS)]
    lines = "\n".join(json.dumps(each) for each in records)
    line("produce", "-J", "orders", input=lines + "\n")
    line("consume", "-G", "billing", "-e", "-c", "25", "orders")
    line("consume", "-G", "reports", "-e", "orders")
    line("produce", "-J", "orders", input=lines + "\n")
    for topic in ("payments", "web-events", "stock"):
        line("produce", topic, input="".join(f"{topic} {number}\n" for number in range(100)))
    with a_console(cluster.bootstrap) as console:
        console.change("PUT", "users/alice", {"password": "alice-secret", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]})
        console.change("PATCH", "quotas", {"entity": {"user": "alice"}, "set": {"producer_byte_rate": 1048576}})
        for kind, name in (("ALLOW", "orders"), ("DENY", "payments")):
            rule = {"principal": "User:alice", "permission_type": kind, "operation": "READ", "resource_type": "TOPIC"}
            console.change("POST", "acls", {**rule, "name": name, "pattern_type": "LITERAL", "host": "*"})


@contextmanager
def _traffic(bootstrap: str) -> Iterator[None]:
    """Some records for the charts, before the screenshots are taken."""
    line = CommandLine(bootstrap)
    until = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < until:
        line("produce", "web-events", input="an event\n" * 200)
    yield


def main(directory: Path, wanted: Sequence[str]) -> None:
    """Take the wanted screenshots."""
    directory.mkdir(parents=True, exist_ok=True)

    def needs(states: Sequence[State]) -> bool:
        return not wanted or any(state.name in wanted for state in states)

    with ExitStack() as held:
        scratch = Path(held.enter_context(tempfile.TemporaryDirectory()))
        page = held.enter_context(a_page(scratch / "profile"))
        if needs(OF_THE_CLUSTER) or needs(OF_A_DEAD_BROKER):
            with a_cluster(scratch, 3, **SETTINGS) as cluster:
                _fill(cluster)
                with a_console(cluster.bootstrap) as console:
                    with _traffic(cluster.bootstrap):
                        take(page, console, OF_THE_CLUSTER, directory, wanted)
                    if needs(OF_A_DEAD_BROKER):
                        cluster.create_topic("alone", replicas=[[2], [0]])
                        for partition in ("0", "1"):
                            CommandLine(cluster.bootstrap)("produce", "-p", partition, "alone", input="the only copy\n" * 20)
                        cluster.broker(2).kill()
                        eventually(lambda: cluster.partition("alone", 0, broker_id=0).leader_id == -1, what="the loss of a leader")
                with a_console(cluster.bootstrap) as console:
                    take(page, console, OF_A_DEAD_BROKER, directory, wanted)
        if needs(OF_NO_TOPICS) or needs(OF_MANY_TOPICS) or needs(OF_A_LOGIN):
            with a_broker(scratch / "empty") as broker:
                with a_console(broker.bootstrap) as console:
                    take(page, console, OF_NO_TOPICS, directory, wanted)
                    if needs(OF_MANY_TOPICS):
                        with Client(broker.bootstrap) as client:
                            create_topics(client, [NewTopic(f"topic-{number:04}", 2, 1) for number in range(TOPICS)])
                    take(page, console, OF_MANY_TOPICS, directory, wanted)
                (scratch / "users").write_text(f"alice:{hashed('alice-secret')}\n")
                with a_console(broker.bootstrap, "--passwords", str(scratch / "users")) as console:
                    take(page, console, OF_A_LOGIN, directory, wanted)
        if needs(OF_A_TIERED_TOPIC):
            with a_tiered_topic(scratch, "events", partitions=3) as broker, a_console(broker.bootstrap) as console:
                take(page, console, OF_A_TIERED_TOPIC, directory, wanted)
        if needs(OF_SHARES):
            with a_broker(scratch / "shares", offsets_topic_num_partitions=1, share_coordinator_state_topic_num_partitions=1) as broker:
                with a_wire_client(broker.port) as client:
                    begin_group(client, "shared", "jobs")
                    produce(client, "jobs", 20)
                member = Librdkafka(broker, "shared", "jobs")
                member.take(5)
                with a_console(broker.bootstrap) as console:
                    take(page, console, OF_SHARES, directory, wanted)
                member.close()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2:])
