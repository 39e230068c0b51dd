"""Maps well-known names of Apache Kafka's loggers to the packages and modules of this broker that do the same work.

The names are those of Kafka's `config/log4j.properties`, and of the classes that its documentation recommends to watch. An alias and its
logger are the same logger: a level set for one is the level of the other. `ottla.broker.configuration.loggers` lists both.
"""

from typing import Final

KAFKA_LOGGERS: Final = {
    "kafka.authorizer.logger": "kafka.authorizer.logger",
    "kafka.cluster.Partition": "ottla.replication.leader",
    "kafka.controller": "ottla.controller",
    "kafka.controller.KafkaController": "ottla.controller.controller",
    "kafka.coordinator.group": "ottla.coordination.groups",
    "kafka.coordinator.group.GroupCoordinator": "ottla.coordination.groups.coordinator",
    "kafka.coordinator.transaction": "ottla.coordination.transactions",
    "kafka.coordinator.transaction.TransactionCoordinator": "ottla.coordination.transactions.coordinator",
    "kafka.log": "ottla.storage",
    "kafka.log.LogCleaner": "ottla.storage.cleaner",
    "kafka.log.LogManager": "ottla.storage.manager",
    "kafka.log.UnifiedLog": "ottla.storage.log",
    "kafka.network": "ottla.broker.network",
    "kafka.network.Processor": "ottla.broker.network.processor",
    "kafka.network.RequestChannel$": "ottla.broker.metrics.request_log",
    "kafka.request.logger": "ottla.broker.metrics.request_log",
    "kafka.server": "ottla.broker",
    "kafka.server.DynamicBrokerConfig": "ottla.broker.configuration",
    "kafka.server.KafkaApis": "ottla.broker.handlers",
    "kafka.server.KafkaServer": "ottla.broker.server",
    "kafka.server.ReplicaFetcherThread": "ottla.replication.follower",
    "kafka.server.ReplicaManager": "ottla.replication.control",
    "kafka.zk": "ottla.controller.store",
    "org.apache.zookeeper": "kazoo",
    "state.change.logger": "ottla.controller.state",
}
"""Kafka's name -> the name of the Python logger."""

MODULES: Final = {"kafka.authorizer.logger": "ottla.broker.security.audit_log"}
"""Logger with Kafka's name -> the module that logs with it; all other loggers have the names of their modules."""
