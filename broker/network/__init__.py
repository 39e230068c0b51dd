"""Accepts connections, reads requests, and writes answers."""
