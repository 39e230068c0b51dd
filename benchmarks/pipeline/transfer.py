"""Runs generate and ingest at the same time, each in its own thread, with progress, until the topic has been read to its end."""

from __future__ import annotations

import threading
import time
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.pipeline import topic as topics
from benchmarks.pipeline.chaos import Chaos
from benchmarks.pipeline.console import Console
from benchmarks.pipeline.generate import generate
from benchmarks.pipeline.ingest import Ingest
from benchmarks.pipeline.plan import DidNotFinish, Plan
from benchmarks.pipeline.reasons import innermost
from benchmarks.pipeline.source import Source
from benchmarks.pipeline.topic import Offsets, Topic
from broker.client.errors import ClientError

_ENDS_S = 60.0
_ASK_EVERY_S = 1.0
_DISPLAY_S = 2.0


class Transfer:
    """After `run`, `ends` are the end offsets of the topic, up to which `ingest` has read; `seconds` has the time of each stage."""

    def __init__(self, spark: SparkSession, plan: Plan, topic: Topic, source: Source, work: str, console: Console) -> None:
        self.plan = plan
        self.topic = topic
        self.source = source
        self.work = work
        self.ingest = Ingest(spark, plan, topic, work)
        self.ends: Offsets = dict(topic.first)
        self.seconds: dict[str, float] = {}
        self._console = console
        self._asked_at = 0.0
        self._silence = ""
        self._written = threading.Event()
        self._failure: Exception | None = None
        self._chaos = Chaos(plan.chaos, plan.seed, console.say) if plan.chaos is not None else None

    def run(self) -> None:
        """Both stages. Raises DidNotFinish."""
        began = time.monotonic()
        self.ingest.start()
        if self._chaos is not None:
            self._chaos.start()
        if self.plan.generates:
            threading.Thread(target=self._generate, name="generate", daemon=True).start()
        else:
            self._written.set()
        try:
            self.ingest.run_until(self._goal, self._say, forgives=self._chaos is not None)
        finally:
            self._end_chaos()
            self.ingest.stop()
        self.seconds["ingest"] = time.monotonic() - began

    @property
    def faults(self) -> list[dict[str, Any]]:
        """The faults of the brokers meanwhile."""
        return [] if self._chaos is None else self._chaos.faults

    def faults_since(self, begin_ms: float) -> list[float]:
        """Times of the faults, in seconds since a time by the clock of the records' timestamps."""
        began_s = 0.0 if self._chaos is None else (self._chaos.began_ms - begin_ms) / 1000
        return [began_s + float(fault["after_s"]) for fault in self.faults]

    def _end_chaos(self) -> None:
        if self._chaos is not None:
            self._chaos.end()

    def _generate(self) -> None:
        began = time.monotonic()
        try:
            generate(self.source, self.plan)
        except Exception as error:  # of Spark, py4j or Kafka; told by the thread that waits
            self._failure = error
        self.seconds["generate"] = time.monotonic() - began
        self._written.set()

    def _goal(self) -> Offsets | None:
        """The topic's end, once nothing more is written."""
        if not self._written.is_set():
            return None
        if self._failure is not None:
            raise DidNotFinish(f"generate failed: {innermost(self._failure)}") from self._failure
        if "ends" not in self.seconds:
            self._end_chaos()  # what is not read by now is read from brokers that are well again
            if self._chaos is not None:
                self._chaos.check()
            self.ends = self._final_ends()
            self.seconds["ends"] = 0.0
        return self.ends

    def _final_ends(self) -> Offsets:
        deadline = time.monotonic() + _ENDS_S
        while True:
            try:
                return topics.ends(self.plan, self.topic)
            except ClientError as error:
                if time.monotonic() > deadline:
                    raise DidNotFinish(f"{self.plan.bootstrap}: does not say where the topic ends: {error}") from None
                time.sleep(_ASK_EVERY_S)

    def _say(self) -> None:
        if not self.plan.generates:  # where offsets end says nothing of how many records a topic with transactions has
            self._console.progress(f"read {self.ingest.rows:,} of {self.source.count:,}")
            return
        if not self._written.is_set() and time.monotonic() - self._asked_at > _ASK_EVERY_S:
            self._asked_at = time.monotonic()
            try:
                self.ends, self._silence = topics.ends(self.plan, self.topic, timeout_s=_DISPLAY_S), ""
            except ClientError:  # it is only for the display: the producers know how long to wait
                self._silence = "; the brokers do not say how far it is"
        written = sum(self.ends.values()) - sum(self.topic.first.values())
        self._console.progress(f"written {written:,} of {self.source.count:,}, read {self.ingest.rows:,}{self._silence}")
