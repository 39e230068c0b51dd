"""Replicates partitions: roles, epochs, in-sync replicas, high watermarks."""
