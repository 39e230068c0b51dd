"""Converts message sets of formats 0 and 1 to record batches of format 2, and back."""
