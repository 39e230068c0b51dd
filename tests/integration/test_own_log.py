"""The log of a running broker: JSON in a file, lines of slow requests, levels by Kafka's names, and its service manager."""

import json
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_process import eventually
from tests.support.clients import ConfluentClient, Record
from tests.support.serve_command import Serving, refused, serving


def settings(tmp_path: Path) -> tuple[str, ...]:
    return "listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path}/data", f"ottla.log.file={tmp_path}/log/broker.log"


@pytest.fixture
def logging_broker(tmp_path: Path) -> Iterator[Serving]:
    """A broker that logs JSON lines into log/broker.log, one for every request."""
    (tmp_path / "log").mkdir()
    with serving(tmp_path, *settings(tmp_path), "ottla.log.format=json", "ottla.slow.request.ms=0") as broker:
        yield broker


def lines_of(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "log" / "broker.log").read_text().splitlines()]


def test_lines_are_json_with_the_broker_and_the_values_and_slow_requests_name_their_client(logging_broker: Serving, tmp_path: Path) -> None:
    ConfluentClient(logging_broker.bootstrap).produce("orders", [Record(b"value")])
    assert logging_broker.end() == 0
    lines = lines_of(tmp_path)
    created = next(line for line in lines if line["message"].startswith("creating topic orders"))
    assert (created["topic"], created["partitions_count"]) == ("orders", 1)
    assert len(created["cluster"]) == 22
    produced = [line for line in lines if line.get("event") == "request.slow" and line["api"] == "PRODUCE"]
    assert produced
    assert {line["topics"] for line in produced} == {"orders"}
    assert all(line["total_ms"] >= line["local_ms"] > 0 for line in produced)
    assert all(line["client_id"] == "rdkafka" for line in produced)
    assert [line for line in logging_broker.log().splitlines() if "{" in line] == []


def test_a_signal_reopens_the_file_and_a_lost_folder_ends_nothing(logging_broker: Serving, tmp_path: Path) -> None:
    file = tmp_path / "log" / "broker.log"
    file.rename(tmp_path / "moved")
    logging_broker.signal(signal.SIGUSR1)
    eventually(file.exists)
    shutil.rmtree(tmp_path / "log")
    ConfluentClient(logging_broker.bootstrap).produce("t", [Record(b"value")])
    eventually(lambda: _still_serves(logging_broker) and "lines go to standard error until it can be" in logging_broker.log())
    assert logging_broker.end() == 0
    assert "Traceback" not in logging_broker.log()


def _still_serves(broker: Serving) -> bool:
    ConfluentClient(broker.bootstrap).produce("t", [Record(b"value")])
    return True


def test_a_log_file_in_a_missing_folder_ends_the_start(tmp_path: Path) -> None:
    reason = "No such file or directory; create its folder, or set another file"
    assert refused(tmp_path, *settings(tmp_path)) == f"ottla: ottla.log.file={tmp_path}/log/broker.log cannot be opened: {reason}"
    assert not (tmp_path / "data").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_log_disk_ends_nothing_and_loses_no_line(tmp_path: Path) -> None:
    with serving(tmp_path, *settings(tmp_path)[:2], "ottla.log.file=/dev/full") as broker:
        ConfluentClient(broker.bootstrap).produce("t", [Record(b"value")])
        assert broker.end() == 0
        assert "ottla: log file /dev/full cannot be written: No space left on device" in broker.log()
        assert "is ready after" in broker.log()


def test_a_service_manager_hears_of_start_readiness_watchdog_and_end(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        with serving(tmp_path, *settings(tmp_path)[:2], environment=environment) as broker:
            heard: list[str] = []
            while heard.count("WATCHDOG=1") < 3:
                heard += manager.recv(4096).decode().splitlines()
            assert broker.end() == 0
            while "STOPPING=1" not in heard:
                heard += manager.recv(4096).decode().splitlines()
    assert heard[0] == "STATUS=starting"
    assert heard.index("READY=1") < heard.index("WATCHDOG=1")
    assert any(line.startswith("STATUS=broker 1001 of cluster ") and line.endswith(" is ready") for line in heard)
