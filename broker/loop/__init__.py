"""Provides the clock, background work and threads beside the event loop."""
