"""Defines the parts of a run, one file per part: its turns, and the lines, details and curves of its result."""
