"""Reads, moves and deletes the offsets of groups."""
