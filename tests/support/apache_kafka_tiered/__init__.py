"""Gives brokers of Apache Kafka tiered storage on a directory (LocalTieredStorage), which brokers of Ottla can share."""

from pathlib import Path
from typing import Final

from tests.support.apache_kafka.jars import ensure_jars_of, libs_directory

_POM: Final = Path(__file__).with_name("pom.xml")
STORE_CLASS: Final = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
METADATA_PARTITIONS: Final = 3


def tiered_config(store: Path, *, metadata_replicas: int = 1, listener: str = "PLAINTEXT") -> dict[str, str]:
    """Properties for brokers of either kind that keep remote segments in this directory. Raises ToolMissingError."""
    jars = ensure_jars_of(_POM, libs_directory().with_name(f"{libs_directory().name}-tiered"))
    (jar,) = jars.glob("kafka-storage-*-test.jar")
    metadata = "rlmm.config.remote.log.metadata.topic"
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": STORE_CLASS,
        "remote.log.storage.manager.class.path": str(jar),
        "remote.log.metadata.manager.listener.name": listener,
        "remote.log.manager.task.interval.ms": "500",
        "rsm.config.dir": str(store),
        f"{metadata}.num.partitions": str(METADATA_PARTITIONS),
        f"{metadata}.replication.factor": str(metadata_replicas),
    }
