"""Parses and prints the records of `ottla produce` and `ottla consume`."""
