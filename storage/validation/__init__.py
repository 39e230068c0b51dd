"""Validates record batches of producers."""
