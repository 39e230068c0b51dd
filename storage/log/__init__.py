"""Implements the log of one partition: appends, reads, flushes, truncation, recovery."""
