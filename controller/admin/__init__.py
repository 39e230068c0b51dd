"""Carries out administrative requests that write metadata without the active controller's queue."""
