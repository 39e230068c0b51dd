"""Declares the broker keys, one module per subject."""
