"""Reads partitions for consumers and followers."""
