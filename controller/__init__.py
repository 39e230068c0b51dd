"""Keeps the cluster's metadata and decides about it: elections, topics, reassignments, configurations."""
