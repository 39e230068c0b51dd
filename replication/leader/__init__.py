"""Leads partitions: progress of followers, in-sync replicas, high watermarks."""
