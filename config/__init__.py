"""Declares every configuration key of a broker and of topics, and holds their values."""
