"""The console shows which bytes of a tiered topic are on the local disks and in the remote store, as the store and the disk have them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.chromium import a_page, is_installed
from tests.support.running_console import Console, a_console
from tests.support.tiered_directory import RECORDS, a_tiered_topic, local_bases

pytestmark = pytest.mark.slow

PARTITION = 1
"""Has the records; the other partition has none."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiered")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[BrokerProcess]:
    with a_tiered_topic(folder, "events", partitions=2) as running:
        yield running


@pytest.fixture(scope="module")
def console(broker: BrokerProcess) -> Iterator[Console]:
    with a_console(broker.bootstrap) as running:
        yield running


def test_the_sizes_are_those_of_the_files_in_the_store(broker: BrokerProcess, console: Console, folder: Path) -> None:
    copies = [path.stat().st_size for path in (folder / "store").rglob("*.log") if f"events-{PARTITION}-" in str(path)]
    assert len(copies) > 1
    (local,) = local_bases(broker, "events", PARTITION)
    assert console.get("topics/events/remote") == {
        "partitions": [
            {"partition": 0, "local_start": 0, "segments": 0, "bytes": 0},
            {"partition": 1, "local_start": local, "segments": len(copies), "bytes": sum(copies)},
        ]
    }
    whole = console.get("topics/events")["partitions"][PARTITION]
    assert (whole["start"], whole["end"]) == (0, RECORDS)
    assert whole["bytes"] < sum(copies)


def test_a_topic_that_does_not_exist_is_one_line(console: Console) -> None:
    assert "no-topic" in console.get("topics/no-topic/remote", 404)["error"]


@pytest.mark.skipif(not is_installed, reason="chromium is not installed")
def test_the_page_of_a_tiered_topic_has_both_sizes_and_both_starts(broker: BrokerProcess, console: Console, tmp_path: Path) -> None:
    (local,) = local_bases(broker, "events", PARTITION)
    with a_page(tmp_path / "profile") as page:
        page.open(f"{console.address}#/topics/events")
        page.wait_for("document.querySelector('[aria-label=Partitions] .space .row:last-child')")
        page.wait_for("!document.body.innerText.includes('…')")
        cells = "[...document.querySelectorAll('[aria-label=Partitions] .space .row:last-child > *')]"
        found = page.run(f"Object.fromEntries({cells}.map((one) => [one.dataset.name, one.textContent]))")
        assert (found["start"], found["local start"], found["end"]) == ("0", str(local), str(RECORDS))
        assert found["remote size"].endswith("KiB")
        pairs = "[...document.querySelectorAll('.facts div')].map((one) => [one.children[0].textContent, one.children[1].textContent])"
        facts = page.run(f"Object.fromEntries({pairs})")
        assert facts["remote size"] == found["remote size"]
        assert facts["local size"] == found["local size"]
        page.open(f"{console.address}#/topics/__remote_log_metadata")
        page.wait_for_text("leader size")
        assert "remote size" not in page.text()
