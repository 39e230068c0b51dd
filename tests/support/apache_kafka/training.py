"""Writes the class archives: a broker and the tools do once what tests have them do. Called by `tests.support.prerequisites`."""

import tempfile
from pathlib import Path

from tests.support.apache_kafka.brokers import ApacheKafka
from tests.support.apache_kafka.class_archives import BROKER, TOOLS, archive, writing
from tests.support.apache_kafka.jars import ensure_jars
from tests.support.apache_kafka.java import QUICK_OPTIONS
from tests.support.apache_kafka.tools import ToolJvm

_TOOL = "org.apache.kafka.tools."


def write_missing_archives() -> None:
    """Fetch the jars and write those archives that are not there. Raises ToolMissingError, DidNotStartError."""
    libs = ensure_jars()
    if archive(BROKER).exists() and archive(TOOLS).exists():
        return
    with tempfile.TemporaryDirectory(prefix="archives-", dir=libs) as scratch:
        written = Path(scratch)
        options = (*QUICK_OPTIONS, *writing(written / BROKER))
        with ApacheKafka(written / "kafka", heap="256m", options=options) as kafka, ToolJvm(writing(written / TOOLS)) as tools:
            for call in _calls(kafka.bootstrap):
                tools.run(call, "", timeout=60)
        for name in (BROKER, TOOLS):
            if (written / name).exists():  # Java before 13 writes none
                (written / name).rename(archive(name))


def _calls(bootstrap: str) -> list[tuple[str, ...]]:
    at = ("--bootstrap-server", bootstrap)
    return [
        (f"{_TOOL}TopicCommand", *at, "--create", "--topic", "t", "--partitions", "2"),
        (f"{_TOOL}TopicCommand", *at, "--describe"),
        ("kafka.admin.ConfigCommand", *at, "--describe", "--all", "--entity-type", "topics", "--entity-name", "t"),
        (f"{_TOOL}ProducerPerformance", *_perf(bootstrap)),
        (f"{_TOOL}consumer.ConsoleConsumer", *at, "--topic", "t", "--from-beginning", "--max-messages", "10", "--group", "g"),
        (f"{_TOOL}GetOffsetShell", *at, "--topic", "t"),
        (f"{_TOOL}consumer.group.ConsumerGroupCommand", *at, "--describe", "--all-groups"),
        (f"{_TOOL}LogDirsCommand", *at, "--describe"),
        (f"{_TOOL}TopicCommand", *at, "--delete", "--topic", "t"),
    ]


def _perf(bootstrap: str) -> tuple[str, ...]:
    sizes = ("--num-records", "10", "--record-size", "100", "--throughput", "-1")
    return ("--topic", "t", *sizes, "--producer-props", f"bootstrap.servers={bootstrap}", "compression.type=lz4")
