"""Starts the copiers of a run, starts those again that end too early, and ends all once every row is copied.

The run commits the offsets of their group before the first one starts. How far they are is what the group has committed, so that aborted
and repeated transactions do not count.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from ottla.broker.security.client_security import ConfiguredSecurity
from ottla.client.errors import ClientError
from ottla.client.group_admin import delete_groups
from ottla.client.group_offsets.committed import commit_offsets, committed_offsets
from ottla.protocol.topic_partition import TopicPartition
from ottla.validate.chaos import Fault, Kind
from ottla.validate.copying.settings import Settings
from ottla.validate.guard import Guard
from ottla.validate.plan import Copies, DidNotFinish, Plan
from ottla.validate.sizes import batch_bytes
from ottla.validate.topic import Offsets, Topic, connected

_LOOK_S = 0.2
_ASK_EVERY_S = 1.0
_ANSWER_S = 5.0
_ENDS_S = 60.0
_TRANSACTION_MS = 60_000
_TRANSACTION_MS_WITH_FAULTS = 10_000


class Copiers:
    """`start`, `finish`, and `close` in any case. They are victims of chaos, too."""

    kind: Kind = "copier"
    longest_down_s = 15.0  # more than the session of a member and than the timeout of a transaction

    def __init__(self, plan: Plan, copies: Copies, topic: Topic) -> None:
        """`topic` is the one with the rows."""
        self._plan = plan
        self._copies = copies
        self._topic = topic
        self._group = f"{plan.topic}-copiers"
        self._over = threading.Event()
        self._failure: DidNotFinish | None = None
        self.ids = list(range(copies.copiers))
        self._copiers = [_Process(copies.module, self._settings(number), self._hear) for number in self.ids]
        self._watcher = threading.Thread(target=self._watch, name="copiers", daemon=True)
        self._lock = threading.Lock()
        self._reason = ""
        self.restarts = 0
        self.transactions: Counter[str] = Counter()
        """How many ended how: `committed`, `aborted` on purpose, or `failed` and therefore aborted."""
        self.rows: Counter[str] = Counter()
        """The same of the rows in them."""

    @property
    def names(self) -> list[TopicPartition]:
        """The partitions with the rows."""
        return [TopicPartition(self._topic.name, number) for number in range(self._topic.partitions)]

    def start(self) -> None:
        """Raises DidNotFinish when the offsets cannot be committed."""
        try:
            with connected(self._plan) as cluster:
                commit_offsets(cluster, self._group, {name: self._topic.first[name.partition] for name in self.names})
        except ClientError as error:
            raise DidNotFinish(f"{self._plan.bootstrap}: offsets of group {self._group} cannot be committed: {error}") from None
        for copier in self._copiers:
            copier.start()
        self._watcher.start()

    def check(self) -> None:
        """Raises DidNotFinish when one has failed though nothing was done to it."""
        if self._failure is not None:
            raise self._failure

    def wait_for(self, ends: Offsets) -> None:
        """Wait until the group has committed these offsets. Raises DidNotFinish when nothing moves for too long."""
        moved, reached = time.monotonic(), -1
        while not self._over.wait(_ASK_EVERY_S):
            self.check()
            committed = self._committed()
            if all(committed.get(number, 0) >= end for number, end in ends.items()):
                return
            if sum(committed.values()) > reached:
                moved, reached = time.monotonic(), sum(committed.values())
            if time.monotonic() - moved > self._plan.stall_s:
                late = ", ".join(f"{number} at {committed.get(number, 0)} of {end}" for number, end in ends.items())
                raise DidNotFinish(f"the copiers stand still since {self._plan.stall_s:.0f} s: partitions {late}{self._reason}")

    def end(self) -> None:
        """Let all end their last transaction, and delete their group. Raises DidNotFinish when one has failed."""
        self._over.set()
        self._watcher.join()
        for copier in self._copiers:
            copier.end()
        self.check()
        # A group that stays expires, as that of a killed run does.
        with suppress(ClientError), connected(self._plan) as cluster:
            delete_groups(cluster, [self._group])

    def close(self) -> None:
        """Kill those that still run."""
        self._over.set()
        if self._watcher.is_alive():
            self._watcher.join()
        for copier in self._copiers:
            copier.kill()

    def hit(self, fault: Fault, victim: int) -> None:
        """See Victims."""
        copier = self._copiers[victim]
        if fault == "kill":
            copier.kill()
        elif fault == "stop":
            copier.end()
        else:
            copier.pause()

    def undo(self, fault: Fault, victim: int) -> None:
        """See Victims."""
        if fault == "stop":
            self._copiers[victim].start()
        else:
            self._copiers[victim].resume()

    def until_well(self, over: threading.Event) -> None:
        """Some rows were committed since. See Victims."""
        before = self.transactions["committed"]
        while self.transactions["committed"] == before and not over.wait(_LOOK_S):
            pass

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            for copier in self._copiers:
                status = copier.ended()
                if status is None:
                    continue
                if not self._copies.faults:
                    self._failure = DidNotFinish(f"copier {copier.number} ended with status {status}{self._reason}")
                    return
                self.restarts += 1
                copier.start()

    def _committed(self) -> Offsets:
        """Nothing while brokers do not answer."""
        try:
            with connected(self._plan, _ANSWER_S) as cluster:
                return {name.partition: at.offset for name, at in committed_offsets(cluster, self._group, self.names).items()}
        except ClientError:
            return {}

    def _hear(self, fact: dict[str, Any]) -> None:
        with self._lock:
            if "reason" in fact:
                self._reason = f"; the last error of a copier: {fact['reason']}"
            for outcome in ("committed", "aborted", "failed"):
                if outcome in fact:
                    self.transactions[outcome] += 1
                    self.rows[outcome] += fact[outcome]

    def _settings(self, number: int) -> Settings:
        plan, copies = self._plan, self._copies
        return Settings(
            bootstrap=plan.bootstrap,
            number=number,
            topic=plan.topic,
            output=plan.output.topic,
            group=self._group,
            transactional_id=f"{plan.topic}-copier-{number}",
            transaction_timeout_ms=_TRANSACTION_MS_WITH_FAULTS if copies.faults else _TRANSACTION_MS,
            transaction_rows=copies.transaction_rows,
            aborted_percent=copies.aborted_percent,
            mark=plan.output.run,
            aborted_mark=plan.aborted_run,
            seed=plan.seed,
            codec=plan.codec,
            largest_batch=batch_bytes(plan),
            batch_bytes=plan.copier_batch_bytes,
            security=plan.security.librdkafka() if isinstance(plan.security, ConfiguredSecurity) else {},
        )


class _Process:
    """The process of one copier, one after the other. Its lines are heard by a thread."""

    def __init__(self, module: str, settings: Settings, hear: Callable[[dict[str, Any]], None]) -> None:
        self.number = settings.number
        self._command = [sys.executable, "-P", "-m", module]
        self._settings = settings
        self._hear = hear
        self._process: subprocess.Popen[str] | None = None
        self._guard: Guard | None = None
        self._lock = threading.RLock()
        self._is_wanted = False

    def start(self) -> None:
        with self._lock:
            if self._process is not None:
                self._close(self._process)
            # Ctrl-C in a terminal is for the run alone.
            process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # its exit status tells
                process.stdin.write(json.dumps(asdict(self._settings)) + "\n")
                process.stdin.flush()
            self._process, self._is_wanted = process, True
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()

    def ended(self) -> int | None:
        """The exit status of a process that ended while it should run."""
        with self._lock:
            return self._process.poll() if self._process is not None and self._is_wanted else None

    def end(self) -> None:
        """Close its standard input; kill it when it does not end."""
        with self._lock:
            self._is_wanted = False
            process = self._process
            if process is None:
                return
            self._close(process)
            try:
                process.wait(_ENDS_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def kill(self) -> None:
        with self._lock:
            self._end_guard()
            if self._process is not None:
                self._process.kill()
                self._process.wait()
                self._close(self._process)

    def pause(self) -> None:
        """Suspend the process. It would not hear that the run was killed, so a guard kills it then."""
        with self._lock:
            if self._process is not None:
                self._guard = Guard(["kill", "-KILL", str(self._process.pid)])
                self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """End a pause."""
        with self._lock:
            if self._process is not None:
                self._process.send_signal(signal.SIGCONT)
            self._end_guard()

    def _end_guard(self) -> None:
        if self._guard is not None:
            self._guard.end()
            self._guard = None

    @staticmethod
    def _close(process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.close()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                try:
                    fact = json.loads(line)
                except ValueError:
                    continue  # the rest of a killed one
                self._hear(fact)
