"""What a supervisor writes down beside its brokers: who they are, so that commands and the next supervisor find them when it is gone.

The file is replaced as a whole. A process is named by its number and the moment it started: the number alone may have been given to another
process since. Nobody reads the file for what it can ask a living supervisor.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAME = "cluster.json"
VERSION = 1


@dataclass(frozen=True)
class ProcessName:
    """A process that may have ended: its number, and its start in clock ticks since the machine's."""

    pid: int
    started: int

    @property
    def is_alive(self) -> bool:
        """Whether it runs; a zombie does not."""
        return start_of(self.pid) == self.started


@dataclass(frozen=True)
class Written:
    """The content of the file."""

    supervisor: ProcessName | None = None
    brokers: Mapping[int, dict[str, Any]] = field(default_factory=dict)
    """What `status` shows of each, at the time of writing."""

    def processes(self) -> dict[int, ProcessName]:
        """Those of the brokers that had one."""
        return {
            broker_id: ProcessName(int(broker["pid"]), int(broker["process_started"]))
            for broker_id, broker in self.brokers.items()
            if broker.get("pid") is not None
        }

    def ports(self) -> dict[int, int]:
        """By broker id."""
        return {broker_id: int(broker["port"]) for broker_id, broker in self.brokers.items()}


def start_of(pid: int) -> int | None:
    """When the process was started, in clock ticks since the machine's start; None when there is none, or only its exit status."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()  # its name may contain blanks and brackets
    return None if fields[0] in {b"Z", b"X"} else int(fields[19])


def name_of(pid: int) -> ProcessName:
    """The name of a child that was not waited for yet."""
    return ProcessName(pid, start_of(pid) or 0)


def read(directory: Path) -> Written:
    """What was written last; nothing when there is no file, or none that can be read."""
    try:
        content = json.loads((directory / NAME).read_bytes())
        if content["version"] != VERSION:
            return Written()
        supervisor = ProcessName(content["supervisor"]["pid"], content["supervisor"]["process_started"])
        return Written(supervisor, {int(broker["id"]): broker for broker in content["brokers"]})
    except (OSError, ValueError, KeyError, TypeError):
        return Written()


def write(directory: Path, supervisor: ProcessName, brokers: list[dict[str, Any]]) -> None:
    """Replace the file. Readers see the old one or the new one."""
    content = {
        "version": VERSION,
        "supervisor": {"pid": supervisor.pid, "process_started": supervisor.started},
        "brokers": brokers,
    }
    new = directory / f"{NAME}.new"
    new.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    os.replace(new, directory / NAME)
