"""Apache Kafka's own message classes read random values of every message and version, and write the bytes that we write."""

import importlib
import pkgutil
import subprocess
from pathlib import Path

import ottla.protocol.messages
from ottla.protocol.schema.message import Message
from tests.support.apache_kafka import ensure_jars
from tests.support.apache_kafka.java import QUICK_OPTIONS
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.message_table import RandomMessages, SlowEncoder, tables_of, valid_versions

pytestmark = needs_apache_kafka

ROUND_TRIP = Path(__file__).parent.parent / "support" / "java" / "MessageRoundTrip.java"
VALUES_PER_VERSION = 5


def message_classes() -> dict[str, type[Message]]:
    modules = [
        importlib.import_module(f"ottla.protocol.messages.{info.name}") for info in pkgutil.iter_modules(ottla.protocol.messages.__path__)
    ]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Message) and value is not Message
    }


def test_apache_kafka_reads_what_we_write_and_writes_the_same(tmp_path: Path) -> None:
    classes = message_classes()
    lines = []
    tables = tables_of("3.9")
    for name in sorted(name for name in tables.keys() & classes.keys() if "Share" not in name):  # in 3.9 a preview
        table, declared = tables[name], classes[name]
        for version in valid_versions(table):
            made = RandomMessages(table, version, "java")
            for _ in range(VALUES_PER_VERSION):
                message, _ = declared.decode(SlowEncoder(table, version).encode(made.make()), version)
                lines.append(f"{name} {version} {message.encode(version).hex()}")
    frames = tmp_path / "frames"
    frames.write_text("\n".join(lines))
    command = ["java", *QUICK_OPTIONS, "-cp", f"{ensure_jars()}/*", str(ROUND_TRIP), str(frames)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.split("\n")[-2:] == [str(len(lines)), ""], done.stdout[:2000] + done.stderr[-2000:]
