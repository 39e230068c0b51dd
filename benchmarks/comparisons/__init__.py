"""Compares one subject with Apache Kafka, each with a command of its own."""
