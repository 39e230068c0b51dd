"""Commands go on when a broker of a cluster of Apache Kafka dies and leaders and coordinators move."""

from pathlib import Path

import pytest

from tests.support.apache_kafka import ApacheKafka
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import eventually
from tests.support.command_line import CommandLine, kill

pytestmark = [*needs_apache_kafka, pytest.mark.slow, pytest.mark.soak]

CONFIG = {"offsets.topic.num.partitions": "2", "offsets.topic.replication.factor": "2"}
RECORDS = 300


def test_nothing_is_lost_or_doubled_when_a_leader_dies(tmp_path: Path) -> None:
    with ApacheKafka(tmp_path, brokers=2, heap="256m", config=CONFIG) as kafka:
        ottla = CommandLine(kafka.bootstrap)
        ottla("topics", "create", "moved", "--replica-assignment", "0:1,1:0")
        assert {row[1] for row in ottla("topics", "describe", "moved").rows[1:]} == {"0", "1"}
        assert ottla("groups", "list").rows == []
        reading = ottla.start("consume", "-q", "-G", "g", "-c", str(RECORDS), "moved")
        writing = ottla.start("produce", "--json", "--rate", "60", "moved")
        try:
            assert writing.stdin is not None
            writing.stdin.write(b"".join(b'{"value": "%d", "partition": %d}\n' % (n, n % 2) for n in range(RECORDS)))
            writing.stdin.close()
            eventually(lambda: int(ottla("topics", "offsets", "moved:1").rows[0][3]) > 20, 60)
            kafka.kill_broker(1)
            assert writing.wait(90) == 0, writing.stderr and writing.stderr.read()
            assert reading.stdout is not None
            read = [int(line) for line in reading.stdout.read().split()]
            assert reading.wait(60) == 0, reading.stderr and reading.stderr.read()
        finally:
            kill(reading, writing)
        assert {row[1] for row in ottla("topics", "describe", "moved").rows[1:]} == {"0"}
        assert sorted(map(int, ottla("consume", "-e", "moved").lines)) == list(range(RECORDS))
        assert set(read) <= set(range(RECORDS))
        for partition in range(2):
            in_order = [number for number in dict.fromkeys(read) if number % 2 == partition]
            assert in_order == sorted(in_order)
