"""The commands of the README and of docs/first-steps.md, in their order, in an empty folder, with the output that they show.

The broker has a free port instead of 9092, and `.venv/bin/ottla` is the Ottla of the tests. The commands for Spark and validate, which take
minutes, are those of `tests/integration/spark`.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.apache_kafka import run_tool
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.java_pair import CONFIGS, CONSUMER, GROUPS, PRODUCER, TOPICS
from tests.support.serve_command import Serving, serving

ROOT = Path(__file__).parents[2]
PAGES = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/first-steps.md"))
SECONDS = 60

TOOLS = {
    "kafka-topics.sh": TOPICS,
    "kafka-console-producer.sh": PRODUCER,
    "kafka-console-consumer.sh": CONSUMER,
    "kafka-consumer-groups.sh": GROUPS,
    "kafka-configs.sh": CONFIGS,
    "kafka-dump-log.sh": "kafka.tools.DumpLogSegments",
}


def blocks(section: str, language: str = "") -> list[str]:
    """The fenced blocks of a section in a language, up to the next heading."""
    _, _, after = f"\n{PAGES}".partition(f"\n{section}\n")
    assert after, section
    text = re.split(r"^#+ ", after, maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


class Reader:
    """A reader of the README who types its commands."""

    def __init__(self, folder: Path, broker: Serving) -> None:
        self.folder = folder
        self.port = str(broker.ports[0])
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "OTTLA_"))}
        self.environment |= {"PYTHONPATH": str(ROOT), "OTTLA_BOOTSTRAP_SERVER": broker.bootstrap}

    def with_port(self, text: str) -> str:
        return text.replace("9092", self.port)

    def run(self, command: str, program: list[str] | None = None) -> str:
        """What a command prints, errors included. It must succeed."""
        words = self.with_port(command.replace(".venv/bin/ottla", f"{sys.executable} -m ottla"))
        done = subprocess.run(
            program or ["sh", "-c", words],
            input=None if program is None else words,
            stdin=subprocess.DEVNULL if program is None else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            env=self.environment,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}"
        return done.stdout


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """`make serve` in an empty folder."""
    folder = tmp_path_factory.mktemp("empty")
    with serving(folder, "listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=./data") as broker:
        first, _ = blocks("# Ottla", "console")
        assert first == f"$ make serve\n{broker.line.replace(str(broker.ports[0]), '9092')}"
        yield Reader(folder, broker)


def seen(text: str) -> list[list[str]]:
    """The words of each line; a time and the id of a cluster are another each time."""
    text = re.sub(r"in \d+\.\d s", "in 0.0 s", text)
    return [re.sub(r"^cluster [\w-]{22}$", "cluster ID", line).split() for line in text.splitlines()]


def test_the_session_of_the_first_screen_prints_what_it_shows(reader: Reader) -> None:
    _, session = blocks("# Ottla", "console")
    steps = [step.partition("\n") for step in re.split(r"^\$ ", session, flags=re.MULTILINE) if step]
    assert len(steps) == 3
    for command, _, shown in steps:
        assert seen(reader.run(command)) == seen(reader.with_port(shown)), command


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is missing")
def test_kcat(reader: Reader) -> None:
    (commands,) = blocks("### kcat")
    produced, consumed, read_by_group, listed = [reader.run(command) for command in commands.splitlines()]
    assert produced == ""
    assert [line for line in consumed.splitlines() if not line.startswith("%")] == ["hello, broker", "one", "two", "three"]
    assert {"one", "two", "three"} <= set(read_by_group.splitlines())
    assert 'topic "greetings" with 1 partitions' in listed


def test_the_programs_in_python(reader: Reader) -> None:
    python = [sys.executable, "-W", "ignore", "-"]
    (confluent,) = blocks("### confluent-kafka", "python")
    assert reader.run(confluent, python).splitlines() == [f"b'customer-{n}' b'order {n}'" for n in range(3)]
    (kafka_python,) = blocks("### kafka-python", "python")
    lines = reader.run(kafka_python.replace("10_000", "3_000"), python).splitlines()
    assert lines == [f"0 {n} b'customer-{n}' b'order {n}'" for n in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [pytest.param(line, marks=needs_apache_kafka) for line in blocks("### Apache Kafka's tools")[0].splitlines()]
)
def test_apache_kafkas_tools(reader: Reader, command: str) -> None:
    before, _, call = command.rpartition("bin/")
    script, *arguments = reader.with_port(call).replace("DATA", str(reader.folder / "data")).split()
    input = subprocess.run(["sh", "-c", before.rstrip(" |")], capture_output=True, text=True, check=True).stdout if before else ""
    done = run_tool(TOOLS[script], *arguments, input=input)
    assert done.returncode == 0, done
    shown = {"kafka-topics.sh": "events", "kafka-console-consumer.sh": "a\t1\nb\t2\n", "kafka-consumer-groups.sh": "billing"}
    assert shown.get(script, "") in done.stdout


@pytest.mark.cluster
def test_the_commands_for_several_brokers(tmp_path: Path, reader: Reader) -> None:
    up, *commands = blocks("## Several brokers")[0].splitlines()
    ottla_up = up.partition("# or: ")[2]
    own = Reader.__new__(Reader)
    own.folder, own.port, own.environment = tmp_path, reader.port, dict(reader.environment)
    told = own.run(f"{ottla_up} --base-port 0 --detach")
    try:
        own.environment["OTTLA_BOOTSTRAP_SERVER"] = told.rpartition(": ")[2].strip()
        status, created, killed = [own.run(command.partition("#")[0].strip()) for command in commands]
        assert [line.split()[0] for line in status.splitlines()] == ["ID", "0", "1", "2"]
        assert created == "orders: created\n"
        assert killed == ""
    finally:
        own.run(".venv/bin/ottla cluster down")
