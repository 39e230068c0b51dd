"""Coordinates consumer groups of the classic protocol and their committed offsets."""
