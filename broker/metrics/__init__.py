"""Exposes the broker's metrics under the names that the JMX exporter gives Kafka's MBeans, and its health."""
