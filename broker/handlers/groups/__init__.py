"""Handles requests about groups and committed offsets."""
