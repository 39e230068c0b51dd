"""Lists the MBeans of Apache Kafka without a metric here, and the reasons. A test compares this list and the families
with the recorded names."""

from __future__ import annotations

import re
from typing import Final

NO_CLIENT_METRICS: Final = "connections to other brokers are not measured one by one: see the fetchers, and the controller's queues"
NO_NAME: Final = "the exporter's rules give it no name"
NO_EVENT: Final = "it is not an event of the controller here"
NO_SASL_TO_ZOOKEEPER: Final = "SASL logins to ZooKeeper are not counted; refused ones are in ZooKeeperAuthFailuresPerSec"
NO_SUCH_THING: Final = "it does not exist here"
ONE_LOOP: Final = "everything runs on one event loop: see ottla_event_loop_lag_seconds"
AS_TEXT: Final = "its value is text: see the log, or DescribeCluster and ApiVersions"

UNCOVERED: Final = (
    ("kafka.controller:name=ControllerShutdownRateAndTimeMs,type=ControllerStats", NO_EVENT),
    ("kafka.controller:name=ListPartitionReassignmentRateAndTimeMs,type=ControllerStats", NO_EVENT),
    ("kafka.controller:name=UpdateFeaturesRateAndTimeMs,type=ControllerStats", NO_EVENT),
    ("kafka.controller:name=FencedBrokerCount,type=KafkaController", "brokers are fenced in KRaft only"),
    ("kafka.controller:name=ZkMigrationState,type=KafkaController", "Ottla brokers take no part in a migration to KRaft"),
    ("kafka.log:name=DeadThreadCount,type=LogCleaner", "the cleaner is a process; a dead one is replaced"),
    ("kafka.network:listener=*,name=AcceptorBlockedPercent,type=Acceptor", ONE_LOOP),
    ("kafka.network:name=ControlPlane*,type=SocketServer", "the control plane has no processors of its own"),
    (
        "kafka.network:name=MemoryPool*,type=SocketServer",
        "when queued.max.request.bytes are in use, only large requests wait, in the kernel",
    ),
    ("kafka.server:BrokerId=*,type=alter-partition-metrics", NO_CLIENT_METRICS),
    ("kafka.server:BrokerId=*,type=forwarding-metrics", "nothing is forwarded without KRaft"),
    ("kafka.server:broker-id=*,type=controller-channel-metrics", NO_CLIENT_METRICS),
    (
        "kafka.server:clientId=*,name=*,type=ReplicaAlterLogDirsManager",
        "a move between directories is not a fetcher: DescribeLogDirs shows the progress of each",
    ),
    ("kafka.server:id=*,type=app-info", AS_TEXT),
    ("kafka.server:name=ClusterId,type=KafkaServer", AS_TEXT),
    ("kafka.server:name=SessionState,type=SessionExpireListener", AS_TEXT),
    ("kafka.server:name=ZooKeeperReadOnlyConnectsPerSec,type=SessionExpireListener", "read-only servers of ZooKeeper are not connected to"),
    ("kafka.server:name=ZooKeeperSaslAuthenticationsPerSec,type=SessionExpireListener", NO_SASL_TO_ZOOKEEPER),
    ("kafka.server:name=yammer-metrics-count,type=KafkaServer", NO_SUCH_THING),
    ("kafka.server:type=AddPartitionsManager-channel-metrics", NO_CLIENT_METRICS),
    ("kafka.server:type=LeaderReplication", NO_NAME),
    ("kafka.server:type=app-info", AS_TEXT),
    ("kafka.server:type=kafka-metrics-count", NO_SUCH_THING),
    ("kafka:type=kafka.Log4jController", "no metric: log levels are changed with kafka-configs.sh --entity-type broker-loggers"),
)
"""(pattern of MBeans, reason); a star matches anything in one property, at the end everything that follows."""


def why_uncovered(mbean: str) -> str | None:
    """The reason; None for an MBean that is not listed."""
    return next((reason for pattern, reason in UNCOVERED if _matches(pattern, mbean)), None)


def _matches(pattern: str, mbean: str) -> bool:
    expression = re.escape(pattern.removesuffix("*")).replace(r"\*", "[^,]*")
    return re.fullmatch(expression + (".*" if pattern.endswith("*") else ""), mbean) is not None
