"""Writes the declarations of C types (`.pxd`) of the compiled modules, from their slots, annotations and constants.

Only `setup.py` uses it. docs/design.md has the rules.
"""
