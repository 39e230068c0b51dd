"""Handles the requests of share groups."""
