"""Runs one of Apache Kafka's command line tools at the same time against a broker of ours and Apache Kafka; returns both outputs.

Values that differ between any two brokers are replaced: addresses, directories, ids of topics and members, times.
"""

import difflib
import re
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.acl_requests import ANONYMOUS, AUTHORIZER
from tests.support.apache_kafka import ApacheKafka, run_tool
from tests.support.broker_process import BrokerProcess, a_broker

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
PRODUCER = "kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
API_VERSIONS = "kafka.admin.BrokerApiVersionsCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"

PASSWORD_SECRET = "a secret"
"""password.encoder.secret of both brokers."""
_SAME_CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "broker.rack": "r0",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    # A hanging transaction can only be made where no leader asks a coordinator about it.
    "transaction.partition.verification.enable": "false",
    "authorizer.class.name": AUTHORIZER,
    "super.users": ANONYMOUS,
    "password.encoder.secret": PASSWORD_SECRET,
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "zookeeper.session.timeout.ms": "4000",
    "controlled.shutdown.enable": "false",  # it would wait for replicas that are nowhere, of a topic of test_java_tools.py
}
_VARYING = (
    (re.compile(r"TopicId: \S+"), "TopicId: ID"),
    (re.compile(r"CreateTime:\d+"), "CreateTime:T"),
    (re.compile(r"clientId=adminclient-\d+"), "clientId=adminclient-N"),  # a JVM counts those of all tools that it has run
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"^\[[-0-9]{10} [0-9:,]{12}\] ", re.MULTILINE), ""),
    (re.compile(r"^\tat .*\n", re.MULTILINE), ""),
    (re.compile(r" +$", re.MULTILINE), ""),
)


class Said(NamedTuple):
    """How a tool ended and what it printed."""

    status: int
    output: str
    errors: str


class Pair:
    """Two brokers, both with id 0 and rack r0."""

    def __init__(self, ours: BrokerProcess, theirs: ApacheKafka) -> None:
        self.ours = ours
        self.theirs = theirs

    def run(self, tool: str, *arguments: str, input: str = "", bootstrap: str = "--bootstrap-server") -> tuple[Said, Said]:
        """The tool's outputs for our broker and for Apache Kafka."""

        def against(address: str, data: Path) -> Said:
            done = run_tool(tool, bootstrap, address, *arguments, input=input)
            return self._said(done, address, data)

        with ThreadPoolExecutor(2) as both:
            ours = both.submit(against, self.ours.bootstrap, self.ours.data)
            theirs = both.submit(against, self.theirs.bootstrap, self.theirs.data_directory())
            return ours.result(), theirs.result()

    def same(self, tool: str, *arguments: str, input: str = "") -> Said:
        """The tool's output, which must be equal for both brokers."""
        ours, theirs = self.run(tool, *arguments, input=input)
        assert ours == theirs, "\n".join(difflib.ndiff(repr(theirs).split("\\n"), repr(ours).split("\\n")))
        return ours

    def same_each(self, *calls: Sequence[str]) -> list[Said]:
        """The outputs of tools, called one after the other as (tool, argument, ...); each must be equal for both brokers."""
        return [self.same(*call) for call in calls]

    @staticmethod
    def _said(done: subprocess.CompletedProcess[str], address: str, data: Path) -> Said:
        texts = []
        for text in (done.stdout, done.stderr):
            plain = text.replace(str(data), "DATA").replace(address, "ADDRESS").replace(address.rpartition(":")[2], "PORT")
            for pattern, instead in _VARYING:
                plain = pattern.sub(instead, plain)
            texts.append(plain)
        return Said(done.returncode, *texts)


@contextmanager
def a_pair(directory: Path) -> Iterator[Pair]:
    """Both brokers running."""
    config = {name.replace(".", "_"): value for name, value in _SAME_CONFIG.items()}
    kafka = ApacheKafka(directory / "theirs", config=_SAME_CONFIG, heap="256m")
    with kafka as theirs:
        # A broker on a metadata file is one of Kafka 4; in a folder of the same ZooKeeper it is one of 3.9.
        store = f"{theirs.zookeeper.connect.partition('/')[0]}/ours"
        with a_broker(directory / "ours", broker_id=0, zookeeper_connect=store, **config) as ours:
            yield Pair(ours, theirs)
