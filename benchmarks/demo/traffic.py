"""Writes web events, reads them in a group, processes them in a share group, and checks that the log has each acknowledged one once.

Each part has a thread of its own.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable

from benchmarks.demo.sharing import ShareMember
from benchmarks.examples.web_events import TOPIC, events
from ottla.client import (
    ClientError,
    Cluster,
    Delivery,
    Fetcher,
    GroupMember,
    NewTopic,
    OutgoingRecord,
    Producer,
    ProducerSettings,
    TopicPartition,
    committed_offsets,
    create_topics,
    start_offsets,
)
from ottla.client.config_admin import Change, ConfigOperation, ConfigResourceType, alter_configs

PARTITIONS = 6
GROUP = "page-views"
MEMBERS = 2
SHARE_GROUP = "page-jobs"
SHARE_MEMBERS = 3
_FROM_THE_BEGINNING = Change("share.auto.offset.reset", ConfigOperation.SET, "earliest")
_POLL_SECONDS = 0.1
_COMMIT_SECONDS = 1.0
_PATIENCE_SECONDS = 60.0
"""Time in which a cluster must serve again after a broker was killed."""
_EVENTS_AT_ONCE = 1_000_000


class Traffic:
    """Counts what was written and read so far. Counts only grow; other threads may read them at any time."""

    def __init__(self, bootstrap: str, rate: int) -> None:
        self._bootstrap = bootstrap
        self._rate = rate
        self._stopping = threading.Event()
        self._written = threading.Event()
        self.acknowledged = 0
        self.consumed = 0
        """Events that members of the group have counted; some more than once, as a rebalance between two commits may."""
        self.checked = 0
        """Events that the check has found in the log."""
        self.repeated = 0
        self.shared = 0
        """Events that members of the share group have processed."""
        self.shared_again = 0
        """Deliveries to the share group of events that a member had acquired before a failure."""
        self.longest_pause = 0.0
        """Between two acknowledgements, seconds."""
        self.views: Counter[tuple[str, str]] = Counter()
        """Views by minute and page, as the group counts them."""
        self.failures: list[str] = []
        self._last = time.monotonic()
        self._lock = threading.Lock()
        """Guards the counts that the members of a group share."""
        self._processed: set[int] = set()
        with Cluster(bootstrap) as cluster:
            for outcome in create_topics(cluster, [NewTopic(TOPIC, PARTITIONS, 3)]).values():
                if outcome is not None:
                    raise outcome
            alter_configs(cluster, ConfigResourceType.GROUP, SHARE_GROUP, [_FROM_THE_BEGINNING])
        parts: list[Callable[[Cluster], None]] = [self._write, self._check, *[self._count] * MEMBERS, *[self._share] * SHARE_MEMBERS]
        self._threads = [threading.Thread(target=self._run, args=(part,), daemon=True) for part in parts]

    @property
    def missing(self) -> int:
        """Acknowledged events that the check has not found yet; 0 at the end, or records are lost."""
        return max(0, self.acknowledged - self.checked)

    @property
    def not_shared(self) -> int:
        """Acknowledged events that the share group has not processed yet; 0 at the end."""
        return max(0, self.acknowledged - self.shared)

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Write no more, and wait until everything is read."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(2 * _PATIENCE_SECONDS)

    def _run(self, part: Callable[[Cluster], None]) -> None:
        try:
            with Cluster(self._bootstrap, timeout_seconds=_PATIENCE_SECONDS) as cluster:
                part(cluster)
        except ClientError as error:
            self.failures.append(f"{part.__name__.strip('_')}: {error}")
        finally:
            if part == self._write:
                self._written.set()

    def _write(self, cluster: Cluster) -> None:
        begin = time.monotonic()
        settings = ProducerSettings(linger_seconds=0.02, delivery_timeout_seconds=_PATIENCE_SECONDS)
        with Producer(cluster, TOPIC, settings, self._on_delivery) as producer:
            for number, (user, event) in enumerate(events(_EVENTS_AT_ONCE)):
                now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                value = json.dumps({**json.loads(event), "at": now, "number": number})
                producer.send(OutgoingRecord(value.encode(), key=user.encode()))
                while not self._stopping.is_set() and number >= (time.monotonic() - begin) * self._rate:
                    producer.poll(0.005)
                if self._stopping.is_set():
                    break

    def _on_delivery(self, delivery: Delivery) -> None:
        if delivery.error is not None:
            self.failures.append(f"write: {delivery.error}")
            return
        now = time.monotonic()
        self.longest_pause = max(self.longest_pause, now - self._last)
        self._last = now
        self.acknowledged += delivery.records

    def _check(self, cluster: Cluster) -> None:
        """Read every partition from its beginning, as the brokers have it."""
        seen: set[int] = set()
        deadline = None
        with Fetcher(cluster, {TopicPartition(TOPIC, number): 0 for number in range(PARTITIONS)}) as fetcher:
            while deadline is None or (self.missing and time.monotonic() < deadline):
                for batch in fetcher.poll(_POLL_SECONDS):
                    for record in batch.records:
                        number = json.loads(record.value or b"")["number"]
                        self.repeated += number in seen
                        seen.add(number)
                self.checked = len(seen)
                if deadline is None and self._written.is_set():
                    deadline = time.monotonic() + _PATIENCE_SECONDS

    def _count(self, cluster: Cluster) -> None:
        """Count views as a member of the group."""
        member = GroupMember(cluster, GROUP, [TOPIC], session_timeout_ms=6_000)
        while not self._written.is_set():
            assigned = member.join()
            positions = start_offsets(cluster, assigned)
            positions |= {each: found.offset for each, found in committed_offsets(cluster, GROUP, assigned).items()}
            with Fetcher(cluster, positions) as fetcher:
                self._count_assigned(member, fetcher)
        member.leave()

    def _share(self, cluster: Cluster) -> None:
        """Process events as a member of the share group, until all are processed."""
        member = ShareMember(cluster, SHARE_GROUP, TOPIC)
        deadline = None
        while deadline is None or (self.not_shared and time.monotonic() < deadline):
            numbers = [json.loads(value)["number"] for value in member.poll()]
            with self._lock:
                before = len(self._processed)
                self._processed.update(numbers)
                self.shared = len(self._processed)
                self.shared_again += len(numbers) - (self.shared - before)
            if deadline is None and self._written.is_set():
                deadline = time.monotonic() + _PATIENCE_SECONDS
        member.leave()

    def _count_assigned(self, member: GroupMember, fetcher: Fetcher) -> None:
        next_commit = time.monotonic() + _COMMIT_SECONDS
        while not self._written.is_set() and member.tend():
            for batch in fetcher.poll(_POLL_SECONDS):
                found = [json.loads(record.value or b"") for record in batch.records]
                with self._lock:
                    self.consumed += len(found)
                    self.views.update((event["at"][11:16], event["page"]) for event in found)
            if time.monotonic() >= next_commit:
                member.commit(fetcher.positions)
                next_commit = time.monotonic() + _COMMIT_SECONDS
        member.commit(fetcher.positions)
