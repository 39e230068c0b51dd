"""Runs a broker for tests: it keeps its data in a directory of its own, ends with its parent, and fails on request."""
