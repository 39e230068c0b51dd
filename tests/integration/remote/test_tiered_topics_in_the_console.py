"""The console shows which bytes of a tiered topic are on the local disks and in the remote store, as the store and the disk have them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.chromium import a_page, is_installed
from tests.support.command_line import CommandLine
from tests.support.running_console import Console, a_console

pytestmark = pytest.mark.slow

SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    "remote.log.manager.task.interval.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "100",
}
TOPIC = {"remote.storage.enable": "true", "segment.bytes": "14000", "local.retention.bytes": "1", "file.delete.delay.ms": "0"}
PARTITION = 1
"""Has the records; the other partition has none."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def broker(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("broker"), **SETTINGS, **{"rsm.config.dir": str(store)}) as running:
        line = CommandLine(running.bootstrap)
        line("topics", "create", "events", "-p", "2", *(word for each in TOPIC.items() for word in ("-c", "=".join(each))))
        for _ in range(10):
            line("produce", "-p", str(PARTITION), "events", input=f"{'x' * 500}\n" * 20)
        eventually(lambda: len(_local_bases(running)) == 1, what="closed segments that are in the store only")
        yield running


@pytest.fixture(scope="module")
def console(broker: BrokerProcess) -> Iterator[Console]:
    with a_console(broker.bootstrap) as running:
        yield running


def _local_bases(broker: BrokerProcess) -> list[int]:
    return [int(path.stem) for path in broker.data.glob(f"events-{PARTITION}/*.log")]


def test_the_sizes_are_those_of_the_files_in_the_store(broker: BrokerProcess, console: Console, store: Path) -> None:
    copies = [path.stat().st_size for path in store.rglob("*.log") if f"events-{PARTITION}-" in str(path)]
    assert len(copies) > 1
    (local,) = _local_bases(broker)
    assert console.get("topics/events/remote") == {
        "partitions": [
            {"partition": 0, "local_start": 0, "segments": 0, "bytes": 0},
            {"partition": 1, "local_start": local, "segments": len(copies), "bytes": sum(copies)},
        ]
    }
    whole = console.get("topics/events")["partitions"][PARTITION]
    assert (whole["start"], whole["end"]) == (0, 200)
    assert whole["bytes"] < sum(copies)


def test_a_topic_that_does_not_exist_is_one_line(console: Console) -> None:
    assert "no-topic" in console.get("topics/no-topic/remote", 404)["error"]


@pytest.mark.skipif(not is_installed, reason="chromium is not installed")
def test_the_page_of_a_tiered_topic_has_both_sizes_and_both_starts(broker: BrokerProcess, console: Console, tmp_path: Path) -> None:
    (local,) = _local_bases(broker)
    with a_page(tmp_path / "profile") as page:
        page.open(f"{console.address}#/topics/events")
        page.wait_for("document.querySelector('[aria-label=Partitions] .space .row:last-child')")
        page.wait_for("!document.body.innerText.includes('…')")
        cells = "[...document.querySelectorAll('[aria-label=Partitions] .space .row:last-child > *')]"
        found = page.run(f"Object.fromEntries({cells}.map((one) => [one.dataset.name, one.textContent]))")
        assert (found["start"], found["local start"], found["end"]) == ("0", str(local), "200")
        assert found["remote bytes"].endswith("KiB")
        pairs = "[...document.querySelectorAll('.facts div')].map((one) => [one.children[0].textContent, one.children[1].textContent])"
        facts = page.run(f"Object.fromEntries({pairs})")
        assert facts["remote size"] == found["remote bytes"]
        assert facts["local size"] == found["local bytes"]
        page.open(f"{console.address}#/topics/__remote_log_metadata")
        page.wait_for_text("leader size")
        assert "remote size" not in page.text()
