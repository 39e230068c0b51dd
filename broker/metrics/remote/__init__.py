"""Declares the families of tiered storage."""
