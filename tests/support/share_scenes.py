"""Plays the same scenes with share consumers of Java and librdkafka on any broker, and returns what they got.

`python -m tests.support.share_scenes` starts an Apache Kafka 4.4, plays the scenes there, and writes
`tests/recorded/share-clients-4.4.jsonl`. `tests/integration/shares/test_share_clients.py` plays them on Ottla.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.apache_kafka.java import QUICK_OPTIONS, java_command
from tests.support.apache_kafka_4 import ensure_jars_4
from tests.support.apache_kafka_4.node import ApacheKafka4
from tests.support.broker_process import BrokerProcess
from tests.support.share_clients import begin_group, librdkafka_outcome
from tests.support.share_members import produce
from tests.support.wire_client import WireClient, a_wire_client

RECORDING = Path(__file__).parents[1] / "recorded" / "share-clients-4.4.jsonl"
JAVA, LIBRDKAFKA = "java", "librdkafka"
LONG_LOCK_MS, RENEWED_LOCK_MS, SHORT_LOCK_MS = 30_000, 6_000, 8_000
GROUP_RESOURCE = 32
_PROGRAM = Path(__file__).with_name("java") / "ShareMember.java"
_SECONDS = 150
_CONFIG = {"group.share.min.record.lock.duration.ms": "1000", "offsets.topic.num.partitions": "1"}


class Run(NamedTuple):
    """A member that joins, treats `count` records as its mode says, and leaves. Batches of these sizes are written before."""

    batches: tuple[int, ...]
    mode: str
    count: int


class Scene(NamedTuple):
    """Members of one group, one after the other."""

    client: str
    name: str
    lock_ms: int
    runs: tuple[Run, ...]


_OF_BOTH = {
    "accepts what it has polled": (LONG_LOCK_MS, (Run((10, 10, 10), "implicit", 30), Run((1,), "implicit", 1))),
    "accepts, releases and rejects single records": (LONG_LOCK_MS, (Run((9,), "explicit", 9),)),
    "leaves without an answer": (LONG_LOCK_MS, (Run((5,), "silent", 5), Run((), "implicit", 5))),
    "accepts when the lock has ended": (SHORT_LOCK_MS, (Run((1,), "late", 1),)),
    "releases until the last delivery": (LONG_LOCK_MS, (Run((1,), "release", 5), Run((1,), "implicit", 1))),
}
SCENES = [
    *(Scene(client, name, *rest) for client in (JAVA, LIBRDKAFKA) for name, rest in _OF_BOTH.items()),
    Scene(JAVA, "renews a lock", RENEWED_LOCK_MS, (Run((1,), "renew", 1),)),
]


def play(scene: Scene, broker: BrokerProcess | ApacheKafka4) -> list[list[str]]:
    """Play a scene. Returns the deliveries and answers of each member, in alphabetical order: members promise no other."""
    name = f"{scene.client}-{scene.name}".translate(str.maketrans(" ,", "--"))
    said = []
    with a_wire_client(broker.port) as client:
        _set_lock(client, name, scene.lock_ms)
        begin_group(client, name, name)
        for run in scene.runs:
            for count in run.batches:
                produce(client, name, count)
            said.append(sorted(_members[scene.client](broker, name, run.mode, run.count)))
    return said


def _set_lock(client: WireClient, group: str, lock_ms: int) -> None:
    lock = AlterableConfig(name="share.record.lock.duration.ms", value=str(lock_ms))
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=[lock])
    answer = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0, answer


def _java_outcome(broker: BrokerProcess | ApacheKafka4, name: str, mode: str, count: int) -> list[str]:
    command = java_command(QUICK_OPTIONS, _PROGRAM, broker.bootstrap, name, name, mode, str(count), libs=ensure_jars_4())
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


_members = {JAVA: _java_outcome, LIBRDKAFKA: librdkafka_outcome}


def main() -> None:
    """Play the scenes, write the file."""
    with tempfile.TemporaryDirectory() as folder, ApacheKafka4(Path(folder, "node"), _CONFIG) as node:
        lines = [json.dumps({"client": each.client, "scene": each.name, "members": play(each, node)}) for each in SCENES]
    RECORDING.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} scenes in {RECORDING}")


if __name__ == "__main__":
    main()
