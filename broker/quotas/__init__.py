"""Limits the usage of this broker by users and client ids: Kafka's client quotas."""
