"""Writes the log of a broker's process: formats lines, names their events, rotates files. Only `broker.cli` sets this up."""
