"""Manages all logs of a broker: log directories, loading, creation, moves, closing."""
