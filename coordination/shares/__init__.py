"""Serves share groups (KIP-932): share partitions at the leaders of partitions, and the coordinator of their stored state."""
