"""Coordinates the stored state of share partitions: which records of a partition a share group has already processed."""
