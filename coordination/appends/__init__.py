"""Waits until appended records are safe."""
