"""Runs the command line tools of Apache Kafka 4.4 against any broker, in JVMs that stay (`tests.support.apache_kafka.tools`).

The jars are in `APACHE_KAFKA4_LIBS` or `~/.cache/apache-kafka-4.4.0`, and come from Maven once.
"""

import os
import subprocess
from pathlib import Path

from tests.support.apache_kafka.jars import ensure_jars_of
from tests.support.apache_kafka.marks import needs_jars_in
from tests.support.apache_kafka.tools import ToolJvm

LOG4J = Path(__file__).with_name("log4j2.yaml")
KAFKA_4_VERSION = "4.4.0"
_LIBS = Path(os.environ.get("APACHE_KAFKA4_LIBS") or Path.home() / ".cache" / f"apache-kafka-{KAFKA_4_VERSION}")

needs_apache_kafka_4 = needs_jars_in(_LIBS)
"""The mark of test modules that need the jars."""

_idle: dict[int, list[ToolJvm]] = {}


def ensure_jars_4() -> Path:
    """The folder with the jars of Apache Kafka 4.4. Raises ToolMissingError."""
    return ensure_jars_of(Path(__file__).with_name("pom.xml"), _LIBS)


def run_tool_4(class_name: str, *arguments: str, input: str = "", timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a tool of 4.4 to its end, as `tests.support.apache_kafka.run_tool`."""
    idle = _idle.setdefault(os.getpid(), [])
    jvm = idle.pop() if idle else ToolJvm((f"-Dlog4j2.configurationFile={LOG4J}",), libs=ensure_jars_4())
    ended = jvm.run((class_name, *arguments), input, timeout)
    idle.append(jvm)
    return ended
