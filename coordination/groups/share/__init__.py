"""Coordinates the members of share groups (KIP-932), with the machinery of consumer groups: members share what the broker assigns."""
