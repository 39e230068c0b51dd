"""Reads requests and writes answers of the hot path without an object for each element."""
