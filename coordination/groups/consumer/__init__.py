"""Coordinates consumer groups of the new protocol (KIP-848): the broker assigns the partitions, one heartbeat at a time."""
