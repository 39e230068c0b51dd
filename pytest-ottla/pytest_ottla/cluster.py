"""Declares `Cluster`: several brokers of one cluster on this host, whose connections to each other can be cut."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pytest_ottla.broker import Broker, OttlaError

_COMPLETE_SECONDS = 60.0
"""Time for all brokers to learn of each other."""
_POLL_SECONDS = 0.02
__tracebackhide__ = True  # a failure shows the line of the test


class Cluster:
    """Brokers with the ids 0, 1 and so on. They share a metadata file, and need no ZooKeeper."""

    def __init__(self, directory: Path, size: int = 3, **config: object) -> None:
        """Starts the brokers at the same time, and waits until they know each other.

        Topics get three replicas, or one for each broker. Raises OttlaError.
        """
        directory.mkdir(parents=True, exist_ok=True)
        replicas = min(size, 3)
        common: dict[str, object] = {
            "ottla_metadata_file": directory / "metadata.db",
            # The first check comes five seconds after the start. It would move leaders in the middle of a test.
            "auto_leader_rebalance_enable": False,
            "default_replication_factor": replicas,
            "min_insync_replicas": max(1, replicas - 1),
            "offsets_topic_replication_factor": replicas,
            "transaction_state_log_replication_factor": replicas,
            "transaction_state_log_min_isr": max(1, replicas - 1),
            **config,
        }
        self.brokers: list[Broker] = []
        self._cuts: set[frozenset[int]] = set()
        with ThreadPoolExecutor(size) as threads:
            starts = [threads.submit(Broker, directory / str(number), broker_id=number, **common) for number in range(size)]
        errors = [start.exception() for start in starts]
        self.brokers = [start.result() for start in starts if start.exception() is None]
        if any(errors):
            self.stop()
            raise next(error for error in errors if error is not None).with_traceback(None)  # without the frames of its thread
        try:
            self._wait_until_complete()
        except OttlaError:
            self.stop()
            raise

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __getitem__(self, broker_id: int) -> Broker:
        return self.brokers[broker_id]

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, for clients."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    @property
    def any(self) -> Broker:
        """A broker that answers. Raises OttlaError if there is none."""
        for broker in self.brokers:
            if broker.is_running and not broker.is_paused:
                return broker
        raise OttlaError("no broker of the cluster runs; call heal()")

    def cut(self, one: int, other: int) -> None:
        """Let neither of two brokers answer the other's requests, also if one is restarted; clients reach both.

        The metadata stays shared. `heal` ends it.
        """
        self._cuts.add(frozenset((one, other)))
        self._order_cuts()

    def delay(self, ms: float) -> None:
        """Let every request to every broker that runs wait before it is handled; 0 ends that."""
        for broker in self.brokers:
            if broker.is_running and not broker.is_paused:
                broker.delay(ms)

    def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Let this time pass at once on every broker that runs; see `Broker.advance`."""
        for broker in self.brokers:
            if broker.is_running and not broker.is_paused:
                broker.advance(seconds, minutes=minutes, hours=hours, days=days)

    def heal(self) -> None:
        """End all faults, start or resume brokers that do not run, and wait until all know each other."""
        self._cuts.clear()
        for broker in self.brokers:
            broker.heal()
        self._wait_until_complete()

    def stop(self) -> None:
        """End all brokers."""
        with ThreadPoolExecutor(max(1, len(self.brokers))) as threads:
            list(threads.map(Broker.stop, self.brokers))

    def _wait_until_complete(self) -> None:
        """A topic created earlier would find too few brokers for its replicas."""
        everyone = list(range(len(self.brokers)))
        deadline = time.monotonic() + _COMPLETE_SECONDS
        for broker in self.brokers:
            while (known := broker.known_brokers()) != everyone:
                if time.monotonic() > deadline:
                    raise OttlaError(f"broker {broker.broker_id} knows the brokers {known} after {_COMPLETE_SECONDS:g} s, not {everyone}")
                time.sleep(_POLL_SECONDS)

    def _order_cuts(self) -> None:
        for number, broker in enumerate(self.brokers):
            broker.cut_off(other for cut in self._cuts if number in cut for other in cut - {number})
