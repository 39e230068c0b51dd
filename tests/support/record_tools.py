"""Records what the tools of Apache Kafka 4.4 say of a broker of 4.4: `python -m tests.support.record_tools`.

It starts the broker, and writes `tests/recorded/tools-4.4.jsonl`: a line for each step of `tool_scenes.STEPS`.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.support.apache_kafka_4.node import ApacheKafka4
from tests.support.tool_scenes import STEPS, play

RECORDING = Path(__file__).parents[1] / "recorded" / "tools-4.4.jsonl"
_CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
}


def main() -> None:
    """Play the steps, write the file."""
    with tempfile.TemporaryDirectory() as folder, ApacheKafka4(Path(folder, "node"), _CONFIG) as node:
        lines = [json.dumps(play(step, node.bootstrap, Path(folder)), ensure_ascii=False) for step in STEPS]
    RECORDING.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} steps in {RECORDING}")


if __name__ == "__main__":
    main()
