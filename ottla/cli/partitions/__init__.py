"""Implements the commands of `ottla topics` that elect leaders of partitions and move their replicas."""
