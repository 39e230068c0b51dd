"""Kills, stops and pauses brokers of a cluster of `ottla cluster up` during a run, by a seeded schedule.

One broker at a time: the next fault waits until all brokers are ready and in sync again. With acks=all and two required replicas, no
acknowledged record may be lost then. Broker, fault and pause follow from the seed. Copiers are victims in the same way. If
the run is killed, a guard resumes or starts the broker that is paused or stopped.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from ottla.validate.guard import Guard
from ottla.validate.plan import DidNotFinish, Unusable

Fault = Literal["kill", "stop", "pause"]
Kind = Literal["broker", "copier"]

FAULTS: tuple[Fault, ...] = ("kill", "stop", "pause")
VICTIMS: tuple[Kind, ...] = ("broker", "copier")
_OPPOSITES = {"stop": "start", "pause": "resume"}
_COMMAND_S = 120.0
_IN_SYNC_S = 120.0
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Step:
    """One fault: after `wait_s`, to the victim with this place in the list of all; `down_s` is how long it is stopped or paused."""

    wait_s: float
    place: int
    fault: Fault
    down_s: float


class Victims(Protocol):
    """Processes that chaos befalls. Each method raises DidNotFinish when it cannot be done."""

    kind: Kind
    ids: list[int]
    longest_down_s: float

    def hit(self, fault: Fault, victim: int) -> None:
        """Kill, stop or pause one of them. A killed one comes back by itself."""

    def undo(self, fault: Fault, victim: int) -> None:
        """Start or resume what was stopped or paused."""

    def until_well(self, over: threading.Event) -> None:
        """Wait until the next fault may come, or, where the last one left no harm, until the event."""


def schedule(seed: int, victims: int, longest_down_s: float) -> Iterator[Step]:
    """Endless, the same for the same seed."""
    chance = random.Random(seed)
    while True:
        yield Step(chance.uniform(1.0, 4.0), chance.randrange(victims), chance.choice(FAULTS), chance.uniform(1.0, longest_down_s))


class Chaos:
    """Runs the schedule from `start` to `end`, which waits until all victims are well again, and may be called more than once."""

    def __init__(self, victims: Victims, seed: int, say: Callable[[str], None]) -> None:
        self._victims = victims
        self._seed = seed
        self._say = say
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"chaos of {victims.kind}s", daemon=True)
        self.faults: list[dict[str, Any]] = []
        self._failure = ""
        self._began = time.monotonic()
        self.began_ms = 0.0

    def start(self) -> None:
        """Begin with the schedule; `began_ms` is by the clock of the records' timestamps."""
        self._began, self.began_ms = time.monotonic(), time.time() * 1000
        self._thread.start()

    def end(self) -> None:
        """Begin no further fault, and wait until all brokers are ready again."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def check(self) -> None:
        """Raises DidNotFinish when a fault could not be done or undone."""
        if self._failure:
            raise DidNotFinish(f"chaos: {self._failure}")

    def _work(self) -> None:
        try:
            for step in schedule(self._seed, len(self._victims.ids), self._victims.longest_down_s):
                if self._over.wait(step.wait_s):
                    return
                self._do(step)
                self._victims.until_well(self._over)
        except DidNotFinish as reason:
            self._failure = str(reason)

    def _do(self, step: Step) -> None:
        kind, victim = self._victims.kind, self._victims.ids[step.place]
        self.faults.append({"after_s": round(time.monotonic() - self._began, 1), "fault": step.fault, kind: victim})
        self._say(f"chaos: {step.fault} {kind} {victim}")
        self._victims.hit(step.fault, victim)
        if step.fault != "kill":
            self._over.wait(step.down_s)
            self._victims.undo(step.fault, victim)


class Brokers:
    """The brokers of a cluster of `ottla cluster`, whose supervisor starts a killed one again. See Victims."""

    kind: Kind = "broker"
    longest_down_s = 6.0

    def __init__(self, directory: Path) -> None:
        """Raises Unusable when no cluster of several brokers runs there."""
        self._directory = directory
        self._guard: Guard | None = None
        self.ids = brokers_of(directory)

    def hit(self, fault: Fault, victim: int) -> None:
        """See Victims."""
        if fault == "kill":
            self._tell(fault, victim)
            return
        self._guard = Guard(_command(self._directory, _OPPOSITES[fault], str(victim)))
        self._tell(fault, victim, self._guard.descriptor)

    def undo(self, fault: Fault, victim: int) -> None:
        """See Victims."""
        self._tell(_OPPOSITES[fault], victim)
        if self._guard is not None:
            self._guard.end()

    def until_well(self, over: threading.Event) -> None:
        """All are in sync, whether it is over or not. See Victims."""
        deadline = time.monotonic() + _IN_SYNC_S
        while not _is_well(_status(self._directory)):
            if time.monotonic() > deadline:
                raise DidNotFinish(f"the brokers are not in sync again {_IN_SYNC_S:.0f} s after the last fault")
            time.sleep(_LOOK_S)

    def _tell(self, command: str, broker: int, *inherited: int) -> None:
        done = _ottla_cluster(self._directory, command, str(broker), inherited=inherited)
        if done.returncode != 0:
            raise DidNotFinish(f"ottla cluster {command} {broker}: {' '.join(done.stderr.split())}")


def brokers_of(directory: Path) -> list[int]:
    """The ids of the brokers of a cluster. Raises Unusable when there are not several."""
    brokers = _status(directory)
    if len(brokers) < 2:
        raise Unusable(f"{directory}: there is no cluster of at least two brokers there; start one with `ottla cluster up 3 --dir DIR`")
    return sorted(broker["id"] for broker in brokers)


def _is_well(brokers: list[dict[str, Any]]) -> bool:
    return bool(brokers) and all(broker["state"] == "ready" and broker.get("behind") == 0 for broker in brokers)


def _status(directory: Path) -> list[dict[str, Any]]:
    """The output of `ottla cluster status`; empty without a cluster."""
    done = _ottla_cluster(directory, "status", "--json")
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["brokers"] if done.returncode == 0 else []
    except ValueError:
        return []
    return found


def _command(directory: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "ottla", "cluster", *arguments, "--dir", str(directory)]


def _ottla_cluster(directory: Path, *arguments: str, inherited: Sequence[int] = ()) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            _command(directory, *arguments),
            capture_output=True,
            text=True,
            check=False,
            timeout=_COMMAND_S,
            stdin=subprocess.DEVNULL,
            pass_fds=inherited,
            start_new_session=True,  # Ctrl-C in a terminal would else end the command that resumes a broker
        )
    except subprocess.TimeoutExpired:
        raise DidNotFinish(f"`ottla cluster {' '.join(arguments)}` does not end") from None
