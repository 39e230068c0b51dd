"""The page of `ottla console` shows the records of a share group that are in flight, and releases them after a preview."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.chromium import Page, is_installed
from tests.support.running_console import Console, a_console
from tests.support.share_clients import Librdkafka, begin_group, work_on_nine
from tests.support.share_members import produce
from tests.support.wire_client import WireClient, a_wire_client

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not is_installed, reason="chromium is not installed")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("broker"), share_coordinator_state_topic_num_partitions=2) as running:
        yield running


@pytest.fixture(scope="module")
def console(broker: BrokerProcess) -> Iterator[Console]:
    with a_console(broker.bootstrap) as running:
        yield running


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with a_wire_client(broker.port) as connected:
        yield connected


def test_records_in_flight_are_shown_and_released(broker: BrokerProcess, console: Console, client: WireClient, page: Page) -> None:
    begin_group(client, "workers", "jobs")
    produce(client, "jobs", 9)
    work_on_nine(broker, "workers", "jobs")

    page.open(f"{console.address}#/groups/workers")
    page.click("main a", "Records in flight")
    page.wait_for("location.hash === '#/groups/workers/records'")
    page.wait_for_text("These are the stored states.")
    shown = page.run("[...document.querySelectorAll('.rows .row:not(.head)')].map((row) => row.innerText.trim().split(/\\s+/).join(' '))")
    assert shown == ["jobs 0 0 0 available 1", "jobs 0 1 3 acknowledged 1", "jobs 0 4 8 available 1"]
    assert "in flight\n9" in page.text()

    page.click("button", "Release all records")
    page.wait_for_text("Nothing is changed yet.")
    page.click("button", "Apply these offsets")
    page.wait_for_text("The offsets of 1 partition were reset.")
    (partition,) = console.get("group-records?group=workers")["partitions"]
    assert (partition["start"], partition["in_flight"], partition["records"]) == (0, 0, [])
    member = Librdkafka(broker, "workers", "jobs")
    assert [(message.offset(), message.delivery_count()) for message in member.take(9)] == [(offset, 1) for offset in range(9)]
    member.close()


def test_a_group_of_another_type_has_no_such_records(console: Console) -> None:
    assert console.get("group-records?group=nobody", 409)["error"] == "group nobody is no share group"
    assert console.get("group-records", 400)["error"] == "group is missing"
