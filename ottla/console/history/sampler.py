"""Takes samples of a cluster while the console runs, whether a page is open or not: records written, lag of groups, faults.

Brokers report offsets and not rates, so a rate is the difference of two end offsets. A sample costs one Metadata, one ListOffsets for each
leader, and two requests for each group. Between two samples is ten times the time that one takes, at least.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from ottla.client.cluster import NO_LEADER, Cluster
from ottla.client.errors import ClientError
from ottla.client.group_admin import reachable_groups
from ottla.client.group_offsets.kinds import requests_of
from ottla.client.offsets import LATEST, reachable_offsets
from ottla.console.history.ring import Ring
from ottla.protocol.topic_partition import TopicPartition

SAMPLE_SECONDS: Final = 10.0
"""Time between two samples, seconds."""
SAMPLE_FACTOR: Final = 10.0
"""The same as a multiple of the time that a sample takes, if that is longer."""
MAX_PARTITIONS: Final = 20_000
"""Partitions of a cluster whose ends are sampled; a cluster with more has no chart of records and lag."""
MAX_GROUPS: Final = 200
"""Groups whose lag is sampled."""
LAG_SECONDS: Final = 10.0
"""Time after which a sample asks no further group, seconds. The lag of all groups has a gap then."""
_TIMEOUT_SECONDS: Final = 5.0

logger = logging.getLogger(__name__)

ALIVE: Final = "alive"
OFFLINE: Final = "offline"
UNDER_REPLICATED: Final = "under_replicated"
RECORDS: Final = "records"
LAG: Final = "lag"


class Sampler:
    """Samples one cluster. `connect` makes a client, which is asked in a thread."""

    def __init__(self, connect: Callable[[], Cluster], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._connect = connect
        self._monotonic = monotonic
        self._ends: dict[TopicPartition, int] = {}
        self._ends_at = 0.0
        self._lock = threading.Lock()
        self._is_failing = False
        """Whether the last sample has failed by a bug, which the log has then."""
        self._lags: dict[str, float] = {}
        """The lag of each group in the last sample."""
        self.ring = Ring()
        """Written and read by different threads, with the lock."""

    async def run(self, in_thread: Callable[[Callable[[], float]], Awaitable[float]]) -> None:
        """Take samples until it is cancelled."""
        while True:
            seconds = await in_thread(self.take)
            await asyncio.sleep(seconds)

    def take(self) -> float:
        """Add a sample, or a gap if the cluster does not answer; the time until the next one, seconds."""
        began_at = self._monotonic()
        values: dict[str, float] = {}
        lags: dict[str, float] = {}
        try:
            with self._connect() as cluster:
                cluster.timeout_seconds = min(cluster.timeout_seconds, _TIMEOUT_SECONDS)
                lags = self._fill(cluster, values)
            self._is_failing = False
        except ClientError:
            self._ends = {}  # the page says why, when it asks the cluster itself
        except Exception:  # a bug, or a broker of another kind: the next sample may succeed, and charts go on after a gap
            if not self._is_failing:
                logger.exception("the cluster could not be sampled, so the charts of the console have a gap; please report this")
            self._is_failing = True
            self._ends = {}
            values = {}
        with self._lock:
            self.ring.add(int(time.time() * 1000), values)
            self._lags = lags
        return max(SAMPLE_SECONDS, SAMPLE_FACTOR * (self._monotonic() - began_at))

    def _fill(self, cluster: Cluster, values: dict[str, float]) -> dict[str, float]:
        """Adds the values of a sample; the lag of each group, as far as it is known."""
        answer = cluster.refresh(None)
        led = []
        values |= {ALIVE: len(answer.brokers), OFFLINE: 0, UNDER_REPLICATED: 0}
        for topic in answer.topics:
            for each in topic.partitions:
                values[UNDER_REPLICATED] += len(each.isr_nodes) < len(each.replica_nodes)
                if each.leader_id == NO_LEADER:
                    values[OFFLINE] += 1
                else:
                    led.append(TopicPartition(topic.name or "", each.partition_index))
        if len(led) > MAX_PARTITIONS:
            return {}
        ends, _ = reachable_offsets(cluster, dict.fromkeys(led, LATEST))
        now = self._monotonic()
        if self._ends:
            values |= rates(self._ends, ends, now - self._ends_at)
        self._ends, self._ends_at = ends, now
        lags, is_whole = self._lags_of_groups(cluster, ends)
        values |= {f"{LAG} {group}": lag for group, lag in lags.items()}
        if is_whole:
            values[LAG] = sum(lags.values())
        return lags

    def view(self, name: str | None, kind: str) -> dict[str, Any]:
        """The samples of the whole cluster, or of the topic or group with this name."""
        names = [ALIVE, OFFLINE, UNDER_REPLICATED, RECORDS, LAG] if name is None else [f"{RECORDS if kind == 'topic' else LAG} {name}"]
        with self._lock:
            series = {each.split(" ", 1)[0]: self.ring.values(each) for each in names}
            return {"interval_seconds": SAMPLE_SECONDS, "times_ms": self.ring.times_ms, "series": series}

    def lags(self) -> dict[str, Any]:
        """The lag of each group in the last sample."""
        with self._lock:
            return {"groups": [{"group": group, "lag": int(lag)} for group, lag in self._lags.items()]}

    def _lags_of_groups(self, cluster: Cluster, ends: Mapping[TopicPartition, int]) -> tuple[dict[str, float], bool]:
        """The lag of each group, and whether none was left out: for lack of time, or since the lag in one of its partitions is unknown."""
        until = self._monotonic() + LAG_SECONDS
        found: dict[str, float] = {}
        is_whole = True
        groups, _ = reachable_groups(cluster)
        for each in groups[:MAX_GROUPS]:
            if self._monotonic() >= until:
                return found, False  # a coordinator hangs
            try:
                positions = requests_of(each.type).read(cluster, each.group)
            except ClientError:
                continue  # it was deleted, or may not be described
            behind = [position.behind(ends.get(where)) for where, position in positions.items()]
            known = [lag for lag in behind if lag is not None]
            if len(known) < len(behind):
                is_whole = False
            else:
                found[each.group] = sum(known)
        return found, is_whole


def rates(before: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int], seconds: float) -> dict[str, float]:
    """Records per second of the cluster and of each topic, in the partitions whose ends are known twice."""
    written: Counter[str] = Counter()
    for where, end in after.items():
        if where in before:
            written[where.topic] += max(end - before[where], 0)  # a topic that was made anew begins at 0
    found = {f"{RECORDS} {topic}": count / seconds for topic, count in written.items()}
    return {RECORDS: sum(found.values()), **found}
