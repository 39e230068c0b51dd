"""Declares the messages, one API per file.

A class is the table of its wire format. `ottla.protocol.schema.registry` finds the class of an API key.
"""
