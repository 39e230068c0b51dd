"""Runs generate, copy and ingest at the same time, with progress, until the topic that Spark reads has been read to its end."""

from __future__ import annotations

import threading
import time
from operator import itemgetter
from typing import Any

from pyspark.sql import SparkSession

from ottla.client.errors import ClientError
from ottla.validate import topic as topics
from ottla.validate.chaos import Brokers, Chaos
from ottla.validate.console import Console
from ottla.validate.copying.copiers import Copiers
from ottla.validate.generate import generate
from ottla.validate.ingest import Ingest
from ottla.validate.plan import DidNotFinish, Plan
from ottla.validate.reasons import innermost
from ottla.validate.source import Source
from ottla.validate.topic import Offsets, Topic

_ENDS_S = 60.0
_ASK_EVERY_S = 1.0
_DISPLAY_S = 2.0
_MOVED_SHARE = 0.9
_STORE_STALL_S = 900.0
"""A broker deletes segments every five minutes by default."""


class Transfer:
    """After `run`, `ends` are the end offsets of the topic, up to which `ingest` has read; `seconds` has the time of each stage.

    `written` is the topic with the rows, `topic` the one that Spark reads: the same, unless copiers are between.
    """

    def __init__(self, spark: SparkSession, plan: Plan, written: Topic, topic: Topic, source: Source, work: str, console: Console) -> None:
        self.plan = plan
        self.written = written
        self.topic = topic
        self.source = source
        self.work = work
        self.ingest = Ingest(spark, plan, topic, work)
        self.ends: Offsets = dict(topic.first)
        self.seconds: dict[str, float] = {}
        self.copiers = Copiers(plan, plan.copies, written) if plan.copies is not None else None
        self.moved_away = 0
        """Records that were in the remote store only when Spark began to read; counted with `--tiered`."""
        self._console = console
        self._asked_at = 0.0
        self._silence = ""
        self._written_to: Offsets = dict(written.first)
        self._is_written = threading.Event()
        self._failure: Exception | None = None
        self._chaos = [Chaos(Brokers(plan.chaos), plan.seed, console.say)] if plan.chaos is not None else []
        if self.copiers is not None and plan.copies is not None and plan.copies.faults:
            self._chaos.append(Chaos(self.copiers, plan.seed + 1, console.say))

    def run(self) -> None:
        """All stages. Raises DidNotFinish."""
        began = time.monotonic()
        if not self.plan.tiered:
            self.ingest.start()
        try:
            if self.copiers is not None:
                self.copiers.start()
            for chaos in self._chaos:
                chaos.start()
            if self.plan.generates:
                threading.Thread(target=self._write, name="generate", daemon=True).start()
            else:
                self._is_written.set()
            if self.plan.tiered:
                self._await_store()
                self.ingest.start()
            self.ingest.run_until(self._goal, self._say, forgives=bool(self._chaos))
        finally:
            self._end_chaos()
            if self.copiers is not None:
                self.copiers.close()
            self.ingest.stop()
        self.seconds["ingest"] = time.monotonic() - began

    @property
    def has_chaos(self) -> bool:
        """Whether something is done to brokers or copiers."""
        return bool(self._chaos)

    @property
    def faults(self) -> list[dict[str, Any]]:
        """The faults of brokers and copiers meanwhile."""
        return sorted((fault for chaos in self._chaos for fault in chaos.faults), key=itemgetter("after_s"))

    def faults_since(self, begin_ms: float) -> list[float]:
        """Times of the faults, in seconds since a time by the clock of the records' timestamps."""
        return [(chaos.began_ms - begin_ms) / 1000 + float(fault["after_s"]) for chaos in self._chaos for fault in chaos.faults]

    def _end_chaos(self) -> None:
        for chaos in self._chaos:
            chaos.end()

    def _write(self) -> None:
        """Generate, and wait for the copiers."""
        began = time.monotonic()
        try:
            generate(self.source, self.plan)
            self.seconds["generate"] = time.monotonic() - began
            if self.copiers is not None:
                self.copiers.wait_for(self._final_ends(self.written))
                self._end_chaos()
                self.copiers.end()
                self.seconds["copy"] = time.monotonic() - began
        except Exception as error:  # of Spark, py4j or Kafka; told by the thread that waits
            self._failure = error
        self._is_written.set()

    def _goal(self) -> Offsets | None:
        """The topic's end, once nothing more is written."""
        if not self._is_written.is_set():
            if self.copiers is not None:
                self.copiers.check()
            return None
        if isinstance(self._failure, DidNotFinish):
            raise self._failure
        if self._failure is not None:
            raise DidNotFinish(f"generate failed: {innermost(self._failure)}") from self._failure
        if "ends" not in self.seconds:
            self._end_chaos()  # what is not read by now is read from brokers that are well again
            for chaos in self._chaos:
                chaos.check()
            self.ends = self._final_ends(self.topic)
            self.seconds["ends"] = 0.0
        return self.ends

    def _await_store(self) -> None:
        """Wait until nine tenths of what Spark will read are in the remote store only. Raises DidNotFinish when no more gets there."""
        began = moved = time.monotonic()
        while True:
            ends = self._goal()
            if ends is not None:
                most = sum(ends.values()) - sum(self.topic.first.values())
                try:
                    there = topics.moved_away(self.plan, self.topic, ends)
                except ClientError as error:
                    raise DidNotFinish(f"{self.plan.bootstrap}: does not say what is in the remote store: {error}") from None
                if there > self.moved_away:
                    moved, self.moved_away = time.monotonic(), there
                if there >= most * _MOVED_SHARE:
                    self.seconds["tier"] = time.monotonic() - began
                    return
                if time.monotonic() - moved > max(self.plan.stall_s, _STORE_STALL_S):
                    raise DidNotFinish(f"only {there:,} of {most:,} records are in the remote store alone, and no more get there")
                self._console.progress(f"{there:,} of {most:,} in the remote store only")
            else:
                moved = time.monotonic()
                self._say()
            time.sleep(_ASK_EVERY_S)

    def _final_ends(self, topic: Topic) -> Offsets:
        deadline = time.monotonic() + _ENDS_S
        while True:
            try:
                return topics.ends(self.plan, topic)
            except ClientError as error:
                if time.monotonic() > deadline:
                    raise DidNotFinish(f"{self.plan.bootstrap}: does not say where the topic ends: {error}") from None
                time.sleep(_ASK_EVERY_S)

    def _say(self) -> None:
        if not self.plan.generates:  # where offsets end says nothing of how many records a topic with transactions has
            self._console.progress(f"read {self.ingest.rows:,} of {self.source.count:,}")
            return
        if not self._is_written.is_set() and time.monotonic() - self._asked_at > _ASK_EVERY_S:
            self._asked_at = time.monotonic()
            try:
                self._written_to, self._silence = topics.ends(self.plan, self.written, timeout_s=_DISPLAY_S), ""
            except ClientError:  # it is only for the display: the producers know how long to wait
                self._silence = "; the brokers do not say how far it is"
        written = sum(self._written_to.values()) - sum(self.written.first.values())
        copied = f"copied {self.copiers.rows['committed']:,}, " if self.copiers is not None else ""
        self._console.progress(f"written {written:,} of {self.source.count:,}, {copied}read {self.ingest.rows:,}{self._silence}")
