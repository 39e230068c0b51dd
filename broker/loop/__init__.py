"""Provides timers, purgatories and threads beside the event loop."""
