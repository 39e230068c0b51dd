"""What the broker tells of itself: Kafka's metrics under the names that the JMX exporter gives them, and whether the broker is well."""
