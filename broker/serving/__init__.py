"""Dispatches requests to their handlers, and encodes the answers."""
