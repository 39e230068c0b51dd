"""Handles the requests of client telemetry."""
