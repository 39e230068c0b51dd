"""The clock of the system jumps an hour forward and back below a running broker.

A preloaded library shifts what the process gets from libc. `test_clock_jumps` moves the broker's own clock, and looks at more; here nothing
of the broker is replaced.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.broker_process import eventually
from tests.support.limited_producer import check_delays, delays_over_jumps
from tests.support.serve_command import Serving, serving

HOUR = 3600
SESSION_MS = 6_000
SOURCE = Path(__file__).parents[1] / "support" / "shifted_clock.c"

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler; on Debian or Ubuntu: apt-get install gcc"),
    pytest.mark.slow,
]


class Clock:
    """The clock that the process sees."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "shift"
        self._file.write_bytes(bytes(8))
        library = directory / "shifted_clock.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE)], check=True)
        self.environment = {"LD_PRELOAD": str(library), "SHIFTED_CLOCK": str(self._file)}

    def shift(self, seconds: int) -> None:
        """Let the time of day be so many seconds ahead."""
        with self._file.open("r+b") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


@pytest.fixture
def broker(tmp_path: Path, clock: Clock) -> Iterator[Serving]:
    settings = (
        "listeners=PLAINTEXT://127.0.0.1:0",
        f"log.dirs={tmp_path / 'data'}",
        "offsets.topic.num.partitions=1",
        "log.retention.check.interval.ms=100",
        "log.initial.task.delay.ms=0",
        "group.initial.rebalance.delay.ms=0",
    )
    with serving(tmp_path, *settings, environment=clock.environment) as running:
        yield running
        assert "Traceback" not in running.log()
        assert running.end() == 0


def written(producer: confluent_kafka.Producer, topic: str, value: bytes) -> None:
    producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def test_sessions_transactions_and_retention_survive_both_jumps(broker: Serving, clock: Clock) -> None:
    servers: dict[str, Any] = {"bootstrap.servers": broker.bootstrap}
    admin = AdminClient(servers)
    config = {"message.timestamp.type": "LogAppendTime", "retention.ms": str(3 * HOUR * 1000)}
    admin.create_topics([NewTopic("t", 1, 1, config=config)])["t"].result(30)
    plain = confluent_kafka.Producer({**servers, "linger.ms": 0})
    transactional = confluent_kafka.Producer({**servers, "transactional.id": "id"})
    transactional.init_transactions(30)
    options = {"group.id": "g", "auto.offset.reset": "earliest", "session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 500}
    with closing(confluent_kafka.Consumer({**servers, **options})) as consumer:
        consumer.subscribe(["t"])
        written(plain, "t", b"before")
        read: list[tuple[bytes | None, int]] = []

        def take() -> int:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                read.append((message.value(), message.timestamp()[1] // 1000 - round(time.time())))
            return len(read)

        def members() -> list[str]:
            return [member.member_id for member in admin.describe_consumer_groups(["g"])["g"].result(30).members]

        eventually(lambda: take() == 1, what="the first record")
        before = members()
        for jump, records in ((HOUR, 3), (-HOUR, 6)):
            if jump < 0:  # after the jump forward it would be too old, as with Apache Kafka
                transactional.begin_transaction()
                written(transactional, "t", b"transaction")
            clock.shift(jump)
            written(plain, "t", b"during")
            until = time.monotonic() + 1.5 * SESSION_MS / 1000
            while time.monotonic() < until:
                take()
            clock.shift(0)
            if jump < 0:
                transactional.commit_transaction(30)
            written(plain, "t", b"after")
            eventually(lambda records=records: take() == records, what="the records of a jump")
            assert members() == before
    values = [value for value, _ in read]
    assert values == [b"before", b"during", b"after", b"transaction", b"during", b"after"]
    during = [shift for value, shift in read if value == b"during"]
    assert [round(shift / HOUR) for shift in during] == [1, -1], "the broker saw the jumps"


@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forward", "back"])
def test_a_quota_delays_a_client_as_long_as_without_a_jump(broker: Serving, clock: Clock, jump: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
    written(confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap}), "t", b"value")
    check_delays(delays_over_jumps(broker.ports[0], "t", clock.shift, [jump, 0, 0]))
