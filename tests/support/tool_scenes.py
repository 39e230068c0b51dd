"""Plays the same steps with the tools of Apache Kafka 4.4 on any broker, and returns what they said, comparably.

A step is a tool with its arguments and standard input. `{file}` in an argument is the path of a file with the step's text. Words replace
the parts of the output that differ between two runs: addresses, ids, paths, times and sizes.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.support.apache_kafka.java import QUICK_OPTIONS, java_command
from tests.support.apache_kafka_4 import LOG4J, ensure_jars_4, run_tool_4

_TOOLS = "org.apache.kafka.tools."
TOPICS = f"{_TOOLS}TopicCommand"
CONFIGS = f"{_TOOLS}ConfigCommand"
GROUPS = f"{_TOOLS}GroupsCommand"
CONSUMER_GROUPS = f"{_TOOLS}consumer.group.ConsumerGroupCommand"
SHARE_GROUPS = f"{_TOOLS}consumer.group.ShareGroupCommand"
STREAMS_GROUPS = f"{_TOOLS}streams.StreamsGroupCommand"
FEATURES = f"{_TOOLS}FeatureCommand"
CLIENT_METRICS = f"{_TOOLS}ClientMetricsCommand"
TRANSACTIONS = f"{_TOOLS}TransactionsCommand"
ACLS = f"{_TOOLS}AclCommand"
OFFSETS = f"{_TOOLS}GetOffsetShell"
LOG_DIRS = f"{_TOOLS}LogDirsCommand"
REASSIGN = f"{_TOOLS}reassign.ReassignPartitionsCommand"
ELECTION = f"{_TOOLS}LeaderElectionCommand"
DELETE_RECORDS = f"{_TOOLS}DeleteRecordsCommand"
TOKENS = f"{_TOOLS}DelegationTokenCommand"
API_VERSIONS = f"{_TOOLS}BrokerApiVersionsCommand"
CLUSTER = f"{_TOOLS}ClusterTool"
QUORUM = f"{_TOOLS}MetadataQuorumCommand"
PRODUCE = f"{_TOOLS}ConsoleProducer"
CONSUME = f"{_TOOLS}consumer.ConsoleConsumer"
SHARE = f"{_TOOLS}consumer.ConsoleShareConsumer"
VERIFIABLE_PRODUCER = f"{_TOOLS}VerifiableProducer"
VERIFIABLE_CONSUMER = f"{_TOOLS}VerifiableConsumer"
VERIFIABLE_SHARE = f"{_TOOLS}VerifiableShareConsumer"
PRODUCER_PERFORMANCE = f"{_TOOLS}ProducerPerformance"
CONSUMER_PERFORMANCE = f"{_TOOLS}ConsumerPerformance"
SHARE_PERFORMANCE = f"{_TOOLS}ShareConsumerPerformance"
COMPATIBILITY = f"{_TOOLS}ClientCompatibilityTest"

SECONDS = 120


class Step(NamedTuple):
    """A call of a tool. `text` is its standard input, or the content of `{file}`."""

    tool: str
    arguments: str
    text: str = ""

    @property
    def name(self) -> str:
        """The tool and its arguments."""
        return f"{self.tool.rpartition('.')[2]} {self.arguments}"


_DELIVERIES = "--formatter-property print.delivery=true --formatter-property print.offset=true"
_MOVE = '{"version":1,"partitions":[{"topic":"one","partition":0,"replicas":[1],"log_dirs":["any"]}]}'
_NOWHERE = '{"version":1,"partitions":[{"topic":"one","partition":0,"replicas":[9],"log_dirs":["any"]}]}'
_PARTITION = '{"partitions":[{"topic":"one","partition":0}]}'
_DELETED = '{"version":1,"partitions":[{"topic":"one","partition":0,"offset":2},{"topic":"three","partition":1,"offset":99}]}'
_TOPICS = '{"version":1,"topics":[{"topic":"one"}]}'

_EXPECTED = " ".join(
    f"--{name} {value}"
    for name, value in {
        "offsets-for-times-supported": True,
        "cluster-id-supported": True,
        "expect-record-too-large-exception": False,
        "num-cluster-nodes": 1,
        "create-topics-supported": True,
        "describe-acls-supported": True,
        "describe-configs-supported": True,
        "idempotent-producer-supported": True,
    }.items()
)

STEPS = [
    Step(TOPICS, "--create --topic one --partitions 1 --replication-factor 1 --config retention.ms=3600000"),
    Step(TOPICS, "--create --topic three --partitions 3"),
    Step(TOPICS, "--create --topic three"),
    Step(TOPICS, "--create --topic three --if-not-exists"),
    Step(TOPICS, "--create --topic bad!"),
    Step(TOPICS, "--create --topic factor --replication-factor 9"),
    Step(TOPICS, "--create --topic config --config retention.ms=soon"),
    Step(TOPICS, "--alter --topic three --partitions 4"),
    Step(TOPICS, "--alter --topic three --partitions 2"),
    Step(TOPICS, "--alter --topic none --partitions 2"),
    Step(TOPICS, "--list"),
    Step(TOPICS, "--describe --topic one"),
    Step(TOPICS, "--describe --topic three"),
    Step(TOPICS, "--describe --under-replicated-partitions"),
    Step(TOPICS, "--describe --unavailable-partitions"),
    Step(TOPICS, "--describe --topic none"),
    Step(PRODUCE, "--topic one --reader-property parse.key=true --reader-property key.separator=:", "k1:a\nk2:b\nk3:c\n"),
    Step(CONSUME, "--topic one --from-beginning --max-messages 3 --formatter-property print.offset=true"),
    Step(CONSUME, "--topic one --group new --from-beginning --max-messages 3 --command-property group.protocol=consumer"),
    Step(CONSUME, "--topic one --group old --from-beginning --max-messages 3 --command-property group.protocol=classic"),
    Step(CONSUME, "--topic one --group gone --from-beginning --max-messages 1 --command-property group.protocol=consumer"),
    Step(CONSUME, "--topic one --partition 0 --offset 1 --max-messages 2"),
    Step(CONSUME, "--topic one --group new --timeout-ms 1000 --command-property group.protocol=consumer"),
    Step(OFFSETS, "--topic-partitions one:0,three"),
    Step(OFFSETS, "--topic one --time earliest"),
    Step(OFFSETS, "--topic one --time earliest-local"),
    Step(OFFSETS, "--topic one --time latest-tiered"),
    Step(OFFSETS, "--topic none"),
    Step(DELETE_RECORDS, "--offset-json-file {file}", _DELETED),
    Step(OFFSETS, "--topic one --time earliest"),
    Step(CONFIGS, "--alter --topic one --add-config max.message.bytes=2000000,cleanup.policy=compact"),
    Step(CONFIGS, "--describe --topic one"),
    Step(CONFIGS, "--alter --topic one --delete-config cleanup.policy"),
    Step(CONFIGS, "--alter --topic one --add-config unknown.key=1"),
    Step(CONFIGS, "--alter --topic one --add-config max.message.bytes=many"),
    Step(CONFIGS, "--alter --topic none --add-config max.message.bytes=1000"),
    Step(CONFIGS, "--describe --topic none"),
    Step(CONFIGS, "--alter --entity-type brokers --entity-name 1 --add-config log.cleaner.threads=2"),
    Step(CONFIGS, "--describe --entity-type brokers --entity-name 1"),
    Step(CONFIGS, "--alter --entity-type brokers --entity-default --add-config message.max.bytes=2000000"),
    Step(CONFIGS, "--describe --entity-type brokers --entity-default"),
    Step(CONFIGS, "--alter --entity-type brokers --entity-default --delete-config message.max.bytes"),
    Step(CONFIGS, "--alter --entity-type brokers --entity-name 1 --add-config broker.id=2"),
    Step(CONFIGS, "--alter --entity-type brokers --entity-name 1 --delete-config log.cleaner.threads"),
    Step(CONFIGS, "--describe --entity-type brokers --entity-name 9"),
    Step(CONFIGS, "--alter --entity-type users --entity-name alice --add-config producer_byte_rate=1000"),
    Step(CONFIGS, "--alter --user alice --client app --add-config request_percentage=50"),
    Step(CONFIGS, "--alter --entity-type clients --entity-default --add-config consumer_byte_rate=2000"),
    Step(CONFIGS, "--alter --entity-type clients --entity-name app --add-config wrong_rate=1"),
    Step(CONFIGS, "--alter --entity-type ips --entity-name 127.0.0.9 --add-config connection_creation_rate=10"),
    Step(CONFIGS, "--alter --entity-type users --entity-name alice --add-config SCRAM-SHA-256=[iterations=4096,password=alice-secret]"),
    Step(CONFIGS, "--describe --entity-type users --entity-name alice"),
    Step(CONFIGS, "--describe --entity-type users"),
    Step(CONFIGS, "--describe --entity-type clients --entity-default"),
    Step(CONFIGS, "--describe --entity-type ips --entity-name 127.0.0.9"),
    Step(CONFIGS, "--alter --entity-type users --entity-name alice --delete-config SCRAM-SHA-256"),
    Step(CONFIGS, "--alter --entity-type users --entity-name alice --delete-config SCRAM-SHA-512"),
    Step(CONFIGS, "--alter --group new --add-config consumer.session.timeout.ms=50000"),
    Step(CONFIGS, "--alter --group new --add-config consumer.session.timeout.ms=5"),
    Step(CONFIGS, "--alter --group new --add-config unknown.key=1"),
    Step(CONFIGS, "--describe --group new"),
    Step(CONFIGS, "--describe --entity-type groups"),
    Step(CONFIGS, "--alter --group new --delete-config consumer.session.timeout.ms"),
    Step(CONFIGS, "--describe --group none"),
    Step(CLIENT_METRICS, "--alter --name m --metrics org.apache.kafka.consumer. --interval 5000 --match client_id=app"),
    Step(CLIENT_METRICS, "--alter --name m --interval 5"),
    Step(CLIENT_METRICS, "--alter --name m --match wrong"),
    Step(CLIENT_METRICS, "--list"),
    Step(CLIENT_METRICS, "--describe --name m"),
    Step(CONFIGS, "--describe --client-metrics m"),
    Step(CLIENT_METRICS, "--delete --name m"),
    Step(CLIENT_METRICS, "--describe --name m"),
    Step(CONFIGS, "--alter --group shares --add-config share.auto.offset.reset=earliest,share.record.lock.duration.ms=15000"),
    Step(SHARE, "--topic one --group shares --max-messages 1 --formatter-property print.delivery=true"),
    Step(GROUPS, "--list"),
    Step(GROUPS, "--list --consumer"),
    Step(GROUPS, "--list --share"),
    Step(GROUPS, "--list --group-type classic"),
    Step(GROUPS, "--list --protocol share"),
    Step(CONSUMER_GROUPS, "--list"),
    Step(CONSUMER_GROUPS, "--list --state"),
    Step(CONSUMER_GROUPS, "--list --type"),
    Step(CONSUMER_GROUPS, "--list --state stable --type consumer"),
    Step(CONSUMER_GROUPS, "--describe --group new"),
    Step(CONSUMER_GROUPS, "--describe --group old --verbose"),
    Step(CONSUMER_GROUPS, "--describe --group new --members --verbose"),
    Step(CONSUMER_GROUPS, "--describe --group new --state --verbose"),
    Step(CONSUMER_GROUPS, "--describe --group old --state"),
    Step(CONSUMER_GROUPS, "--describe --group none"),
    Step(CONSUMER_GROUPS, "--describe --group shares"),
    Step(CONSUMER_GROUPS, "--reset-offsets --group new --topic one --to-earliest --dry-run"),
    Step(CONSUMER_GROUPS, "--reset-offsets --group new --topic one:0 --shift-by -1 --execute"),
    Step(CONSUMER_GROUPS, "--reset-offsets --group old --all-topics --to-offset 99 --execute"),
    Step(CONSUMER_GROUPS, "--reset-offsets --group never --topic one --to-latest --execute"),
    Step(CONSUMER_GROUPS, "--reset-offsets --group old --topic one --to-current --export --dry-run"),
    Step(CONSUMER_GROUPS, "--delete-offsets --group new --topic one"),
    Step(CONSUMER_GROUPS, "--delete-offsets --group new --topic none"),
    Step(CONSUMER_GROUPS, "--delete --group gone"),
    Step(CONSUMER_GROUPS, "--delete --group none"),
    Step(SHARE_GROUPS, "--list"),
    Step(SHARE_GROUPS, "--list --state empty"),
    Step(SHARE_GROUPS, "--describe --group shares --members --verbose"),
    Step(SHARE_GROUPS, "--describe --group shares --state --verbose"),
    Step(SHARE_GROUPS, "--describe --group none --state"),
    Step(SHARE_GROUPS, "--reset-offsets --group shares --topic one --to-earliest --execute"),
    Step(SHARE_GROUPS, "--describe --group shares --offsets --verbose"),
    Step(SHARE_GROUPS, "--reset-offsets --group none --topic one --to-earliest --execute"),
    Step(SHARE_GROUPS, "--delete-offsets --group shares --topic three"),
    Step(SHARE_GROUPS, "--delete-offsets --group shares --topic one"),
    Step(SHARE_GROUPS, "--delete --group shares"),
    Step(SHARE_GROUPS, "--delete --group new"),
    Step(TOPICS, "--create --topic queue --partitions 1"),
    Step(PRODUCE, "--topic queue", "a\n"),
    Step(OFFSETS, "--topic queue --time max-timestamp"),
    Step(PRODUCE, "--topic queue", "b\nc\n"),
    Step(CONFIGS, "--alter --group workers --add-config share.auto.offset.reset=earliest"),
    Step(SHARE, f"--topic queue --group workers --max-messages 3 --release {_DELIVERIES}"),
    Step(SHARE, f"--topic queue --group workers --max-messages 1 --reject {_DELIVERIES}"),
    Step(SHARE_GROUPS, "--describe --group workers"),
    Step(SHARE_GROUPS, "--describe --group workers --offsets --verbose"),
    Step(SHARE, f"--topic queue --group workers --max-messages 2 {_DELIVERIES}"),
    Step(SHARE, f"--topic queue --group workers --timeout-ms 2000 {_DELIVERIES}"),
    Step(SHARE_GROUPS, "--list --state"),
    Step(SHARE_GROUPS, "--list --state stable"),
    Step(SHARE_GROUPS, "--describe --group workers --offsets"),
    Step(SHARE_GROUPS, "--describe --group workers --members"),
    Step(SHARE_GROUPS, "--describe --group workers --state"),
    Step(SHARE_GROUPS, "--describe --all-groups --state"),
    Step(SHARE_GROUPS, "--describe --group none"),
    Step(SHARE_GROUPS, "--describe --group none --members"),
    Step(SHARE_GROUPS, "--describe --group old"),
    Step(SHARE_GROUPS, "--reset-offsets --group workers --topic queue --to-earliest --dry-run"),
    Step(SHARE_GROUPS, "--reset-offsets --group workers --topic queue --to-latest --execute"),
    Step(SHARE_GROUPS, "--describe --group workers --offsets"),
    Step(SHARE_GROUPS, "--reset-offsets --group workers --topic queue:0 --to-offset 1 --execute"),
    Step(SHARE_GROUPS, "--reset-offsets --group workers --topic queue --to-offset 99 --execute"),
    Step(SHARE_GROUPS, "--reset-offsets --group workers --topic queue --to-datetime 2001-01-01T00:00:00.000 --execute"),
    Step(SHARE_GROUPS, "--reset-offsets --group workers --topic queue --to-datetime 2999-01-01T00:00:00.000 --execute"),
    Step(SHARE_GROUPS, "--reset-offsets --group workers --topic queue --to-current --execute"),
    Step(SHARE_GROUPS, "--reset-offsets --group workers --all-topics --to-earliest --export --dry-run"),
    Step(SHARE_GROUPS, "--reset-offsets --group workers --from-file {file} --execute", "queue,0,2\n"),
    Step(SHARE_GROUPS, "--describe --group workers --offsets"),
    Step(SHARE, f"--topic queue --group workers --max-messages 1 {_DELIVERIES}"),
    Step(SHARE_GROUPS, "--reset-offsets --group workers --topic absent --to-earliest --execute"),
    Step(SHARE_GROUPS, "--reset-offsets --group workers --topic queue:7 --to-earliest --execute"),
    Step(SHARE_GROUPS, "--reset-offsets --group old --topic queue --to-earliest --execute"),
    Step(SHARE_GROUPS, "--reset-offsets --group begun --topic queue --to-offset 1 --execute"),
    Step(SHARE_GROUPS, "--describe --group begun"),
    Step(SHARE, f"--topic queue --group begun --max-messages 2 {_DELIVERIES}"),
    Step(SHARE_GROUPS, "--delete-offsets --group workers --topic queue --topic absent"),
    Step(SHARE_GROUPS, "--delete-offsets --group workers --topic one"),
    Step(SHARE_GROUPS, "--delete-offsets --group none --topic queue"),
    Step(SHARE_GROUPS, "--delete-offsets --group unseen --topic queue"),
    Step(SHARE_GROUPS, "--delete-offsets --group old --topic queue"),
    Step(SHARE_GROUPS, "--describe --group workers --offsets"),
    Step(SHARE, f"--topic queue --group workers --max-messages 3 {_DELIVERIES}"),
    Step(SHARE_GROUPS, "--delete --group none --group workers"),
    Step(SHARE_GROUPS, "--delete --all-groups"),
    Step(SHARE_GROUPS, "--list"),
    Step(STREAMS_GROUPS, "--list"),
    Step(TRANSACTIONS, "list"),
    Step(TRANSACTIONS, "describe --transactional-id none"),
    Step(TRANSACTIONS, "describe-producers --topic one --partition 0"),
    Step(TRANSACTIONS, "find-hanging --broker-id 1"),
    Step(TRANSACTIONS, "abort --topic one --partition 0 --start-offset 0"),
    Step(TRANSACTIONS, "forceTerminateTransaction --transactionalId none"),
    Step(ACLS, "--add --allow-principal User:bob --producer --topic one"),
    Step(ACLS, "--add --deny-principal User:eve --deny-host 127.0.0.9 --operation Read --topic on --resource-pattern-type prefixed"),
    Step(ACLS, "--add --allow-principal User:bob --operation AlterConfigs --operation DescribeConfigs --group new"),
    Step(ACLS, "--add --allow-principal User:bob --operation TwoPhaseCommit --transactional-id tx"),
    Step(ACLS, "--list"),
    Step(ACLS, "--list --topic one --resource-pattern-type match"),
    Step(ACLS, "--list --principal User:eve"),
    Step(ACLS, "--remove --force --topic on --resource-pattern-type prefixed"),
    Step(ACLS, "--remove --force --resource-pattern-type any --group new --topic one --transactional-id tx"),
    Step(ACLS, "--list --principal User:bob"),
    Step(LOG_DIRS, "--describe --topic-list one"),
    Step(LOG_DIRS, "--describe --broker-list 9"),
    Step(REASSIGN, "--generate --topics-to-move-json-file {file} --broker-list 1", _TOPICS),
    Step(REASSIGN, "--execute --reassignment-json-file {file}", _MOVE),
    Step(REASSIGN, "--verify --reassignment-json-file {file}", _MOVE),
    Step(REASSIGN, "--execute --reassignment-json-file {file}", _NOWHERE),
    Step(REASSIGN, "--list"),
    Step(REASSIGN, "--cancel --reassignment-json-file {file}", _MOVE),
    Step(ELECTION, "--election-type preferred --all-topic-partitions"),
    Step(ELECTION, "--election-type preferred --topic one --partition 0"),
    Step(ELECTION, "--election-type unclean --path-to-json-file {file}", _PARTITION),
    Step(ELECTION, "--election-type preferred --topic none --partition 0"),
    Step(FEATURES, "describe"),
    Step(FEATURES, "upgrade --feature group.version=9"),
    Step(FEATURES, "upgrade --feature unknown.version=1"),
    Step(FEATURES, "downgrade --feature share.version=0 --dry-run"),
    Step(FEATURES, "upgrade --feature transaction.version=2"),
    Step(FEATURES, "version-mapping --release-version 4.4"),
    Step(FEATURES, "feature-dependencies --feature transaction.version=2"),
    Step(CLUSTER, "cluster-id"),
    Step(CLUSTER, "list-endpoints"),
    Step(CLUSTER, "unregister --id 9"),
    Step(QUORUM, "describe --status"),
    Step(VERIFIABLE_PRODUCER, "--topic one --max-messages 5 --acks -1 --repeating-keys 1"),
    Step(VERIFIABLE_CONSUMER, "--topic one --group-id verified --max-messages 6 --reset-policy earliest --group-protocol consumer"),
    Step(VERIFIABLE_SHARE, "--topic one --group-id verified-shares --max-messages 6 --offset-reset-strategy earliest"),
    Step(PRODUCER_PERFORMANCE, "--topic three --num-records 50 --record-size 100 --throughput 1000 --bootstrap-server {address}"),
    Step(CONSUMER_PERFORMANCE, "--topic three --num-records 50 --timeout 20000 --group measured"),
    Step(CONFIGS, "--alter --group measured-shares --add-config share.auto.offset.reset=earliest"),
    Step(SHARE_PERFORMANCE, "--topic three --num-records 50 --timeout 20000 --group measured-shares"),
    Step(SHARE_PERFORMANCE, "--topic three --num-records 1 --timeout 1000 --group measured-shares --hide-header"),
    Step(COMPATIBILITY, f"--topic compatibility {_EXPECTED}"),
    Step(API_VERSIONS, ""),
    Step(TOKENS, "--describe --command-config {file}"),
    Step(TOKENS, "--create --max-life-time-period -1 --command-config {file} --renewer-principal User:bob"),
    Step(TOPICS, "--delete --topic three"),
    Step(TOPICS, "--delete --topic none"),
    Step(TOPICS, "--list --exclude-internal"),
]  # fmt: skip

_WITHOUT_SERVER = (PRODUCER_PERFORMANCE,)
_WITH_THREADS = (VERIFIABLE_PRODUCER, VERIFIABLE_CONSUMER, VERIFIABLE_SHARE, COMPATIBILITY)
"""They go on after their function `main` has returned, or end their JVM, so they have one of their own."""
_REPLACED = [
    (re.compile(r"(?:localhost|127\.0\.0\.1)[:/]\d{3,5}|\d+\.\d+\.\d+\.\d+:\d{4,5}"), "ADDRESS"),
    (re.compile(r"(?:127\.0\.0\.1|localhost)(?:\s+\d{4,5}\b)?"), "HOST"),
    (re.compile(r"\[20\d\d-\d\d-\d\d[ T][\d:,]+\] (?:WARN|ERROR|INFO) "), "LOGGED "),
    (re.compile(r"20\d\d-\d\d-\d\d[ T][\d:.,]+Z?"), "DATE"),
    (re.compile(r'"timestamp":\d+'), '"timestamp":TIME'),
    (re.compile(r"\b1[78]\d{8}(?:\d{3})?\b"), "TIME"),
    (re.compile(r"/tmp/[\w./-]+|/[\w./-]*(?:data|broker|server)[\w./-]*"), "PATH"),
    (re.compile(r"console-(?:share-)?consumer-\d+"), "console-consumer-N"),
    (re.compile(r"(?<![\w=-])[A-Za-z0-9_-]{22}(?![\w=-])"), "ID"),
    (re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"Epoch: \d+"), "Epoch: N"),
    (re.compile(r'"size":\d+'), '"size":N'),
    (re.compile(r'"avg_throughput":[\d.]+'), '"avg_throughput":N'),
    (re.compile(r'"offsets":\[[\d,]+\]'), '"offsets":[N]'),
    (re.compile(r"=(?:LEADER_NOT_AVAILABLE|UNKNOWN_TOPIC_OR_PARTITION)}"), "=NOT_YET}"),
    (re.compile(r"adminclient-\d+"), "adminclient-N"),
    (re.compile(r"(LastUpdateTime|CreateTime|lastTimestamp)[:=]\s*-?\d+"), r"\1 TIME"),
]
_NUMBERS = re.compile(r"-?\d+(?:\.\d+)?(?:E-?\d+)?|NaN|Infinity|∞")
_LEFT_OUT = re.compile(
    r"^\s+at |^Caused by: |^\s*\.\.\. \d+ more|^null$|Tools\$Ended|^\s*$|^Option |^------|^--|^   +|^usage: "
    r"| to leave the group but couldn't | Close timeout of "
)
"""Lines of stack traces, of the end of a tool, of a member that is closed before its broker answers, and of the description of options."""


def play(step: Step, bootstrap: str, folder: Path) -> dict[str, object]:
    """Run a step against a broker; its status and what it said. `folder` is for the step's file."""
    file = folder / "step.json"
    file.write_text(step.text, encoding="utf-8")
    words = [word.format(file=file, address=bootstrap) if word in ("{file}", "{address}") else word for word in step.arguments.split()]
    if step.tool in (TRANSACTIONS, FEATURES, QUORUM):
        words = ["--bootstrap-server", bootstrap, *words]
    elif step.tool not in _WITHOUT_SERVER:
        words += ["--bootstrap-server", bootstrap]
    if step.tool in _WITH_THREADS:
        command = java_command((*QUICK_OPTIONS, f"-Dlog4j2.configurationFile={LOG4J}"), step.tool, *words, libs=ensure_jars_4())
        ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    else:
        ended = run_tool_4(step.tool, *words, input="" if "{file}" in step.arguments else step.text, timeout=SECONDS)
    measures = step.tool in (PRODUCER_PERFORMANCE, CONSUMER_PERFORMANCE, SHARE_PERFORMANCE)
    said = [_comparable(text, measures) for text in (ended.stdout, ended.stderr)]
    return {"step": step.name, "status": ended.returncode, "output": said[0], "errors": said[1]}


def _comparable(text: str, measures: bool) -> list[str]:
    return [_line(line, measures) for line in text.splitlines() if not _LEFT_OUT.search(line)]


def _line(line: str, measures: bool) -> str:
    for pattern, by in _REPLACED:
        line = pattern.sub(by, line)
    return " ".join((_NUMBERS.sub("N", line) if measures else line).split())
