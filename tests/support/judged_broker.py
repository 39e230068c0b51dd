"""Starts the broker of a test that must hold for Apache Kafka as well: Ottla, or Apache Kafka 3.9.1 as its judge.

`make judge` sets OTTLA_JUDGE and runs the tests against Apache Kafka; without the variable they run against Ottla.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from tests.support.apache_kafka.brokers import ApacheKafka
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import a_broker

JUDGED_BY_APACHE = "OTTLA_JUDGE" in os.environ

needs_its_broker = needs_apache_kafka if JUDGED_BY_APACHE else []
"""Marks of tests that need a judged broker and no other Java."""

only_ottla = pytest.mark.skipif(JUDGED_BY_APACHE, reason="says something of Ottla alone")

QUICK = {
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "log.retention.ms": "-1",  # records of tests bear times long ago
}
"""Few partitions of internal topics, and timeouts that a test can wait for."""


class JudgedBroker(Protocol):
    """One broker of either kind; it keeps its port over restarts."""

    @property
    def bootstrap(self) -> str:
        """host:port for clients."""

    @property
    def port(self) -> int: ...

    @property
    def data(self) -> Path:
        """Its log directory."""

    def start(self) -> object:
        """Start again after `stop` or `kill`; returns when it serves."""

    def stop(self) -> object:
        """SIGTERM."""

    def kill(self) -> None:
        """SIGKILL."""


class ApacheAsBroker:
    """Gives the only broker of an ApacheKafka the face of a JudgedBroker."""

    def __init__(self, apache: ApacheKafka) -> None:
        self._apache = apache

    @property
    def bootstrap(self) -> str:
        return self._apache.bootstrap

    @property
    def port(self) -> int:
        return self._apache.port()

    @property
    def data(self) -> Path:
        return self._apache.data_directory()

    def start(self) -> None:
        self._apache.start_broker(0)

    def stop(self) -> None:
        self._apache.stop_broker(0)

    def kill(self) -> None:
        self._apache.kill_broker(0)


@contextmanager
def a_judged_broker(directory: Path, **config: object) -> Iterator[JudgedBroker]:
    """A running broker with id 0. `config` has keys with underscores for dots."""
    settings = {**QUICK, **{name.replace("_", "."): str(value) for name, value in config.items()}}
    if JUDGED_BY_APACHE:
        with ApacheKafka(directory, config=settings, heap="256m") as apache:
            yield ApacheAsBroker(apache)
    else:
        with a_broker(directory, broker_id=0, **{name.replace(".", "_"): value for name, value in settings.items()}) as broker:
            yield broker
