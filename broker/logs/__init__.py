"""Writes the log of a broker's process: formats lines, names their events, rotates files. Only `ottla.cli` sets this up."""
