"""Runs the brokers of the demonstration, and their console, under the supervisor of `ottla cluster`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ottla.client import ClientError, Cluster
from ottla.supervisor import control

CONSOLE = "127.0.0.1:8080"
_STOP_SECONDS = 60.0
_ANSWER_SECONDS = 5.0


class CannotStart(Exception):
    """One line: the reason."""


class BrokerRow(NamedTuple):
    """A broker as the screen shows it. `leads` and `behind` count partitions; None while no broker answers."""

    id: int
    address: str
    state: str
    pid: int | None
    restarts: int
    leads: int | None
    behind: int | None


class Brokers:
    """The running brokers. `described` is what the supervisor printed."""

    def __init__(self, directory: Path, described: dict[str, Any]) -> None:
        self._directory = directory
        self.bootstrap: str = described["bootstrap_servers"]
        self.console: str | None = described.get("console")
        self.ids: list[int] = [each["id"] for each in described["brokers"]]

    def kill(self, broker_id: int) -> None:
        """Kill a broker (SIGKILL). The supervisor starts it again."""
        control.ask(self._directory, {"command": "kill", "id": broker_id}, _STOP_SECONDS)

    def rows(self) -> list[BrokerRow]:
        """The brokers as they are now."""
        found = control.ask(self._directory, {"command": "status"}, _ANSWER_SECONDS)["brokers"]
        try:
            with Cluster(self.bootstrap, timeout_seconds=1) as cluster:
                partitions = [each for topic in cluster.refresh(None).topics for each in topic.partitions]
        except ClientError:
            partitions = None
        rows = []
        for each in found:
            number = each["id"]
            leads = behind = None
            if partitions is not None:
                leads = sum(partition.leader_id == number for partition in partitions)
                behind = sum(number in partition.replica_nodes and number not in partition.isr_nodes for partition in partitions)
            address = f"{each['host']}:{each['port']}"
            rows.append(BrokerRow(number, address, each["state"], each["pid"], each["restarts"], leads, behind))
        return rows


def console_default() -> str:
    """The usual address of the console, or a free port if another program uses that address."""
    host, _, port = CONSOLE.partition(":")
    try:
        socket.create_server((host, int(port))).close()
    except OSError:
        return f"{host}:0"
    return CONSOLE


@contextmanager
def brokers(directory: Path, size: int, console: str) -> Iterator[Brokers]:
    """Starts the brokers, and a console at host:port; ends them all, also when this process is killed. Raises CannotStart."""
    command = [sys.executable, "-P", "-m", "ottla.cli.supervised", str(os.getpid()), "cluster", "up", str(size)]
    command += ["--dir", str(directory), "--base-port", "0"]
    command += ["--console", "--console-listen", console, "--json", "--set", "min.insync.replicas=2"]
    log = directory / "supervisor.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            process.wait()
            said = [text for text in log.read_text(errors="replace").splitlines() if text.startswith("ottla: ")]
            raise CannotStart((said or ["ottla: the cluster did not start"])[-1].removeprefix("ottla: "))
        yield Brokers(directory, json.loads(line))
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
