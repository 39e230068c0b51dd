"""Maps well-known names of Apache Kafka's loggers to the packages and modules of this broker that do the same work.

The names are those of Kafka's `config/log4j.properties`, and of the classes that its documentation recommends to watch. An alias and its
logger are the same logger: a level set for one is the level of the other. `broker.configuration.loggers` lists both.
"""

from typing import Final

KAFKA_LOGGERS: Final = {
    "kafka.authorizer.logger": "kafka.authorizer.logger",
    "kafka.cluster.Partition": "replication.leader",
    "kafka.controller": "controller",
    "kafka.controller.KafkaController": "controller.controller",
    "kafka.coordinator.group": "broker.groups",
    "kafka.coordinator.group.GroupCoordinator": "broker.groups.coordinator",
    "kafka.coordinator.transaction": "broker.transactions",
    "kafka.coordinator.transaction.TransactionCoordinator": "broker.transactions.coordinator",
    "kafka.log": "storage",
    "kafka.log.LogCleaner": "storage.cleaner",
    "kafka.log.LogManager": "storage.manager",
    "kafka.log.UnifiedLog": "storage.log",
    "kafka.network": "broker.network",
    "kafka.network.Processor": "broker.network.processor",
    "kafka.network.RequestChannel$": "broker.metrics.request_log",
    "kafka.request.logger": "broker.metrics.request_log",
    "kafka.server": "broker",
    "kafka.server.DynamicBrokerConfig": "broker.configuration",
    "kafka.server.KafkaApis": "broker.handlers",
    "kafka.server.KafkaServer": "broker.server",
    "kafka.server.ReplicaFetcherThread": "replication.follower",
    "kafka.server.ReplicaManager": "replication.control",
    "kafka.zk": "controller.store",
    "org.apache.zookeeper": "kazoo",
    "state.change.logger": "controller.state",
}
"""Kafka's name -> the name of the Python logger."""

MODULES: Final = {"kafka.authorizer.logger": "broker.security.audit_log"}
"""Logger with Kafka's name -> the module that logs with it; all other loggers have the names of their modules."""
