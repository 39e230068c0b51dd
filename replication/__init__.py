"""Replicates partitions: roles, epochs, in-sync replicas, high watermarks."""

from ottla.protocol import compiled as compiled  # decides what the imports after it find
