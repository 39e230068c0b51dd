"""Records what Java's Admin of Apache Kafka 4.4 hears from a broker of 4.4: `python -m tests.support.record_admin`.

It starts the broker, and writes `tests/recorded/admin-4.4.txt`: a line for each call of `java/AdminMethods.java`.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from tests.support.apache_kafka.java import QUICK_OPTIONS, java_command
from tests.support.apache_kafka_4 import ensure_jars_4
from tests.support.apache_kafka_4.node import ApacheKafka4

RECORDING = Path(__file__).parents[1] / "recorded" / "admin-4.4.txt"
_PROGRAM = Path(__file__).parent / "java" / "AdminMethods.java"
_CONFIG = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
_SECONDS = 400


def heard(bootstrap: str) -> list[str]:
    """The lines of the program about an empty cluster. Its clients also log, to the same stream."""
    command = java_command(QUICK_OPTIONS, _PROGRAM, bootstrap, libs=ensure_jars_4())
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert ended.returncode == 0, ended.stderr
    return [line for line in ended.stdout.splitlines() if line.startswith("> ")]


def main() -> None:
    """Run the program, write the file."""
    with tempfile.TemporaryDirectory() as folder, ApacheKafka4(Path(folder, "node"), _CONFIG) as node:
        lines = heard(node.bootstrap)
    RECORDING.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} lines in {RECORDING}")


if __name__ == "__main__":
    main()
