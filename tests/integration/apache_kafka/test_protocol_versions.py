"""What every inter.broker.protocol.version selects, as Apache Kafka's own MetadataVersion says it."""

import subprocess
from pathlib import Path

from ottla.config.schema.metadata_version import METADATA_VERSIONS, is_at_least
from ottla.controller.state.partition_states import FIRST_WITH_ALTER_PARTITION
from ottla.controller.znodes.topic_ids import FIRST_WITH_TOPIC_IDS
from ottla.replication.follower.leader_requests import InterBrokerVersions
from tests.support.apache_kafka import ensure_jars
from tests.support.apache_kafka.java import QUICK_OPTIONS
from tests.support.apache_kafka.marks import needs_apache_kafka

pytestmark = needs_apache_kafka

PROTOCOL_VERSIONS = Path(__file__).parents[2] / "support" / "java" / "ProtocolVersions.java"


def chosen(name: str) -> str:
    versions = InterBrokerVersions(name)
    features = (
        versions.truncates_on_fetch,
        versions.asks_for_epochs,
        is_at_least(name, FIRST_WITH_ALTER_PARTITION),
        is_at_least(name, FIRST_WITH_TOPIC_IDS),
    )
    numbers = f"{versions.fetch} {versions.list_offsets} {versions.offset_for_leader_epoch}"
    return f"{name} {numbers} {' '.join(str(feature).lower() for feature in features)}"


def test_followers_and_controllers_choose_as_apache_kafka_does_under_every_protocol_version() -> None:
    command = ["java", *QUICK_OPTIONS, "-cp", f"{ensure_jars()}/*", str(PROTOCOL_VERSIONS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert [chosen(name) for name in METADATA_VERSIONS] == done.stdout.splitlines()
