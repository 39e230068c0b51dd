"""Reads and writes the supervisor's state file, by which commands and the next supervisor find the brokers when the supervisor has ended.

The file is replaced as a whole. A process is identified by its pid and its start time, because the pid alone may have
been reused. The start is counted from the machine's start, so a broker is also known by the properties file among its arguments. A command
asks a live supervisor instead of reading the file.
"""

import json
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla.storage.disk.filesystem import opener

NAME = "cluster.json"
VERSION = 1


@dataclass(frozen=True)
class ProcessName:
    """A process that may have ended: its pid, and its start in clock ticks since the machine's start."""

    pid: int
    started: int

    @property
    def is_alive(self) -> bool:
        """Whether it runs; a zombie does not."""
        return start_of(self.pid) == self.started

    def was_started_with(self, argument: Path) -> bool:
        """Whether this is among its arguments. After a restart of the machine another process may have the pid and the start time."""
        try:
            return os.fsencode(argument) in Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False

    def send(self, number: signal.Signals) -> None:
        """Send a signal if it is alive and of this user. No later process with its pid gets the signal."""
        with suppress(OSError):
            descriptor = os.pidfd_open(self.pid)
            try:
                if self.is_alive:
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)


@dataclass(frozen=True)
class Written:
    """The content of the file."""

    supervisor: ProcessName | None = None
    brokers: Mapping[int, dict[str, Any]] = field(default_factory=dict)
    """The `status` of each broker at the time of writing."""
    command_config: Path | None = None
    """The properties of TLS and SASL with which the cluster was started."""

    def processes(self) -> dict[int, ProcessName]:
        """The processes of the brokers that had one."""
        return {
            broker_id: ProcessName(int(broker["pid"]), int(broker["process_started"]))
            for broker_id, broker in self.brokers.items()
            if broker.get("pid") is not None
        }

    def ports(self) -> dict[int, int]:
        """The ports by broker id."""
        return {broker_id: int(broker["port"]) for broker_id, broker in self.brokers.items()}


def start_of(pid: int) -> int | None:
    """Start time of the process, in clock ticks since the machine's start; None if it does not exist or is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()  # the name may contain spaces and brackets
    return None if fields[0] in {b"Z", b"X"} else int(fields[19])


def name_of(pid: int) -> ProcessName:
    """The name of a child that has not been waited for."""
    return ProcessName(pid, start_of(pid) or 0)


def read(directory: Path) -> Written:
    """The last state written; an empty one when there is no readable file."""
    try:
        content = json.loads((directory / NAME).read_bytes())
        if content["version"] != VERSION:
            return Written()
        supervisor = ProcessName(content["supervisor"]["pid"], content["supervisor"]["process_started"])
        command_config = content.get("command_config")  # absent in files of earlier supervisors
        brokers = {int(broker["id"]): broker for broker in content["brokers"]}
        return Written(supervisor, brokers, None if command_config is None else Path(command_config))
    except (OSError, ValueError, KeyError, TypeError):
        return Written()


def write(directory: Path, supervisor: ProcessName, brokers: list[dict[str, Any]], command_config: Path | None = None) -> None:
    """Replace the file. A reader gets either the old or the new content."""
    content = {
        "version": VERSION,
        "supervisor": {"pid": supervisor.pid, "process_started": supervisor.started},
        "brokers": brokers,
        "command_config": None if command_config is None else str(command_config),
    }
    new = directory / f"{NAME}.new"
    with open(new, "w", encoding="utf-8", opener=opener) as file:
        file.write(json.dumps(content, indent=2) + "\n")
    os.replace(new, directory / NAME)
