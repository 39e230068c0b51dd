"""Limits how much of this broker users and client ids use: Kafka's client quotas."""
