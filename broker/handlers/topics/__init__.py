"""Handles requests about topics, partitions and replicas."""
