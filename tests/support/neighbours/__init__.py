"""Runs programs that work with a broker: Kafka Connect, MirrorMaker 2, a schema registry, Flink, Debezium."""
